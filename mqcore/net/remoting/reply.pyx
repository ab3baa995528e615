"""Builds responses (remoting.md 1.2, 1.3)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, strlen

from mqcore.endian cimport store_i16, store_i32
from mqcore.invariants cimport invariant
from mqcore.layout cimport (
    BINARY_CODE,
    BINARY_FLAG,
    BINARY_LANGUAGE,
    BINARY_OPAQUE,
    BINARY_REMARK,
    BINARY_REMARK_LENGTH,
    BINARY_VERSION,
    FRAME_CODEC_SHIFT,
    FRAME_HEADER,
    FRAME_HEADER_WORD,
    FRAME_LENGTH_SIZE,
)
from mqcore.net.transport.output cimport output_room, output_used
from mqcore.text cimport literal_length, put_literal
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX, put_number

cdef extern from *:
    """
    #define MQ_FIELDS_BEGIN ",\\"extFields\\":{"
    """
    const char* FIELDS_BEGIN "MQ_FIELDS_BEGIN"

cdef enum:
    FIXED_ROOM = 256                  # everything of a header but remark and fields


cdef inline uint8_t* put(uint8_t* at, const char* text, int32_t length) noexcept nogil:
    memcpy(at, text, length)
    return at + length


cdef bint reply_begin(Transport* t, Connection* c, Reply* r, bint binary, int32_t opaque, int32_t code,
                      const char* remark, int64_t room) noexcept nogil:
    r.remark = remark
    r.remark_length = <int32_t>strlen(remark) if remark != NULL else 0
    r.start = output_room(t, c, FIXED_ROOM + r.remark_length + room)
    if r.start == NULL:
        return False
    r.connection = c
    r.binary = binary
    r.opaque = opaque
    r.any_field = False
    r.plain = False
    r.at = r.start + FRAME_HEADER
    if binary:
        store_i16(r.at + BINARY_CODE, code)
        r.at[BINARY_LANGUAGE] = 0                                # JAVA
        store_i16(r.at + BINARY_VERSION, VERSION)
        store_i32(r.at + BINARY_OPAQUE, opaque)
        store_i32(r.at + BINARY_FLAG, 1)                         # a response
        store_i32(r.at + BINARY_REMARK_LENGTH, r.remark_length)
        r.at += BINARY_REMARK
        if r.remark_length:
            r.at = put(r.at, remark, r.remark_length)
        r.fields = r.at
        r.at += 4
    else:
        r.at = put_literal(r.at, '{"code":')
        r.at += put_number(r.at, code)
        r.at = put_literal(r.at, FIELDS_BEGIN)
    return True


cdef uint8_t* reply_value(Reply* r, Literal key, int32_t length) noexcept nogil:
    cdef uint8_t* value
    if r.binary:
        store_i16(r.at, key.length)
        r.at = put(r.at + 2, key.text, key.length)
        store_i32(r.at, length)
        value = r.at + 4
        r.at = value + length
        return value
    r.at = put_literal(r.at, ',"') if r.any_field else put_literal(r.at, '"')
    r.any_field = True
    r.at = put(r.at, key.text, key.length)
    value = put_literal(r.at, '":"')
    value[length] = c'"'
    r.at = value + length + 1
    return value


cdef void reply_text(Reply* r, Literal key, const uint8_t* value, int32_t length) noexcept nogil:
    memcpy(reply_value(r, key, length), value, length)


cdef void reply_number(Reply* r, Literal key, int64_t value) noexcept nogil:
    cdef uint8_t digits[NUMBER_LENGTH_MAX]
    cdef int32_t length = put_number(digits, value)
    reply_text(r, key, digits, length)


cdef uint8_t* reply_body(Reply* r, int32_t body_length) noexcept nogil:
    cdef int64_t header_length
    if r.binary:
        store_i32(r.fields, <int32_t>(r.at - r.fields - 4))
    else:
        if r.plain:
            r.at -= literal_length(FIELDS_BEGIN)
        else:
            r.at = put_literal(r.at, '}')
        r.at = put_literal(r.at, ',"flag":1,"language":"JAVA","opaque":')
        r.at += put_number(r.at, r.opaque)
        if r.remark_length:
            r.at = put_literal(r.at, ',"remark":"')
            r.at = put(r.at, r.remark, r.remark_length)
            r.at = put_literal(r.at, '"')
        r.at = put_literal(r.at, ',"serializeTypeCurrentRPC":"JSON","version":409}')
    header_length = r.at - r.start - FRAME_HEADER
    store_i32(r.start, <int32_t>(FRAME_HEADER_WORD + header_length + body_length))
    store_i32(r.start + FRAME_LENGTH_SIZE, <int32_t>(header_length | (1 << FRAME_CODEC_SHIFT if r.binary else 0)))
    return r.at


cdef void reply_end(Transport* t, Reply* r, int32_t body_length) noexcept nogil:
    invariant("nobody else wrote in between",
              r.start == r.connection.output + r.connection.output_end)
    invariant("reply's room",
              r.at + body_length <= r.connection.output + r.connection.output_capacity)
    output_used(t, r.connection, r.at + body_length - r.start)


cdef void reply_plain(Transport* t, Connection* c, bint binary, int32_t opaque, int32_t code,
                      const char* remark) noexcept nogil:
    cdef Reply r
    if reply_begin(t, c, &r, binary, opaque, code, remark, 0):
        r.plain = True                 # 4.9.8 has no extFields where a code has no header
        reply_body(&r, 0)
        reply_end(t, &r, 0)
