"""Half queue and op queue (half_queue.pxd has their rules)."""
from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memmove, memset

from mqcore.atomics cimport load_i64_acquire
from mqcore.layout cimport CQ_ENTRY_SIZE, CQ_FILLER_RECORD_SIZE
from mqcore.shm.segment cimport Shm
from mqcore.shm.tables cimport name_hash, queue_find, queue_hash
from mqcore.store.queue.consume_queue cimport (
    QueueItem,
    entry_decode,
    queue_files_close,
    queue_files_open,
    queue_read,
)
from mqcore.store.log.view cimport log_at, log_next_use, log_record, log_view_close, log_view_open
from mqcore.store.queue.extension cimport is_extension_address
from mqcore.store.record cimport PARSE_RECORD, RecordView, record_parse
from mqcore.store.topic_names cimport HALF_TOPIC, HALF_TOPIC_LENGTH, OP_TOPIC, OP_TOPIC_LENGTH
from mqcore.text cimport is_digit

cdef enum:
    OP_TAG_CODE = 100                  # of the tag `d`
    ENTRIES = 1024
    OPEN_FILES_MAX = 16
    SETTLED_START = 1 << 10            # bytes
    SHIFT_BYTES = 1 << 16              # a settled beginning of that length is let go
    DIGITS_MAX = 18
    MOVES_MAX = 64                     # put-backs of one message that are followed


cdef int half_queue_open(HalfQueue* h, Shm* shm, const char* log_folder, const char* queue_folder,
                         int64_t file_entries) noexcept nogil:
    memset(h, 0, sizeof(HalfQueue))
    h.shm = shm
    h.half_number = h.op_number = -1
    h.settled_capacity = SETTLED_START
    h.op_block = OP_BLOCK_START
    h.op_halves = <int64_t*>malloc(OP_BLOCKS * sizeof(int64_t))
    h.settled = <uint8_t*>calloc(SETTLED_START, 1)
    h.ended = <uint8_t*>calloc(SETTLED_START, 1)
    h.moved = <Moved*>calloc(MOVED_PLACES, sizeof(Moved))       # touched when something moves
    h.entries = <uint8_t*>malloc(ENTRIES * CQ_ENTRY_SIZE)
    if (h.op_halves == NULL or h.settled == NULL or h.ended == NULL or h.moved == NULL
            or h.entries == NULL):
        return ENOMEM
    log_view_open(&h.log, shm.log, log_folder, shm.head.segment_size)
    return queue_files_open(&h.queues, shm.queues, shm.head.queue_capacity, queue_folder,
                            file_entries, OPEN_FILES_MAX, False)


cdef void half_queue_close(HalfQueue* h) noexcept nogil:
    if h.entries != NULL:              # else it was never open
        log_view_close(&h.log)
        queue_files_close(&h.queues)
    free(h.op_halves)
    free(h.settled)
    free(h.ended)
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
    memset(h.ended, 0, h.settled_capacity)
    if h.moves:
        memset(h.moved, 0, MOVED_PLACES * sizeof(Moved))
        h.moves = False
    h.entries_count = 0


cdef int64_t half_queue_end(HalfQueue* h) noexcept nogil:
    find_queues(h)
    return load_i64_acquire(&h.shm.queues[h.half_number].max_offset) if h.half_number >= 0 else 0


cdef int64_t half_queue_first(HalfQueue* h) noexcept nogil:
    find_queues(h)
    return load_i64_acquire(&h.shm.queues[h.half_number].min_offset) if h.half_number >= 0 else 0


# -- what is settled ----------------------------------------------------------------------------------

cdef bint grown(uint8_t** bits, int64_t capacity, int64_t larger) noexcept nogil:
    cdef uint8_t* moved = <uint8_t*>realloc(bits[0], larger)
    if moved == NULL:
        return False
    memset(moved + capacity, 0, larger - capacity)
    bits[0] = moved
    return True


cdef bint settled_room(HalfQueue* h, int64_t offset) noexcept nogil:
    cdef int64_t needed = (offset - h.settled_base) // 8 + 1
    cdef int64_t capacity = h.settled_capacity
    if needed <= capacity:
        return True
    while capacity < needed:
        capacity *= 2
    if not grown(&h.settled, h.settled_capacity, capacity) or not (
            grown(&h.ended, h.settled_capacity, capacity)):
        return False
    h.settled_capacity = capacity
    return True


cdef inline bint bit_of(const uint8_t* bits, int64_t bit) noexcept nogil:
    return (bits[bit >> 3] >> (bit & 7)) & 1


cdef bint half_is_settled(HalfQueue* h, int64_t offset) noexcept nogil:
    cdef int64_t bit = offset - h.settled_base
    if offset < h.half_offset:
        return True
    return bit >> 3 < h.settled_capacity and bit_of(h.settled, bit)


cdef bint half_is_ended(HalfQueue* h, int64_t offset) noexcept nogil:
    cdef int64_t bit = offset - h.settled_base
    if offset < h.half_offset:
        return False
    return bit >> 3 < h.settled_capacity and bit_of(h.ended, bit)


cdef bint half_settle(HalfQueue* h, int64_t offset) noexcept nogil:
    cdef int64_t bit = offset - h.settled_base
    if half_is_settled(h, offset):
        return True
    if not settled_room(h, offset):
        return False
    h.settled[bit >> 3] |= <uint8_t>(1 << (bit & 7))
    h.settled_count += 1
    return True


cdef bint end_half(HalfQueue* h, int64_t offset) noexcept nogil:
    cdef int64_t bit = offset - h.settled_base
    if not settled_room(h, offset) or not half_settle(h, offset):
        return False
    h.ended[bit >> 3] |= <uint8_t>(1 << (bit & 7))
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
        if not bit_of(h.settled, bit):
            return offset
        offset += 1
    return end


# -- put-backs (U3) -----------------------------------------------------------------------------------

cdef inline void remember_move(HalfQueue* h, int64_t old, int64_t new) noexcept nogil:
    h.moved[old & (MOVED_PLACES - 1)].before = old + 1
    h.moves = True
    h.moved[old & (MOVED_PLACES - 1)].new = new


cdef int64_t newest_copy(HalfQueue* h, int64_t offset) noexcept nogil:
    """The half message itself unless it was put back, as far as that is remembered."""
    cdef int i
    for i in range(MOVES_MAX):
        if h.moved[offset & (MOVED_PLACES - 1)].before != offset + 1:
            break
        offset = h.moved[offset & (MOVED_PLACES - 1)].new
    return offset


cdef bint half_moved(HalfQueue* h, int64_t old, int64_t original, int64_t new) noexcept nogil:
    cdef bint ended = half_is_ended(h, old)
    remember_move(h, old, new)
    if original >= 0 and original != old:
        remember_move(h, original, new)
    if ended:                          # while the copy was on its way
        return end_half(h, new)
    return half_settle(h, old)


# -- op records ---------------------------------------------------------------------------------------

cdef bint merge_blocks(HalfQueue* h) noexcept nogil:
    """Blocks of twice the length."""
    cdef int64_t* merged = <int64_t*>malloc(OP_BLOCKS * sizeof(int64_t))
    cdef int64_t block, first = h.op_offset // h.op_block, last = h.op_read // h.op_block
    if merged == NULL:
        return False
    memset(merged, 0xFF, OP_BLOCKS * sizeof(int64_t))
    for block in range(first, last):
        merged[block // 2 & (OP_BLOCKS - 1)] = max(merged[block // 2 & (OP_BLOCKS - 1)],
                                                   h.op_halves[block & (OP_BLOCKS - 1)])
    free(h.op_halves)
    h.op_halves = merged
    h.op_block *= 2
    return True


cdef bint op_room(HalfQueue* h) noexcept nogil:
    """Room for the block of op record op_read."""
    if h.op_read % h.op_block and h.op_read > h.op_offset:
        return True
    if h.op_read // h.op_block - h.op_offset // h.op_block >= OP_BLOCKS and not merge_blocks(h):
        return False
    if h.op_read % h.op_block == 0 or h.op_read == h.op_offset:
        h.op_halves[h.op_read // h.op_block & (OP_BLOCKS - 1)] = -1
    return True


cdef int64_t named_half(HalfQueue* h, const QueueItem* item, bint* unreadable) noexcept nogil:
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
    h.log.failure = 0
    bytes = log_at(&h.log, item.log_position, item.record_size, end)
    if bytes == NULL:
        unreadable[0] = h.log.failure != 0
        return -1
    if record_parse(bytes, item.record_size, &record) != PARSE_RECORD:
        return -1
    if not 1 <= record.body_length <= DIGITS_MAX:
        return -1
    for i in range(record.body_length):
        if not is_digit(record.body[i]):
            return -1
        number = number * 10 + record.body[i] - c'0'
    return number


cdef bint take_op(HalfQueue* h, const QueueItem* item) noexcept nogil:
    cdef bint unreadable = False
    cdef int64_t half = named_half(h, item, &unreadable)
    cdef int64_t* highest
    if unreadable or not op_room(h):
        return False
    if half < 0 or half >= half_queue_end(h):  # a half message is in its queue before its op record
        h.strange += 1
    else:
        if half >= h.half_offset and not end_half(h, half):
            return False
        highest = &h.op_halves[h.op_read // h.op_block & (OP_BLOCKS - 1)]
        highest[0] = max(highest[0], half)
        half = newest_copy(h, half)                                      # U3
        if half >= h.half_offset and not end_half(h, half):
            return False
    h.op_read += 1
    return True


cdef int64_t ops_end(HalfQueue* h) noexcept nogil:
    find_queues(h)
    return load_i64_acquire(&h.shm.queues[h.op_number].max_offset) if h.op_number >= 0 else 0


cdef bint half_ops_wait(HalfQueue* h) noexcept nogil:
    return h.op_read < ops_end(h)


cdef int32_t half_read_ops(HalfQueue* h) noexcept nogil:
    cdef uint8_t entries[OPS_AT_ONCE * CQ_ENTRY_SIZE]
    cdef int64_t end = ops_end(h)
    cdef int64_t first
    cdef int32_t count, i
    cdef QueueItem item
    if h.op_read >= end:
        return 0
    first = load_i64_acquire(&h.shm.queues[h.op_number].min_offset)
    if h.op_read < first:              # expired with the log
        h.op_offset = h.op_read = first
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


# -- going on -----------------------------------------------------------------------------------------

cdef void let_go(HalfQueue* h, int64_t done) noexcept nogil:
    """The first `done` bytes of bits."""
    memmove(h.settled, h.settled + done, h.settled_capacity - done)
    memset(h.settled + h.settled_capacity - done, 0, done)
    memmove(h.ended, h.ended + done, h.settled_capacity - done)
    memset(h.ended + h.settled_capacity - done, 0, done)
    h.settled_base += 8 * done


cdef void pass_to(HalfQueue* h, int64_t offset) noexcept nogil:
    """Everything below is settled, or has expired."""
    cdef int64_t bit, done
    for bit in range(h.half_offset - h.settled_base,
                     min(offset - h.settled_base, 8 * h.settled_capacity)):
        h.settled_count -= bit_of(h.settled, bit)
    h.half_offset = offset
    done = (offset - h.settled_base) >> 3
    if done >= h.settled_capacity:
        memset(h.settled, 0, h.settled_capacity)
        memset(h.ended, 0, h.settled_capacity)
        h.settled_base = offset & ~<int64_t>7
    elif done >= SHIFT_BYTES or 2 * done >= h.settled_capacity:
        let_go(h, done)


cdef void half_advance(HalfQueue* h, int64_t limit) noexcept nogil:
    cdef int64_t next_offset = half_next(h, h.half_offset, min(limit, half_queue_end(h)))
    cdef int64_t block
    if next_offset > h.half_offset:
        pass_to(h, next_offset)
    while h.op_offset < h.op_read:
        block = h.op_offset // h.op_block
        if h.op_halves[block & (OP_BLOCKS - 1)] >= h.half_offset:
            break
        h.op_offset = min((block + 1) * h.op_block, h.op_read)


cdef void half_pass_expired(HalfQueue* h) noexcept nogil:
    cdef int64_t first = half_queue_first(h)
    if first > h.half_offset:
        pass_to(h, first)


# -- half messages ------------------------------------------------------------------------------------

cdef int entry_at(HalfQueue* h, int64_t offset, QueueItem* item) noexcept nogil:
    cdef int64_t end
    if not h.entries_first <= offset < h.entries_first + h.entries_count:
        end = half_queue_end(h)
        h.entries_first = offset
        h.entries_count = queue_read(&h.queues, h.half_number, offset,
                                     <int32_t>min(<int64_t>ENTRIES, end - offset), h.entries)
        if h.entries_count <= 0:
            h.entries_count = 0
            return HALF_UNREADABLE
    item[0] = entry_decode(h.entries + (offset - h.entries_first) * CQ_ENTRY_SIZE)
    return HALF_FOUND if 0 < item.record_size < CQ_FILLER_RECORD_SIZE else HALF_GONE


cdef int half_record(HalfQueue* h, int64_t offset, RecordView* record,
                     const uint8_t** bytes) noexcept nogil:
    cdef QueueItem item
    cdef int found
    cdef int64_t end = half_queue_end(h)
    bytes[0] = NULL
    if offset < half_queue_first(h):
        return HALF_GONE
    if offset >= end:
        return HALF_UNREADABLE
    found = entry_at(h, offset, &item)
    if found != HALF_FOUND:
        return HALF_GONE if offset < half_queue_first(h) else found
    log_next_use(&h.log)
    h.log.failure = 0
    bytes[0] = log_at(&h.log, item.log_position, item.record_size,
                      load_i64_acquire(&h.shm.log.published))
    if bytes[0] == NULL:
        return HALF_UNREADABLE if h.log.failure else HALF_GONE
    if log_record(&h.log, bytes[0], item.record_size, item.log_position, record) != PARSE_RECORD:
        bytes[0] = NULL
        return HALF_GONE
    return HALF_FOUND
