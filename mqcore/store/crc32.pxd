# CRC-32 of a record's body (store.md 2.4): zlib's polynomial, lower 31 bits, 0 for an empty body.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef int32_t body_crc(const uint8_t* body, int32_t length) noexcept nogil
# CRC-32C of a whole record, for the entry beside the log (store/log/checksums.pxd)
cdef uint32_t record_crc(const uint8_t* record, int64_t length) noexcept nogil
