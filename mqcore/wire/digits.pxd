# Numbers and ids as text, written in place; no NUL behind them.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    NUMBER_LENGTH_MAX = 20             # of an i64 with its sign

cdef int32_t put_number(uint8_t* at, int64_t value) noexcept nogil       # its length
# The id that a broker gives a message (remoting.md 4.1.1): the store host's bytes and the log
# position in hexadecimal, 2 * host_size + 16 bytes.
cdef void put_message_id(uint8_t* at, const uint8_t* host, int32_t host_size,
                         int64_t position) noexcept nogil
