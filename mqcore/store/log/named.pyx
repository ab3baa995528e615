"""Tells records from what only looks like one (named.pxd has the rules)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from mqcore.atomics cimport load_i64_acquire
from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    BLANK_SIZE_MIN,
    CQ_ENTRY_SIZE,
    MAGIC_BLANK,
    MAGIC_MESSAGE,
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    RECORD_SIZE,
)
from mqcore.shm.segment cimport Shm
from mqcore.shm.tables cimport name_hash, queue_find, queue_hash
from mqcore.store.log.view cimport LogView, log_at, log_next_use, log_record
from mqcore.store.queue.consume_queue cimport QueueFiles, QueueItem, entry_decode, queue_read
from mqcore.store.record cimport PARSE_RECORD, RecordView

cdef enum:
    BLOCK_BITS = 16
    BLOCKS = 16384                     # a gigabyte of the log


cdef void named_open(NamedRecords* n, Shm* shm, LogView* log, QueueFiles* queues) noexcept nogil:
    n.shm = shm
    n.log = log
    n.queues = queues
    n.begins = NULL
    n.entries_queue = -1


cdef void named_close(NamedRecords* n) noexcept nogil:
    free(n.begins)
    n.begins = NULL


cdef bint read_entries(NamedRecords* n, int32_t queue, int64_t first) noexcept nogil:
    cdef int32_t got = queue_read(n.queues, queue, first, NAMED_ENTRIES, n.entries)
    if got <= 0:
        n.entries_queue = -1
        return False
    memset(n.entries + got * CQ_ENTRY_SIZE, 0, (NAMED_ENTRIES - got) * CQ_ENTRY_SIZE)
    n.entries_queue = queue
    n.entries_first = first
    return True


cdef bint entry_at(NamedRecords* n, int32_t queue, int64_t offset, QueueItem* item) noexcept nogil:
    """O8. A file of a queue need not end with a whole block: then the rest begins another one."""
    cdef int64_t first = offset // NAMED_ENTRIES * NAMED_ENTRIES
    if queue == n.entries_queue and n.entries_first <= offset < n.entries_first + NAMED_ENTRIES:
        item[0] = entry_decode(n.entries + (offset - n.entries_first) * CQ_ENTRY_SIZE)
        if item.record_size > 0:
            return True
    if not read_entries(n, queue, max(first, offset // n.queues.file_entries * n.queues.file_entries)):
        return False
    item[0] = entry_decode(n.entries + (offset - n.entries_first) * CQ_ENTRY_SIZE)
    return item.record_size > 0


cdef int entry_agrees(NamedRecords* n, int32_t queue, const RecordView* record) noexcept nogil:
    cdef QueueItem item
    if record.queue_offset < load_i64_acquire(&n.shm.queues[queue].min_offset):
        return NAMED_FALSE
    if not entry_at(n, queue, record.queue_offset, &item):
        return NAMED_NOTHING
    if item.log_position == record.log_position and item.record_size == record.size:
        return NAMED_RECORD
    return NAMED_FALSE


cdef int64_t nearest_begin(NamedRecords* n, int64_t low, int64_t position) noexcept nogil:
    """The last known begin of a record in [low, position]; low is one."""
    cdef int64_t block = position >> BLOCK_BITS
    cdef int64_t begin
    while block > low >> BLOCK_BITS and block > (position >> BLOCK_BITS) - BLOCKS:
        begin = n.begins[block & (BLOCKS - 1)]
        if begin >> BLOCK_BITS == block and begin <= position:
            return begin
        block -= 1
    return low


cdef int log_leads_to(NamedRecords* n, int64_t position, int64_t dispatched,
                      int64_t published) noexcept nogil:
    """Whether a record begins at a position behind the dispatched one (O7)."""
    cdef int64_t at, last
    cdef int32_t count, size, magic
    cdef const uint8_t* bytes
    if n.begins == NULL:
        n.begins = <int64_t*>calloc(BLOCKS, sizeof(int64_t))
        if n.begins == NULL:
            return NAMED_NOTHING
    at = last = nearest_begin(n, dispatched, position)
    for count in range(NAMED_RECORDS_MAX):
        if at >= position:
            return NAMED_RECORD if at == position else NAMED_FALSE
        bytes = log_at(n.log, at, BLANK_SIZE_MIN, published)
        if bytes == NULL:
            return NAMED_NOTHING
        size = load_i32(bytes + RECORD_SIZE)
        magic = load_i32(bytes + RECORD_MAGIC)
        if magic == MAGIC_BLANK:
            at = (at // n.log.segment_size + 1) * n.log.segment_size
        elif magic == MAGIC_MESSAGE and size >= RECORD_FIXED_SIZE:
            at += size
        else:
            return NAMED_NOTHING
        if at >> BLOCK_BITS != last >> BLOCK_BITS:
            last = at
            n.begins[(at >> BLOCK_BITS) & (BLOCKS - 1)] = at
    return NAMED_LATER


cdef int vouch(NamedRecords* n, const RecordView* record, int64_t published) noexcept nogil:
    """
    O6. The dispatched position is read first: what lies before it has its entry by then
    (dispatch D1).
    """
    cdef int64_t dispatched = load_i64_acquire(&n.shm.log.dispatched)
    cdef int32_t queue = queue_find(
        n.shm, record.topic, record.topic_length, record.queue_id,
        queue_hash(name_hash(record.topic, record.topic_length, 0), record.queue_id))
    if queue < 0:
        return NAMED_FALSE
    if record.queue_offset < load_i64_acquire(&n.shm.queues[queue].max_offset):
        return entry_agrees(n, queue, record)
    if record.log_position < dispatched:
        return NAMED_FALSE
    return log_leads_to(n, record.log_position, dispatched, published)


cdef int named_record(NamedRecords* n, int64_t position, RecordView* record,
                      const uint8_t** bytes) noexcept nogil:
    cdef int64_t published = load_i64_acquire(&n.shm.log.published)
    cdef int32_t size
    log_next_use(n.log)
    if position < 0 or position >= published:
        return NAMED_NOTHING
    bytes[0] = log_at(n.log, position, RECORD_FIXED_SIZE, published)
    if bytes[0] == NULL:
        return NAMED_NOTHING
    size = load_i32(bytes[0] + RECORD_SIZE)
    if size < RECORD_FIXED_SIZE:
        return NAMED_NOTHING
    bytes[0] = log_at(n.log, position, size, published)
    if bytes[0] == NULL or log_record(n.log, bytes[0], size, position, record) != PARSE_RECORD:
        return NAMED_NOTHING
    return vouch(n, record, published)
