"""Raw bytes of a log (raw.pxd has the rules)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memset

from mqcore.endian cimport load_i32, load_i64
from mqcore.invariants cimport invariant
from mqcore.layout cimport (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    PUT_OK,
    PUT_QUEUE_TABLE_FULL,
    PUT_RAW_DAMAGED,
    RECORD_MAGIC,
    RECORD_QUEUE_ID,
    RECORD_QUEUE_OFFSET,
    RECORD_SIZE,
    QueueEntry,
)
from mqcore.shm.tables cimport QUEUES_FULL, name_hash, queue_find_or_add, queue_hash
from mqcore.store.log.appender cimport Appender, QueueLook, RawRecord
from mqcore.store.log.queue_offsets cimport is_counted, use_offset
from mqcore.store.queue.lives cimport is_lives_topic, is_marker, life_end, lives_end, lives_tell
from mqcore.store.queue.multi_dispatch cimport (
    MultiReader,
    multi_may_name,
    multi_names,
    multi_queues,
    table_next,
)
from mqcore.store.record cimport PARSE_RECORD, PropertyItem, RecordView, record_check, record_parse

cdef enum:
    RECENT = 16                       # queues of which the numbers are at hand


cdef bint may_begin(const Appender* a, int64_t position) noexcept nogil:
    return (a.pool == NULL and a.base < 0 and a.position == 0 and a.staged == 0
            and position > 0 and position % a.segment_size == 0)


cdef int raw_look(Appender* a, const uint8_t* bytes, int64_t length, int64_t position,
                  RawBytes* raw) noexcept nogil:
    cdef int status = raw_check(bytes, length, position, a.segment_size, a.raw_records, raw)
    return open_queues(a, bytes, raw) if status == PUT_OK else status


cdef int raw_check(const uint8_t* bytes, int64_t length, int64_t position, int64_t segment_size,
                   RawRecord* records, RawBytes* raw) noexcept nogil:
    cdef int64_t left_in_segment = segment_size - position % segment_size, left
    cdef RecordView record
    memset(raw, 0, sizeof(RawBytes))
    raw.records = records
    while raw.size < length:
        left = length - raw.size
        if left < BLANK_SIZE_MIN:
            return PUT_RAW_DAMAGED
        if load_i32(bytes + raw.size + RECORD_MAGIC) == MAGIC_BLANK:
            raw.ends_segment = (
                left == BLANK_SIZE_MIN and left_in_segment < segment_size
                and load_i32(bytes + raw.size + RECORD_SIZE) == left_in_segment)
            break
        if raw.count and length > RAW_BYTES_MAX:
            return PUT_RAW_DAMAGED
        if record_check(bytes + raw.size, left, position + raw.size, &record) != PARSE_RECORD:
            return PUT_RAW_DAMAGED
        if is_counted(&record):
            if record.queue_offset >> QUEUE_OFFSET_BITS:     # a negative one, too
                return PUT_RAW_DAMAGED
            invariant("raw records", raw.counted < RAW_RECORDS_MAX)
            records[raw.counted].start = <int32_t>raw.size
            records[raw.counted].topic = <int32_t>(record.topic - bytes)
            records[raw.counted].may_name = multi_may_name(&record)
            raw.counted += 1
        raw.size += record.size
        left_in_segment -= record.size
        if left_in_segment < BLANK_SIZE_MIN:
            return PUT_RAW_DAMAGED
        raw.count += 1
        raw.store_time_ms = max(raw.store_time_ms, record.store_time_ms)
    if length == 0:
        return PUT_RAW_DAMAGED
    return PUT_OK if raw.size == length or raw.ends_segment else PUT_RAW_DAMAGED


cdef bint can_be(Appender* a, int32_t queue, int64_t offset, RawBytes* raw) noexcept nogil:
    """Whether it is no farther than a gap behind what the queue has, with this request so far (A7)."""
    cdef QueueLook* look = &a.looks[queue]
    if look.request != a.look:
        look.request = a.look
        look.next = a.shm.queues[queue].next_offset
    if offset == 0 and look.next > 0:                                                   # lives QL2
        raw.ends_lives = True
        look.next = 0
    if look.next > 0 and offset - look.next > a.queue_gap_max:
        return False
    look.next = max(look.next, offset + 1)
    return True


cdef inline bint is_queue(const QueueEntry* entry, const uint8_t* topic, int32_t length,
                          int32_t queue_id) noexcept nogil:
    return (entry.queue_id == queue_id and entry.topic_length == length
            and memcmp(entry.topic, topic, length) == 0)


cdef int open_queues(Appender* a, const uint8_t* bytes, RawBytes* raw) noexcept nogil:
    cdef int32_t recent[RECENT]
    cdef int32_t queue_id, length, i
    cdef int32_t* number
    cdef const uint8_t* topic
    cdef RecordView record
    cdef PropertyItem names, offsets
    a.look += 1
    memset(recent, 0xFF, sizeof(recent))
    for i in range(raw.counted):
        topic = bytes + raw.records[i].topic
        length = (topic - 1)[0]
        queue_id = load_i32(bytes + raw.records[i].start + RECORD_QUEUE_ID)
        number = &recent[queue_id & (RECENT - 1)]
        if number[0] < 0 or not is_queue(&a.shm.queues[number[0]], topic, length, queue_id):
            number[0] = queue_find_or_add(
                a.shm, topic, length, queue_id, queue_hash(name_hash(topic, length, 0), queue_id))
        if number[0] == QUEUES_FULL:
            return PUT_QUEUE_TABLE_FULL
        if number[0] >= 0 and not can_be(
                a, number[0], load_i64(bytes + raw.records[i].start + RECORD_QUEUE_OFFSET), raw):
            return PUT_RAW_DAMAGED
        raw.ends_lives |= is_lives_topic(topic, length)
        raw.records[i].queue = number[0]
        raw.uses += 1
        if raw.records[i].may_name:
            record_parse(bytes + raw.records[i].start, raw.size - raw.records[i].start, &record)
            raw.uses += multi_names(&record, &names, &offsets)
    return PUT_OK


cdef bint end_lives_at(Appender* a, const uint8_t* at, int64_t available,
                       int32_t queue) noexcept nogil:
    """Whether a record that is in the file by now ends a life: its own queue's, or others."""
    cdef RecordView record
    record_parse(at, available, &record)
    if is_marker(&record):
        return lives_end(a.shm, &record, True, False) > 0
    return (queue >= 0 and record.queue_offset == 0 and a.shm.queues[queue].next_offset > 0
            and life_end(&a.shm.queues[queue], record.log_position, True))


cdef void raw_use_offsets(Appender* a, const uint8_t* bytes, const RawBytes* raw) noexcept nogil:
    cdef int32_t queue, i, k
    cdef const uint8_t* at
    cdef bint impossible = False                 # the dispatcher says it
    cdef bint ended = False
    cdef RecordView record
    cdef MultiReader reader = MultiReader(
        shm=a.shm, enabled=a.multi.enabled, light_queues=a.multi.light_queues, adds=True,
        next_offset=table_next, context=a.shm)
    for i in range(raw.counted):
        at = bytes + raw.records[i].start
        queue = raw.records[i].queue
        if raw.ends_lives:
            ended |= end_lives_at(a, at, raw.size - raw.records[i].start, queue)
        if queue >= 0:
            use_offset(a, queue, load_i64(at + RECORD_QUEUE_OFFSET) + 1)
            a.shm.queues[queue].puts += 1
        if raw.records[i].may_name:
            record_parse(at, raw.size - raw.records[i].start, &record)
            for k in range(multi_queues(&reader, &record, a.multi.named, &impossible)):
                use_offset(a, a.multi.named[k].queue, a.multi.named[k].offset + 1)
    if ended:
        lives_tell(a.shm)
