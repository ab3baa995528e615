"""Delayed records and their deliveries (record.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from mqcore.endian cimport store_i16, store_i32, store_i64
from mqcore.layout cimport (
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    RECORD_BODY_AFTER_HOSTS,
    RECORD_BORN_HOST,
    RECORD_PREPARED_POSITION_AFTER_HOSTS,
    RECORD_QUEUE_ID,
    RECORD_SIZE,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
)
from mqcore.names cimport is_folder_name
from mqcore.store.record cimport (
    PropertyItem,
    RecordView,
    item_is,
    property_next,
    property_number,
    record_place,
)
from mqcore.store.topic_names cimport is_half_topic
from mqcore.text cimport is_digit

cdef enum:
    DIGITS_MAX = 9                 # of a queue id or a level


cdef int32_t number(const PropertyItem* item) noexcept nogil:
    """A property's value as a number of digits alone; -1: it is none."""
    cdef int64_t value
    if not 1 <= item.value_length <= DIGITS_MAX or not is_digit(item.value[0]):
        return -1
    return <int32_t>value if property_number(item, &value) else -1


cdef int real_place(const RecordView* delayed, RealPlace* place) noexcept nogil:
    cdef const uint8_t* at = delayed.properties
    cdef const uint8_t* end = delayed.properties + delayed.properties_length
    cdef PropertyItem item
    place.topic_length = 0
    place.queue_id = -1
    place.level = 0
    while property_next(&at, end, &item):
        if item_is(&item, "REAL_TOPIC"):
            place.topic = item.value
            place.topic_length = item.value_length
        elif item_is(&item, "REAL_QID"):
            place.queue_id = number(&item)
        elif item_is(&item, "DELAY"):
            place.level = max(number(&item), 0)
    if not is_folder_name(place.topic, place.topic_length) or place.queue_id < 0:
        return PLACE_MISSING
    return PLACE_HALF if is_half_topic(place.topic, place.topic_length) else PLACE_KNOWN


cdef int32_t delivery_size(const RecordView* delayed, const RealPlace* place) noexcept nogil:
    return delayed.size - delayed.topic_length + place.topic_length


cdef int32_t delivery_write(const uint8_t* at, const RecordView* delayed, const RealPlace* place,
                            int64_t now_ms, uint8_t* into) noexcept nogil:
    cdef int32_t topic_start = <int32_t>(delayed.topic - at)
    cdef uint8_t* end_of_hosts
    cdef uint8_t* p = into + topic_start
    memcpy(into, at, topic_start - 1)                 # up to and with the body: the CRC stays right
    store_i32(into + RECORD_SIZE, delivery_size(delayed, place))
    record_place(into, 0, 0, now_ms)
    store_i32(into + RECORD_QUEUE_ID, place.queue_id)
    end_of_hosts = into + (delayed.body - at) - RECORD_BODY_AFTER_HOSTS
    store_i64(end_of_hosts + RECORD_PREPARED_POSITION_AFTER_HOSTS, 0)
    (p - 1)[0] = <uint8_t>place.topic_length
    memcpy(p, place.topic, place.topic_length)
    p += place.topic_length
    store_i16(p, delayed.properties_length)
    memcpy(p + 2, delayed.properties, delayed.properties_length)
    return topic_start


cdef bint next_kept(const uint8_t** at, const uint8_t* end, PropertyItem* item) noexcept nogil:
    """The next property that every copy of a message has."""
    while property_next(at, end, item):
        if not item_is(item, "WAIT") and not item_is(item, "INNER_MULTI_QUEUE_OFFSET"):
            return True
    return False


cdef bint same_properties(const RecordView* one, const RecordView* other) noexcept nogil:
    """Multi-dispatch drops one property and adds one (store.md 2.11)."""
    cdef const uint8_t* one_at = one.properties
    cdef const uint8_t* other_at = other.properties
    cdef const uint8_t* one_end = one_at + one.properties_length
    cdef const uint8_t* other_end = other_at + other.properties_length
    cdef PropertyItem left, right
    if (one.properties_length == other.properties_length
            and memcmp(one_at, other_at, one.properties_length) == 0):
        return True
    while next_kept(&one_at, one_end, &left):
        if (not next_kept(&other_at, other_end, &right)
                or left.key_length != right.key_length or left.value_length != right.value_length
                or memcmp(left.key, right.key, left.key_length) != 0
                or memcmp(left.value, right.value, left.value_length) != 0):
            return False
    return not next_kept(&other_at, other_end, &right)


cdef bint same_message(const uint8_t* one_at, const RecordView* one, const uint8_t* other_at,
                       const RecordView* other) noexcept nogil:
    cdef int32_t born_host, store_host
    if (one.body_crc != other.body_crc or one.body_length != other.body_length
            or one.born_time_ms != other.born_time_ms or one.flag != other.flag
            or one.sys_flag != other.sys_flag):
        return False
    born_host = HOST_V6_SIZE if one.sys_flag & SYS_FLAG_BORN_HOST_V6 else HOST_V4_SIZE
    store_host = HOST_V6_SIZE if one.sys_flag & SYS_FLAG_STORE_HOST_V6 else HOST_V4_SIZE
    if memcmp(one_at + RECORD_BORN_HOST, other_at + RECORD_BORN_HOST, born_host) != 0:
        return False
    if memcmp(one.body - RECORD_BODY_AFTER_HOSTS - store_host,      # store host, reconsume times
              other.body - RECORD_BODY_AFTER_HOSTS - store_host,
              store_host + RECORD_PREPARED_POSITION_AFTER_HOSTS) != 0:
        return False
    return (memcmp(one.body, other.body, one.body_length) == 0
            and same_properties(one, other))
