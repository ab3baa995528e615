# Commit log records: how one is read, written and checked (store.md 2, 8.1).
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct RecordView:            # pointers into the record that was parsed
    int32_t size
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int64_t queue_offset
    int64_t log_position
    int32_t sys_flag
    int64_t born_time_ms
    int64_t store_time_ms
    int64_t prepared_position
    const uint8_t* body
    int32_t body_length
    const uint8_t* topic
    int32_t topic_length
    const uint8_t* properties
    int32_t properties_length

cpdef enum ParseResult:
    PARSE_RECORD = 1               # a whole record of `size` bytes
    PARSE_BLANK = 2                # the rest of the segment is empty
    PARSE_BAD_MAGIC = -1
    PARSE_BAD_SIZE = -2            # the sizes do not fit each other, or what is there
    PARSE_BAD_CRC = -3
    PARSE_BAD_POSITION = -4        # the record says that it lies elsewhere
    PARSE_BAD_CHECKSUM = -5        # other bytes than those of which there is a checksum
    PARSE_NO_CHECKSUM = -6         # none, where each record of ours has one: it was never answered

cdef int record_parse(const uint8_t* at, int64_t available, RecordView* view) noexcept nogil
# With position and body CRC besides. Nothing else in a record says whether it is whole: whatever
# topic and properties hold, a client may have put there.
cdef int record_check(const uint8_t* at, int64_t available, int64_t position,
                      RecordView* view) noexcept nogil

cdef struct RecordHead:            # what serving knows when it encodes
    int32_t queue_id
    int32_t flag
    int32_t sys_flag               # the host bits are set here, from the two sizes
    int64_t born_time_ms
    const uint8_t* born_host       # address bytes in network order, then port i32
    int32_t born_host_size         # 8 or 20
    const uint8_t* store_host
    int32_t store_host_size
    int32_t reconsume_times
    int64_t prepared_position

# What a record says in its head, for another one that is made from it; points into the record.
cdef void record_head(const RecordView* view, const uint8_t* at, RecordHead* head) noexcept nogil
# Writes everything but size, properties and what only the writer knows; returns where the
# properties' length belongs.
cdef uint8_t* record_begin(uint8_t* at, const RecordHead* head, const uint8_t* body,
                           int32_t body_length, const uint8_t* topic,
                           int32_t topic_length) noexcept nogil
# Sends a record that was begun to another topic and queue, before its properties are written: body
# and CRC stay. `properties`: what record_begin returned for a topic of `topic_was` bytes.
cdef uint8_t* record_redirect(uint8_t* at, uint8_t* properties, int32_t topic_was,
                              const RecordHead* head, const uint8_t* topic,
                              int32_t topic_length) noexcept nogil
# With `length` property bytes behind `properties` + 2: closes the record, returns its size.
cdef int32_t record_end(uint8_t* at, uint8_t* properties, int32_t length) noexcept nogil
# When it was stored; before the writer has it: not earlier than, 0 mostly.
cdef int64_t record_store_time(const uint8_t* at) noexcept nogil
# The writer's three fields
cdef void record_place(uint8_t* at, int64_t queue_offset, int64_t log_position,
                       int64_t store_time_ms) noexcept nogil

# -- properties ------------------------------------------------------------------------------------
cdef struct PropertyItem:
    const uint8_t* key
    int32_t key_length
    const uint8_t* value
    int32_t value_length

# The next item that counts (store.md 2.5), or False; *at moves on.
cdef bint property_next(const uint8_t** at, const uint8_t* end, PropertyItem* item) noexcept nogil
# Its value as a decimal number, signed or not; False: it is none.
cdef bint property_number(const PropertyItem* item, int64_t* number) noexcept nogil
cdef int64_t tag_code(const uint8_t* tags, int32_t length) noexcept nogil        # store.md 3.2
cdef int32_t java_hash(const uint8_t* text, int32_t length, int32_t hash) noexcept nogil

cdef extern from "mq_text.h" nogil:
    # literal: a text in the code (text.pxd).
    bint item_is "mq_item_is"(const PropertyItem* item, const char* literal) noexcept
