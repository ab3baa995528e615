"""Reads half messages and writes what is made of them (half_message.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from mqcore.layout cimport NAME_SEPARATOR, PROPERTY_SEPARATOR
from mqcore.store.record cimport (
    PropertyItem,
    RecordHead,
    RecordView,
    item_is,
    property_next,
    property_number,
    record_head,
)
from mqcore.text cimport Literal, literal, literal_length
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX, put_number

cdef enum:
    SECONDS_MAX = 1000000000


cdef int64_t number_in(const PropertyItem* item, int64_t otherwise) noexcept nogil:
    cdef int64_t number
    return number if property_number(item, &number) else otherwise


cdef void read_notes(const RecordView* record, HalfNotes* notes) noexcept nogil:
    cdef const uint8_t* at = record.properties
    cdef const uint8_t* end = at + record.properties_length
    cdef PropertyItem item
    cdef int64_t seconds
    memset(notes, 0, sizeof(HalfNotes))
    notes.check_times = -1
    notes.immune_ms = NOT_SAID
    notes.original = NOT_SAID
    while property_next(&at, end, &item):
        if item_is(&item, "PGROUP"):
            notes.group = item
        elif item_is(&item, "REAL_TOPIC"):
            notes.real_topic = item
        elif item_is(&item, "REAL_QID"):
            notes.real_queue_id = number_in(&item, 0)
        elif item_is(&item, "UNIQ_KEY"):
            notes.unique_key = item
        elif item_is(&item, "TRANSACTION_CHECK_TIMES"):
            notes.check_times = max(<int64_t>0, number_in(&item, 0))
        elif item_is(&item, "CHECK_IMMUNITY_TIME_IN_SECONDS"):
            seconds = number_in(&item, -1)
            notes.immune_ms = seconds * 1000 if 0 <= seconds <= SECONDS_MAX else OWN_TIME
        elif item_is(&item, "TRAN_PREPARED_QUEUE_OFFSET"):
            notes.original = number_in(&item, NOT_SAID)


cdef uint8_t* put_property(uint8_t* out, uint8_t* start, Literal key, const uint8_t* value,
                           int32_t value_length) noexcept nogil:
    if out != start:
        out[0] = PROPERTY_SEPARATOR
        out += 1
    memcpy(out, key.text, key.length)
    out += key.length
    out[0] = NAME_SEPARATOR
    memcpy(out + 1, value, value_length)
    return out + 1 + value_length


cdef int32_t copy_properties(const RecordView* record, int64_t check_times, int64_t original,
                             uint8_t* into) noexcept nogil:
    """Its properties with the number of checks, and for an immune one with its first offset."""
    cdef const uint8_t* at = record.properties
    cdef const uint8_t* end = at + record.properties_length
    cdef uint8_t* out = into
    cdef uint8_t digits[NUMBER_LENGTH_MAX]
    cdef PropertyItem item
    while property_next(&at, end, &item):
        if item_is(&item, "TRANSACTION_CHECK_TIMES"):
            continue
        if original >= 0 and (item_is(&item, "TRAN_PREPARED_QUEUE_OFFSET")
                              or item_is(&item, "WAIT")):
            continue
        if out != into:
            out[0] = PROPERTY_SEPARATOR
            out += 1
        memcpy(out, item.key, item.value + item.value_length - item.key)
        out += item.value + item.value_length - item.key
    if check_times >= 0:
        out = put_property(out, into, literal("TRANSACTION_CHECK_TIMES"), digits,
                           put_number(digits, check_times))
    if original >= 0:                          # store.md 18.5: such a copy says WAIT=false
        out = put_property(out, into, literal("TRAN_PREPARED_QUEUE_OFFSET"), digits,
                           put_number(digits, original))
        out = put_property(out, into, literal("WAIT"), <const uint8_t*>"false",
                           literal_length("false"))
    return <int32_t>(out - into)


cdef void copy_head(const RecordView* record, const uint8_t* bytes, RecordHead* head) noexcept nogil:
    """Who made and stored it; flag and reconsume times are not copied (broker.md 5.6)."""
    record_head(record, bytes, head)
    head.flag = 0
    head.reconsume_times = 0
    head.prepared_position = 0
