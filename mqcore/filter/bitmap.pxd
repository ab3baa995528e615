# Bit maps of consume queue extension units (store.md 3.6): bit i is in byte i / 8, mask 1 << i % 8.
from libc.stdint cimport int32_t, uint8_t


# Positions must be below 8 * the size of the map; BloomFilter gives such ones for maps of its size.
cdef inline void bitmap_set(uint8_t* bits, const int32_t* positions, int32_t count) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        bits[positions[i] >> 3] |= <uint8_t>(1 << (positions[i] & 7))


cdef inline bint bitmap_has(const uint8_t* bits, const int32_t* positions,
                            int32_t count) noexcept nogil:
    """Whether all positions are set; true for no positions."""
    cdef int32_t i
    for i in range(count):
        if not bits[positions[i] >> 3] >> (positions[i] & 7) & 1:
            return False
    return True
