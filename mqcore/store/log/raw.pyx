"""Raw bytes of a log (raw.pxd has the rules)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    PUT_OK,
    PUT_QUEUE_TABLE_FULL,
    PUT_RAW_DAMAGED,
    RECORD_MAGIC,
    RECORD_SIZE,
)
from mqcore.shm.segment cimport Shm
from mqcore.shm.tables cimport QUEUES_FULL
from mqcore.store.log.appender cimport Appender
from mqcore.store.log.queue_offsets cimport is_counted, queue_of_record, use_offset, use_offset
from mqcore.store.queue.multi_dispatch cimport (
    MultiReader,
    multi_names,
    multi_queues,
    table_next,
)
from mqcore.store.record cimport PARSE_RECORD, PropertyItem, RecordView, record_check, record_parse


cdef int raw_check(const uint8_t* bytes, int64_t length, int64_t position, int64_t segment_size,
                   RawBytes* raw) noexcept nogil:
    """A7."""
    cdef int64_t left_in_segment = segment_size - position % segment_size, left
    cdef RecordView record
    memset(raw, 0, sizeof(RawBytes))
    while raw.size < length:
        left = length - raw.size
        if left < BLANK_SIZE_MIN:
            return PUT_RAW_DAMAGED
        if load_i32(bytes + raw.size + RECORD_MAGIC) == MAGIC_BLANK:
            raw.ends_segment = (
                left == BLANK_SIZE_MIN and left_in_segment < segment_size
                and load_i32(bytes + raw.size + RECORD_SIZE) == left_in_segment)
            break
        if record_check(bytes + raw.size, left, position + raw.size, &record) != PARSE_RECORD:
            return PUT_RAW_DAMAGED
        raw.size += record.size
        left_in_segment -= record.size
        if left_in_segment < BLANK_SIZE_MIN:
            return PUT_RAW_DAMAGED
        raw.count += 1
        raw.store_time_ms = max(raw.store_time_ms, record.store_time_ms)
    if length == 0 or (raw.count > 1 and length > RAW_BYTES_MAX):
        return PUT_RAW_DAMAGED
    return PUT_OK if raw.size == length or raw.ends_segment else PUT_RAW_DAMAGED


cdef int raw_open_queues(Shm* shm, const uint8_t* bytes, RawBytes* raw) noexcept nogil:
    cdef int64_t at = 0
    cdef RecordView record
    cdef PropertyItem names, offsets
    while at < raw.size:
        record_parse(bytes + at, raw.size - at, &record)
        at += record.size
        if not is_counted(&record):
            continue
        if queue_of_record(shm, &record) == QUEUES_FULL:
            return PUT_QUEUE_TABLE_FULL
        raw.uses += 1
        raw.uses += multi_names(&record, &names, &offsets)
    return PUT_OK


cdef void raw_use_offsets(Appender* a, const uint8_t* bytes, const RawBytes* raw) noexcept nogil:
    cdef int64_t at = 0
    cdef int32_t queue, i
    cdef bint impossible = False                 # the dispatcher says it
    cdef RecordView record
    cdef MultiReader reader = MultiReader(
        shm=a.shm, enabled=a.multi.enabled, light_queues=a.multi.light_queues, adds=True,
        next_offset=table_next, context=a.shm)
    while at < raw.size:
        record_parse(bytes + at, raw.size - at, &record)
        at += record.size
        if not is_counted(&record):
            continue
        queue = queue_of_record(a.shm, &record)
        if queue >= 0:
            use_offset(a, queue, record.queue_offset + 1)
            a.shm.queues[queue].puts += 1
        for i in range(multi_queues(&reader, &record, a.multi.named, &impossible)):
            use_offset(a, a.multi.named[i].queue, a.multi.named[i].offset + 1)
