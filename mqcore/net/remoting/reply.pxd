# Builds one response straight in its connection's output, in either codec.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.text cimport Literal

cdef enum:
    VERSION = 409                     # of 4.9.8 (remoting.md 1.6)

cdef struct Reply:
    Connection* connection
    uint8_t* start
    uint8_t* at
    uint8_t* fields                    # binary: where their total length belongs
    bint binary
    bint any_field
    bint plain                         # without extFields
    int32_t opaque
    const char* remark
    int32_t remark_length

# False: no memory, nothing was begun. `room`: bytes for fields and body. remark: plain ASCII without
# quotes or backslashes, kept until reply_end.
cdef bint reply_begin(Transport* t, Connection* c, Reply* r, bint binary, int32_t opaque, int32_t code,
                      const char* remark, int64_t room) noexcept nogil
cdef void reply_text(Reply* r, Literal key, const uint8_t* value, int32_t length) noexcept nogil
cdef void reply_number(Reply* r, Literal key, int64_t value) noexcept nogil
# For a value that is written in place: room for `length` bytes of it.
cdef uint8_t* reply_value(Reply* r, Literal key, int32_t length) noexcept nogil
cdef uint8_t* reply_body(Reply* r, int32_t body_length) noexcept nogil    # ends the header
cdef void reply_end(Transport* t, Reply* r, int32_t body_length) noexcept nogil  # of the written body
# A response of code and remark alone.
cdef void reply_plain(Transport* t, Connection* c, bint binary, int32_t opaque, int32_t code,
                      const char* remark) noexcept nogil
