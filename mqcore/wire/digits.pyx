"""Writes numbers and message ids as text."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.endian cimport I64_SIZE, store_i64


cdef int32_t put_number(uint8_t* at, int64_t value) noexcept nogil:
    cdef uint8_t digits[NUMBER_LENGTH_MAX]
    cdef int32_t count = 0, written = 0
    cdef uint64_t rest = <uint64_t>value
    if value < 0:
        at[0] = c'-'
        written = 1
        rest = 0 - rest
    while True:
        digits[count] = <uint8_t>(c'0' + rest % 10)
        count += 1
        rest //= 10
        if rest == 0:
            break
    while count > 0:
        count -= 1
        at[written] = digits[count]
        written += 1
    return written


cdef inline void put_hex(uint8_t* at, const uint8_t* bytes, int32_t length) noexcept nogil:
    cdef const char* digits = "0123456789ABCDEF"
    cdef int32_t i
    for i in range(length):
        at[2 * i] = digits[bytes[i] >> 4]
        at[2 * i + 1] = digits[bytes[i] & 15]


cdef void put_message_id(uint8_t* at, const uint8_t* host, int32_t host_size,
                         int64_t position) noexcept nogil:
    cdef uint8_t tail[I64_SIZE]
    store_i64(tail, position)
    put_hex(at, host, host_size)
    put_hex(at + 2 * host_size, tail, I64_SIZE)
