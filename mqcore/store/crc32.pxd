# CRC-32 of a record's body (store.md 2.4): zlib's polynomial, lower 31 bits, 0 for an empty body.
from libc.stdint cimport int32_t, uint8_t

cdef int32_t body_crc(const uint8_t* body, int32_t length) noexcept nogil
