"""Writes the stored form of a send's properties (properties.pxd has its rules)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcpy, memmove

from mqcore.layout cimport NAME_SEPARATOR, PROPERTY_SEPARATOR
from mqcore.store.record cimport PropertyItem, item_is, property_next, property_number
from mqcore.text cimport SMALL_LETTER, literal_length, put_literal
from mqcore.wire.digits cimport put_number
from mqcore.wire.header cimport Text, text_copy, text_i64, text_is_true


cdef enum Keep:
    KEEP = 0
    DROP = 1
    LOWER = 2                          # DELAY, to the highest level
    ASK = 3


cdef enum:
    SECOND_MS = 1000

cdef int64_t TIME_FAR_MS = <int64_t>1 << 62     # beyond every time that a broker takes


cdef inline bint is_time(const PropertyItem* item) noexcept nogil:
    return (item_is(item, "TIMER_DELAY_SEC") or item_is(item, "TIMER_DELAY_MS")
            or item_is(item, "TIMER_DELIVER_MS"))


cdef bint asks_for_time(const uint8_t* properties, int32_t length) noexcept nogil:
    cdef const uint8_t* at = properties
    cdef PropertyItem item
    while property_next(&at, properties + length, &item):
        if is_time(&item):
            return True
    return False


cdef void time_begin(AskedTime* time) noexcept nogil:
    time.delay_s = time.delay_ms = time.deliver_ms = -1
    time.wrong = False


cdef bint time_asked(AskedTime* time, const PropertyItem* item) noexcept nogil:
    cdef int64_t number
    if not is_time(item):
        return False
    if not property_number(item, &number):
        time.wrong = True
        return True
    number = max(number, <int64_t>0)
    if item_is(item, "TIMER_DELAY_SEC"):
        time.delay_s = number
    elif item_is(item, "TIMER_DELAY_MS"):
        time.delay_ms = number
    else:
        time.deliver_ms = number
    return True


cdef int64_t time_due(const AskedTime* time, int64_t store_ms) noexcept nogil:
    cdef int64_t due_ms = time.deliver_ms
    if time.wrong:
        return -1
    if time.delay_s >= 0:
        due_ms = TIME_FAR_MS if time.delay_s > TIME_FAR_MS // SECOND_MS - store_ms else (
            store_ms + time.delay_s * SECOND_MS)
    elif time.delay_ms >= 0:
        due_ms = TIME_FAR_MS if time.delay_ms > TIME_FAR_MS - store_ms else store_ms + time.delay_ms
    return due_ms if due_ms > store_ms else 0


cdef int32_t add_time(uint8_t* properties, int32_t length, int64_t due_ms) noexcept nogil:
    cdef uint8_t* out = properties + length
    out = put_literal(out, "\x02TIMER_DELIVER_MS\x01")
    out += put_number(out, due_ms)
    out = put_literal(out, "\x02TIMER_OUT_MS\x01")
    out += put_number(out, (due_ms - 1) // SECOND_MS * SECOND_MS)
    return <int32_t>(out - properties)


cdef bint is_timers_own(const PropertyItem* item) noexcept nogil:
    """Properties that only the broker may give to a message that waits (timer.md 1)."""
    return (item_is(item, "TIMER_OUT_MS") or item_is(item, "TIMER_DEL_UNIQKEY")
            or item_is(item, "TIMER_ROLL_TIMES") or item_is(item, "TIMER_ENQUEUE_MS")
            or item_is(item, "TIMER_DEQUEUE_MS"))


cdef int look_at(int32_t delay_level_count, const PropertyItem* item, int detour,
                 PropertyNotes* notes) noexcept nogil:
    """What becomes of one property: Keep."""
    cdef Text text
    cdef int64_t number
    text.start = item.value
    text.length = item.value_length
    text.escaped = False
    if item_is(item, "WAIT"):
        notes.waits = not (item.value_length == literal_length("false")
                          and (item.value[0] | SMALL_LETTER) == c'f')
        return DROP if detour == DETOUR_NONE else KEEP
    if item_is(item, "CLUSTER"):
        return DROP
    if item_is(item, "TRAN_MSG"):
        notes.half = text_is_true(&text)
        return KEEP
    if item_is(item, "DELAY"):
        if not text_i64(&text, &number) or number != <int32_t>number:
            return ASK
        notes.delay_level = <int32_t>number
        if detour == DETOUR_HALF:
            return DROP
        return LOWER if detour == DETOUR_DELAY and number > delay_level_count else KEEP
    if time_asked(&notes.time, item):
        notes.timed = True
        return DROP if detour == DETOUR_TIMER and item_is(item, "TIMER_DELIVER_MS") else KEEP
    if (detour == DETOUR_HALF or detour == DETOUR_TIMER) and is_timers_own(item):
        return DROP
    if detour == DETOUR_HALF and (item_is(item, "TRAN_PREPARED_QUEUE_OFFSET")
                                  or item_is(item, "TRANSACTION_CHECK_TIMES")):
        return DROP                    # the transaction check's own words
    if detour == DETOUR_TIMER and item_is(item, "UNIQ_KEY"):
        notes.unique = item[0]
        return KEEP
    if detour != DETOUR_NONE and (item_is(item, "REAL_TOPIC") or item_is(item, "REAL_QID")):
        return DROP
    return KEEP


cdef int32_t write_properties(const Identity* identity, int32_t delay_level_count,
                              const Text* properties, uint8_t* into, int32_t capacity, int detour,
                              PropertyNotes* notes) noexcept nogil:
    cdef PropertyItem item
    cdef const uint8_t* at = into
    cdef const uint8_t* end
    cdef const uint8_t* stop
    cdef const uint8_t* separator
    cdef uint8_t* out = into
    cdef int32_t length = 0
    cdef int keep
    notes.waits = True
    notes.half = False
    notes.delay_level = 0
    notes.timed = False
    notes.unique.value_length = 0
    time_begin(&notes.time)
    if properties.length > 0:
        length = text_copy(properties, into, capacity - identity.cluster_property_length - 1)
        if length < 0:
            return PROPERTIES_BAD
    end = into + length
    while at < end:
        stop = <const uint8_t*>memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        separator = <const uint8_t*>memchr(at, NAME_SEPARATOR, stop - at)
        if separator == NULL or separator == at or separator + 1 == stop:
            at = stop + 1
            continue
        item.key = at
        item.key_length = <int32_t>(separator - at)
        item.value = separator + 1
        item.value_length = <int32_t>(stop - separator - 1)
        keep = look_at(delay_level_count, &item, detour, notes)
        if keep == ASK:
            return PROPERTIES_ASK
        if keep == DROP:
            at = stop + 1
            continue
        if out != into:
            out[0] = PROPERTY_SEPARATOR
            out += 1
        if keep == LOWER:              # never longer than what the higher level took
            out = put_literal(out, "DELAY\x01")
            out += put_number(out, delay_level_count)
        else:
            if out != at:
                memmove(out, at, stop - at)
                if notes.unique.value_length and notes.unique.key == at:
                    notes.unique.value -= at - out
            out += stop - at
        at = stop + 1
    if out != into:
        out[0] = PROPERTY_SEPARATOR
        out += 1
    memcpy(out, identity.cluster_property, identity.cluster_property_length)
    return <int32_t>(out - into) + identity.cluster_property_length


cdef int32_t add_real_place(uint8_t* properties, int32_t length, const uint8_t* topic,
                            int32_t topic_length, int32_t queue_id) noexcept nogil:
    cdef uint8_t* out = properties + length
    out = put_literal(out, "\x02REAL_TOPIC\x01")
    memcpy(out, topic, topic_length)
    out += topic_length
    out = put_literal(out, "\x02REAL_QID\x01")
    out += put_number(out, queue_id)
    return <int32_t>(out - properties)
