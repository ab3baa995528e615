"""Half queue and op queue (half_queue.pxd has their rules)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

from mqcore.atomics cimport load_i64_acquire
from mqcore.layout cimport CQ_ENTRY_SIZE, CQ_FILLER_RECORD_SIZE
from mqcore.shm.segment cimport Shm
from mqcore.shm.tables cimport name_hash, queue_find, queue_hash
from mqcore.store.consume_queue cimport (
    QueueItem,
    entry_decode,
    queue_files_close,
    queue_files_open,
    queue_read,
)
from mqcore.store.log_view cimport log_at, log_next_use, log_view_close, log_view_open
from mqcore.store.queue_extension cimport is_extension_address
from mqcore.store.record cimport PARSE_RECORD, RecordView, record_parse

cdef const char* HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
cdef const char* OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"

cdef enum:
    HALF_TOPIC_LENGTH = 24
    OP_TOPIC_LENGTH = 27
    OP_TAG_CODE = 100                  # of the tag `d`
    ENTRIES = 1024
    OPEN_FILES_MAX = 16
    OPS_START = 1 << 12
    SETTLED_START = 1 << 10            # bytes
    SHIFT_BYTES = 1 << 16              # a settled beginning of that length is let go
    DIGITS_MAX = 18
    MOVES_MAX = 64                     # put-backs of one message that are followed


cdef int half_queue_open(HalfQueue* h, Shm* shm, const char* log_folder, const char* queue_folder,
                         int64_t file_entries) noexcept nogil:
    memset(h, 0, sizeof(HalfQueue))
    h.shm = shm
    h.half_number = h.op_number = -1
    h.op_capacity = OPS_START
    h.settled_capacity = SETTLED_START
    h.op_halves = <int64_t*>malloc(OPS_START * sizeof(int64_t))
    h.settled = <uint8_t*>calloc(SETTLED_START, 1)
    h.moved = <Moved*>malloc(MOVED_PLACES * sizeof(Moved))
    h.entries = <uint8_t*>malloc(ENTRIES * CQ_ENTRY_SIZE)
    if h.op_halves == NULL or h.settled == NULL or h.moved == NULL or h.entries == NULL:
        return 12
    memset(h.moved, 0xFF, MOVED_PLACES * sizeof(Moved))
    log_view_open(&h.log, shm.log, log_folder, shm.head.segment_size)
    return queue_files_open(&h.queues, shm.queues, shm.head.queue_capacity, queue_folder,
                            file_entries, OPEN_FILES_MAX, False)


cdef void half_queue_close(HalfQueue* h) noexcept nogil:
    log_view_close(&h.log)
    queue_files_close(&h.queues)
    free(h.op_halves)
    free(h.settled)
    free(h.moved)
    free(h.entries)


cdef int32_t number_of(Shm* shm, const char* topic, int32_t length) noexcept nogil:
    return queue_find(shm, <const uint8_t*>topic, length, 0,
                      queue_hash(name_hash(<const uint8_t*>topic, length, 0), 0))


cdef void find_queues(HalfQueue* h) noexcept nogil:
    if h.half_number < 0:
        h.half_number = number_of(h.shm, HALF_TOPIC, HALF_TOPIC_LENGTH)
    if h.op_number < 0:
        h.op_number = number_of(h.shm, OP_TOPIC, OP_TOPIC_LENGTH)


cdef int64_t within(Shm* shm, int32_t number, int64_t offset) noexcept nogil:
    if number < 0:
        return 0
    return max(load_i64_acquire(&shm.queues[number].min_offset),
               min(offset, load_i64_acquire(&shm.queues[number].max_offset)))


cdef void half_queue_seek(HalfQueue* h, int64_t half_offset, int64_t op_offset) noexcept nogil:
    find_queues(h)
    h.half_offset = within(h.shm, h.half_number, half_offset)
    h.op_offset = h.op_read = within(h.shm, h.op_number, op_offset)
    h.settled_base = h.half_offset & ~<int64_t>7
    h.settled_count = 0
    memset(h.settled, 0, h.settled_capacity)
    h.entries_count = 0


cdef int64_t half_queue_end(HalfQueue* h) noexcept nogil:
    find_queues(h)
    return load_i64_acquire(&h.shm.queues[h.half_number].max_offset) if h.half_number >= 0 else 0


cdef bint half_ops_wait(HalfQueue* h) noexcept nogil:
    find_queues(h)
    return (h.op_number >= 0 and h.op_read < load_i64_acquire(&h.shm.queues[h.op_number].max_offset)
            and h.op_read - h.op_offset < OPS_MAX)


cdef bint settled_room(HalfQueue* h, int64_t offset) noexcept nogil:
    cdef int64_t needed = (offset - h.settled_base) // 8 + 1
    cdef int64_t capacity = h.settled_capacity
    cdef uint8_t* larger
    if needed <= capacity:
        return True
    while capacity < needed:
        capacity *= 2
    larger = <uint8_t*>realloc(h.settled, capacity)
    if larger == NULL:
        return False
    memset(larger + h.settled_capacity, 0, capacity - h.settled_capacity)
    h.settled = larger
    h.settled_capacity = capacity
    return True


cdef bint half_is_settled(HalfQueue* h, int64_t offset) noexcept nogil:
    cdef int64_t bit = offset - h.settled_base
    if offset < h.half_offset:
        return True
    return bit // 8 < h.settled_capacity and (h.settled[bit >> 3] >> (bit & 7)) & 1


cdef bint half_settle(HalfQueue* h, int64_t offset) noexcept nogil:
    cdef int64_t bit = offset - h.settled_base
    if half_is_settled(h, offset):
        return True
    if not settled_room(h, offset):
        return False
    h.settled[bit >> 3] |= <uint8_t>(1 << (bit & 7))
    h.settled_count += 1
    return True


cdef int64_t half_next(HalfQueue* h, int64_t offset, int64_t end) noexcept nogil:
    cdef int64_t bit
    offset = max(offset, h.half_offset)
    while offset < end:
        bit = offset - h.settled_base
        if bit >> 3 >= h.settled_capacity:
            return offset
        if bit & 7 == 0 and h.settled[bit >> 3] == 0xFF:
            offset += 8
            continue
        if not (h.settled[bit >> 3] >> (bit & 7)) & 1:
            return offset
        offset += 1
    return end


cdef void half_moved(HalfQueue* h, int64_t old, int64_t new) noexcept nogil:
    h.moved[old & (MOVED_PLACES - 1)].old = old
    h.moved[old & (MOVED_PLACES - 1)].new = new


cdef int64_t copy_of(HalfQueue* h, int64_t offset) noexcept nogil:
    """The newest copy of a half message that was put back, -1: none that is remembered."""
    cdef int i
    for i in range(MOVES_MAX):
        if offset >= h.half_offset:
            return offset
        if h.moved[offset & (MOVED_PLACES - 1)].old != offset:
            return -1
        offset = h.moved[offset & (MOVED_PLACES - 1)].new
    return -1


cdef bint ops_room(HalfQueue* h) noexcept nogil:
    """Room for one more op record between op_offset and op_read."""
    cdef int64_t* larger
    cdef int64_t i, capacity = h.op_capacity
    if h.op_read - h.op_offset < capacity:
        return True
    larger = <int64_t*>malloc(2 * capacity * sizeof(int64_t))
    if larger == NULL:
        return False
    for i in range(h.op_offset, h.op_read):
        larger[i & (2 * capacity - 1)] = h.op_halves[i & (capacity - 1)]
    free(h.op_halves)
    h.op_halves = larger
    h.op_capacity = 2 * capacity
    return True


cdef int64_t named_half(HalfQueue* h, const QueueItem* item) noexcept nogil:
    """The half offset that an op record names, -1: none."""
    cdef int64_t end = load_i64_acquire(&h.shm.log.published)
    cdef const uint8_t* bytes
    cdef RecordView record
    cdef int64_t number = 0
    cdef int32_t i
    if item.tag_code != OP_TAG_CODE and not is_extension_address(item.tag_code):
        return -1
    if item.record_size <= 0 or item.record_size == CQ_FILLER_RECORD_SIZE:
        return -1
    log_next_use(&h.log)
    bytes = log_at(&h.log, item.log_position, item.record_size, end)
    if bytes == NULL or record_parse(bytes, item.record_size, &record) != PARSE_RECORD:
        return -1
    if not 1 <= record.body_length <= DIGITS_MAX:
        return -1
    for i in range(record.body_length):
        if not 48 <= record.body[i] <= 57:
            return -1
        number = number * 10 + record.body[i] - 48
    return number


cdef bint take_op(HalfQueue* h, const QueueItem* item) noexcept nogil:
    cdef int64_t half = named_half(h, item)
    cdef int64_t copy
    if not ops_room(h):
        return False
    if half < 0:
        h.strange_ops += 1
    elif half >= h.half_offset:
        if not half_settle(h, half):
            return False
    else:
        copy = copy_of(h, half)                                          # U3
        if copy >= 0:
            if not half_settle(h, copy):
                return False
            half = copy
    h.op_halves[h.op_read & (h.op_capacity - 1)] = half
    h.op_read += 1
    return True


cdef int32_t half_read_ops(HalfQueue* h) noexcept nogil:
    cdef uint8_t entries[OPS_AT_ONCE * CQ_ENTRY_SIZE]
    cdef int64_t end
    cdef int32_t count, i
    cdef QueueItem item
    if not half_ops_wait(h):
        return 0
    end = load_i64_acquire(&h.shm.queues[h.op_number].max_offset)
    if h.op_read < load_i64_acquire(&h.shm.queues[h.op_number].min_offset):
        h.op_read = h.op_offset = within(h.shm, h.op_number, h.op_read)  # expired with the log
        return 0
    count = queue_read(&h.queues, h.op_number, h.op_read,
                       <int32_t>min(<int64_t>OPS_AT_ONCE, end - h.op_read), entries)
    if count <= 0:
        return -1
    for i in range(count):
        item = entry_decode(entries + i * CQ_ENTRY_SIZE)
        if not take_op(h, &item):
            return -1
    return count


cdef void half_advance(HalfQueue* h) noexcept nogil:
    cdef int64_t end = half_queue_end(h)
    cdef int64_t next_offset = half_next(h, h.half_offset, end)
    cdef int64_t done, settled_end
    if next_offset > h.half_offset:
        h.settled_count -= next_offset - h.half_offset
        h.half_offset = next_offset
    while h.op_offset < h.op_read and (
            h.op_halves[h.op_offset & (h.op_capacity - 1)] < h.half_offset):
        h.op_offset += 1
    done = (h.half_offset - h.settled_base) >> 3
    if done >= SHIFT_BYTES or (done > 0 and 2 * done >= h.settled_capacity):
        settled_end = h.settled_capacity
        memmove(h.settled, h.settled + done, settled_end - done)
        memset(h.settled + settled_end - done, 0, done)
        h.settled_base += 8 * done


cdef bint entry_at(HalfQueue* h, int64_t offset, QueueItem* item) noexcept nogil:
    cdef int64_t end
    if not h.entries_first <= offset < h.entries_first + h.entries_count:
        end = half_queue_end(h)
        h.entries_first = offset
        h.entries_count = queue_read(&h.queues, h.half_number, offset,
                                     <int32_t>min(<int64_t>ENTRIES, end - offset), h.entries)
        if h.entries_count <= 0:
            h.entries_count = 0
            return False
    item[0] = entry_decode(h.entries + (offset - h.entries_first) * CQ_ENTRY_SIZE)
    return 0 < item.record_size < CQ_FILLER_RECORD_SIZE


cdef const uint8_t* half_record(HalfQueue* h, int64_t offset, RecordView* record) noexcept nogil:
    cdef QueueItem item
    cdef const uint8_t* bytes
    if h.half_number < 0 or not entry_at(h, offset, &item):
        return NULL
    log_next_use(&h.log)
    bytes = log_at(&h.log, item.log_position, item.record_size,
                   load_i64_acquire(&h.shm.log.published))
    if bytes == NULL or record_parse(bytes, item.record_size, record) != PARSE_RECORD:
        return NULL
    return bytes
