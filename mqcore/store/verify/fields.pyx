"""Checks of a record by itself (fields.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    RECORD_BORN_HOST,
    RECORD_STORE_HOST_AFTER_BORN_HOST,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMMIT,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from mqcore.names cimport QUEUE_ID_END, is_folder_name
from mqcore.store.record cimport PropertyItem, RecordView, item_is, property_next
from mqcore.store.topic_names cimport is_schedule_topic
from mqcore.store.verify.findings cimport (
    FIELD_BORN_PORT,
    FIELD_QUEUE_ID,
    FIELD_QUEUE_OFFSET,
    FIELD_RECONSUME_TIMES,
    FIELD_STORE_PORT,
    FIELD_STORE_TIME,
    FIELD_SYS_FLAG,
    FIELD_TOPIC,
    FOUND_FIELD,
    find,
)
from mqcore.text cimport is_digit

cdef enum:
    SYS_FLAGS_KNOWN = 0x7FF
    RECORD_PORT_MAX = 65535
    DELAY_UNKNOWN_MS = 1000           # what an unknown level waits (store.md 3.2)


cdef void properties_of(const RecordView* record, Properties* p) noexcept nogil:
    cdef const uint8_t* at = record.properties
    cdef PropertyItem item
    memset(p, 0, sizeof(Properties))
    while property_next(&at, record.properties + record.properties_length, &item):
        if item_is(&item, "TAGS"):
            p.tags = item
        elif item_is(&item, "KEYS"):
            p.keys = item
        elif item_is(&item, "UNIQ_KEY"):
            p.unique = item
        elif item_is(&item, "DELAY"):
            p.delay = item
        elif item_is(&item, "INNER_MULTI_DISPATCH"):
            p.names = item
        elif item_is(&item, "INNER_MULTI_QUEUE_OFFSET"):
            p.offsets = item


cdef void check_fields(Findings* f, const uint8_t* at, const RecordView* record) noexcept nogil:
    cdef int32_t born_size = (HOST_V6_SIZE if record.sys_flag & SYS_FLAG_BORN_HOST_V6
                              else HOST_V4_SIZE)
    cdef int32_t store_size = (HOST_V6_SIZE if record.sys_flag & SYS_FLAG_STORE_HOST_V6
                               else HOST_V4_SIZE)
    cdef const uint8_t* p = at + RECORD_BORN_HOST + born_size
    cdef int32_t kind = record.sys_flag & SYS_FLAG_TRANSACTION_MASK
    cdef int32_t port
    port = load_i32(p - 4)
    if port < 0 or port > RECORD_PORT_MAX:
        find(f, FOUND_FIELD, 0, record.log_position, FIELD_BORN_PORT, RECORD_PORT_MAX, port)
    p += RECORD_STORE_HOST_AFTER_BORN_HOST + store_size
    port = load_i32(p - 4)
    if port < 0 or port > RECORD_PORT_MAX:
        find(f, FOUND_FIELD, 0, record.log_position, FIELD_STORE_PORT, RECORD_PORT_MAX, port)
    if load_i32(p) < 0:
        find(f, FOUND_FIELD, 0, record.log_position, FIELD_RECONSUME_TIMES, 0, load_i32(p))
    if not 0 <= record.queue_id < QUEUE_ID_END:
        find(f, FOUND_FIELD, 0, record.log_position, FIELD_QUEUE_ID, 0, record.queue_id)
    if record.sys_flag & ~SYS_FLAGS_KNOWN:
        find(f, FOUND_FIELD, 0, record.log_position, FIELD_SYS_FLAG, SYS_FLAGS_KNOWN,
             record.sys_flag)
    if record.store_time_ms <= 0:
        find(f, FOUND_FIELD, 0, record.log_position, FIELD_STORE_TIME, 1, record.store_time_ms)
    if record.queue_offset < 0 or (record.queue_offset and kind and kind != SYS_FLAG_COMMIT):
        find(f, FOUND_FIELD, 0, record.log_position, FIELD_QUEUE_OFFSET, 0, record.queue_offset)
    if not is_folder_name(record.topic, record.topic_length):
        find(f, FOUND_FIELD, 0, record.log_position, FIELD_TOPIC, 0, record.topic_length)


cdef int64_t delivery_ms(const int64_t* delay_ms, int32_t levels, const RecordView* record,
                         const PropertyItem* delay) noexcept nogil:
    cdef int64_t level = 0
    cdef int32_t i
    if delay.value_length == 0 or not is_schedule_topic(record.topic, record.topic_length):
        return -1
    for i in range(min(delay.value_length, 9)):
        if not is_digit(delay.value[i]):
            return -1
        level = level * 10 + delay.value[i] - c'0'
    if level <= 0:
        return -1
    level = min(level, <int64_t>levels)
    return record.store_time_ms + (delay_ms[level] if level else DELAY_UNKNOWN_MS)
