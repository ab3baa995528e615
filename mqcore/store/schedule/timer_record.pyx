"""Records of the timer topic (timer_record.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from mqcore.endian cimport store_i16, store_i32, store_i64
from mqcore.layout cimport (
    NAME_SEPARATOR,
    PROPERTIES_LENGTH_MAX,
    PROPERTY_SEPARATOR,
    RECORD_BODY_AFTER_HOSTS,
    RECORD_PREPARED_POSITION_AFTER_HOSTS,
    RECORD_QUEUE_ID,
    RECORD_SIZE,
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
from mqcore.store.schedule.levels cimport NOTE_HALF, NOTE_NO_PLACE
from mqcore.store.schedule.record cimport RealPlace
from mqcore.store.topic_names cimport TIMER_TOPIC, TIMER_TOPIC_LENGTH, is_half_topic, is_timer_topic
from mqcore.text cimport put_literal
from mqcore.wire.digits cimport put_number


cdef int64_t count_of(const PropertyItem* item) noexcept nogil:
    """A property's value as a number from 0 on; -1: it is none."""
    cdef int64_t value
    return value if property_number(item, &value) and value >= 0 else -1


cdef bint names_topic(const PropertyItem* recalled, const RealPlace* place) noexcept nogil:
    """Whether what is recalled is of that topic: topic+uniqueKey."""
    return (recalled.value_length > place.topic_length
            and memcmp(recalled.value, place.topic, place.topic_length) == 0
            and recalled.value[place.topic_length] == c'+')


cdef int timed_message(const RecordView* record, TimedMessage* message) noexcept nogil:
    cdef const uint8_t* at = record.properties
    cdef const uint8_t* end = record.properties + record.properties_length
    cdef int64_t deliver_ms = -1, out_ms = -1, queue_id = -1
    cdef PropertyItem item
    message.place.topic_length = 0
    message.rolled = 0
    message.recalled.value_length = message.unique.value_length = 0
    while property_next(&at, end, &item):
        if item_is(&item, "REAL_TOPIC"):
            message.place.topic = item.value
            message.place.topic_length = item.value_length
        elif item_is(&item, "REAL_QID"):
            queue_id = count_of(&item)
        elif item_is(&item, "TIMER_DELIVER_MS"):
            deliver_ms = count_of(&item)
        elif item_is(&item, "TIMER_OUT_MS"):
            out_ms = count_of(&item)
        elif item_is(&item, "TIMER_ROLL_TIMES"):
            message.rolled = max(count_of(&item), <int64_t>0)
        elif item_is(&item, "TIMER_DEL_UNIQKEY"):
            message.recalled = item
        elif item_is(&item, "UNIQ_KEY"):
            message.unique = item
    message.due_ms = deliver_ms
    if out_ms >= 0 and (message.recalled.value_length
                        or not out_ms < deliver_ms <= out_ms + TIMER_SECOND_MS):
        message.due_ms = out_ms + TIMER_SECOND_MS          # what stock delivers by
    if message.due_ms < 0 or queue_id != <int32_t>queue_id or queue_id < 0 or (
            not is_folder_name(message.place.topic, message.place.topic_length)):
        return NOTE_NO_PLACE
    message.place.queue_id = <int32_t>queue_id
    message.place.level = 0
    if message.recalled.value_length and not names_topic(&message.recalled, &message.place):
        return NOTE_NO_PLACE           # no recall reaches into another topic
    return NOTE_HALF if is_half_topic(message.place.topic, message.place.topic_length) else 0


cdef bint timed_is_made(const RecordView* made) noexcept nogil:
    cdef const uint8_t* at = made.properties
    cdef const uint8_t* end = made.properties + made.properties_length
    cdef bint rolls = is_timer_topic(made.topic, made.topic_length)
    cdef PropertyItem item
    while property_next(&at, end, &item):
        if item_is(&item, "TIMER_ROLL_TIMES") if rolls else item_is(&item, "TIMER_DEQUEUE_MS"):
            return True
    return False


cdef bint timed_is_made_from(const RecordView* made, const RecordView* record,
                             const TimedMessage* message) noexcept nogil:
    if not is_timer_topic(made.topic, made.topic_length) and (
            made.topic_length != message.place.topic_length
            or memcmp(made.topic, message.place.topic, made.topic_length) != 0):
        return False
    return (made.log_position != record.log_position and made.born_time_ms == record.born_time_ms
            and made.body_length == record.body_length and made.body_crc == record.body_crc
            and memcmp(made.body, record.body, made.body_length) == 0)


cdef bint timed_is_twin(const RecordView* one, const TimedMessage* message,
                        const RecordView* other, const TimedMessage* found) noexcept nogil:
    return (found.due_ms == message.due_ms and found.place.topic_length == message.place.topic_length
            and memcmp(found.place.topic, message.place.topic, message.place.topic_length) == 0
            and found.unique.value_length == message.unique.value_length
            and memcmp(found.unique.value, message.unique.value, message.unique.value_length) == 0
            and one.born_time_ms == other.born_time_ms and one.body_length == other.body_length
            and memcmp(one.body, other.body, one.body_length) == 0)


cdef bint goes(const PropertyItem* item, bint rolls) noexcept nogil:
    """Whether a record that is made from a timed one leaves a property out."""
    if rolls:
        return item_is(item, "TIMER_ROLL_TIMES")
    return (item_is(item, "REAL_TOPIC") or item_is(item, "REAL_QID") or item_is(item, "TIMER_OUT_MS")
            or item_is(item, "TIMER_ROLL_TIMES") or item_is(item, "TIMER_ENQUEUE_MS")
            or item_is(item, "TIMER_DEQUEUE_MS"))


cdef uint8_t* put_item(uint8_t* out, const PropertyItem* item) noexcept nogil:
    memcpy(out, item.key, item.key_length)
    out += item.key_length
    out[0] = NAME_SEPARATOR
    memcpy(out + 1, item.value, item.value_length)
    out += 1 + item.value_length
    out[0] = PROPERTY_SEPARATOR
    return out + 1


cdef int32_t write_kept(const RecordView* record, const TimedMessage* message, bint rolls,
                        int64_t indexed_ms, int64_t now_ms, uint8_t* into) noexcept nogil:
    cdef const uint8_t* at = record.properties
    cdef const uint8_t* end = record.properties + record.properties_length
    cdef uint8_t* out = into
    cdef PropertyItem item
    while property_next(&at, end, &item):
        if not goes(&item, rolls):
            out = put_item(out, &item)
    if rolls:
        out = put_literal(out, "TIMER_ROLL_TIMES\x01")
        out += put_number(out, message.rolled + 1)
    else:
        out = put_literal(out, "TIMER_ENQUEUE_MS\x01")
        out += put_number(out, indexed_ms)
        out = put_literal(out, "\x02TIMER_DEQUEUE_MS\x01")
        out += put_number(out, now_ms)
    return <int32_t>(out - into)


cdef int32_t timed_write(const uint8_t* at, const RecordView* record, const TimedMessage* message,
                         bint rolls, int64_t indexed_ms, int64_t now_ms, uint8_t* into,
                         int32_t* topic_start) noexcept nogil:
    cdef int32_t before = <int32_t>(record.topic - at), length, properties
    cdef const uint8_t* topic = <const uint8_t*>TIMER_TOPIC if rolls else message.place.topic
    cdef uint8_t* end_of_hosts
    cdef uint8_t* p = into + before
    length = TIMER_TOPIC_LENGTH if rolls else message.place.topic_length
    memcpy(into, at, before - 1)                      # up to and with the body: the CRC stays right
    record_place(into, 0, 0, now_ms)
    store_i32(into + RECORD_QUEUE_ID, 0 if rolls else message.place.queue_id)
    end_of_hosts = into + (record.body - at) - RECORD_BODY_AFTER_HOSTS
    store_i64(end_of_hosts + RECORD_PREPARED_POSITION_AFTER_HOSTS, record.log_position)
    (p - 1)[0] = <uint8_t>length
    memcpy(p, topic, length)
    p += length
    properties = write_kept(record, message, rolls, indexed_ms, now_ms, p + 2)
    if properties > PROPERTIES_LENGTH_MAX:            # the words of its wait go, the message's own stay
        properties = record.properties_length
        memcpy(p + 2, record.properties, properties)
    store_i16(p, <short>properties)
    p += 2 + properties
    topic_start[0] = before
    store_i32(into + RECORD_SIZE, <int32_t>(p - into))
    return <int32_t>(p - into)
