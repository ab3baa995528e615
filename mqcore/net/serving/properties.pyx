"""Writes the stored form of a send's properties (properties.pxd has its rules)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcpy, memmove

from mqcore.store.record cimport PropertyItem, item_is
from mqcore.wire.digits cimport put_number
from mqcore.wire.header cimport Text, text_copy, text_i64, text_is_true

cdef const char* REAL_TOPIC_KEY = "REAL_TOPIC\x01"
cdef const char* REAL_QUEUE_KEY = "REAL_QID\x01"

cdef enum:
    REAL_TOPIC_KEY_SIZE = 11
    REAL_QUEUE_KEY_SIZE = 9


cdef enum Keep:
    KEEP = 0
    DROP = 1
    LOWER = 2                          # DELAY, to the highest level
    ASK = 3


cdef int look_at(int32_t delay_level_count, const PropertyItem* item, int detour,
                 PropertyNotes* notes) noexcept nogil:
    """What becomes of one property: Keep."""
    cdef Text text
    cdef int64_t number
    text.start = item.value
    text.length = item.value_length
    text.escaped = False
    if item_is(item, "WAIT", 4):
        notes.waits = not (item.value_length == 5 and (item.value[0] | 32) == 102)
        return DROP if detour == DETOUR_NONE else KEEP
    if item_is(item, "CLUSTER", 7):
        return DROP
    if item_is(item, "TRAN_MSG", 8):
        notes.half = text_is_true(&text)
        return KEEP
    if item_is(item, "DELAY", 5):
        if not text_i64(&text, &number) or number != <int32_t>number:
            return ASK
        notes.delay_level = <int32_t>number
        if detour == DETOUR_HALF:
            return DROP
        return LOWER if detour == DETOUR_DELAY and number > delay_level_count else KEEP
    if detour != DETOUR_NONE and (item_is(item, "REAL_TOPIC", 10) or item_is(item, "REAL_QID", 8)):
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
    if properties.length > 0:
        length = text_copy(properties, into, capacity - identity.cluster_property_length - 1)
        if length < 0:
            return PROPERTIES_BAD
    end = into + length
    while at < end:
        stop = <const uint8_t*>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        separator = <const uint8_t*>memchr(at, 1, stop - at)
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
            out[0] = 2
            out += 1
        if keep == LOWER:              # never longer than what the higher level took
            memmove(out, at, 6)
            out += 6
            out += put_number(out, delay_level_count)
        else:
            if out != at:
                memmove(out, at, stop - at)
            out += stop - at
        at = stop + 1
    if out != into:
        out[0] = 2
        out += 1
    memcpy(out, identity.cluster_property, identity.cluster_property_length)
    return <int32_t>(out - into) + identity.cluster_property_length


cdef int32_t add_real_place(uint8_t* properties, int32_t length, const uint8_t* topic,
                            int32_t topic_length, int32_t queue_id) noexcept nogil:
    cdef uint8_t* out = properties + length
    out[0] = 2
    memcpy(out + 1, REAL_TOPIC_KEY, REAL_TOPIC_KEY_SIZE)
    out += 1 + REAL_TOPIC_KEY_SIZE
    memcpy(out, topic, topic_length)
    out += topic_length
    out[0] = 2
    memcpy(out + 1, REAL_QUEUE_KEY, REAL_QUEUE_KEY_SIZE)
    out += 1 + REAL_QUEUE_KEY_SIZE
    out += put_number(out, queue_id)
    return <int32_t>(out - properties)
