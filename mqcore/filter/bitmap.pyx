"""The native bit map helpers for Python callers, with checked positions."""
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    COUNT_MAX = 64

POSITIONS_MAX = COUNT_MAX


cdef int32_t read_positions(positions, int64_t bit_count, int32_t* into) except -1:
    cdef int32_t count = 0
    for position in positions:
        if count == COUNT_MAX:
            raise ValueError(f"positions: expected at most {COUNT_MAX}")
        if not 0 <= position < bit_count:
            raise ValueError(f"position {position}: expected 0 to {bit_count - 1}")
        into[count] = position
        count += 1
    return count


def set_positions(uint8_t[::1] bits, positions) -> None:
    """Sets the bits at `positions`; ValueError for one beyond the map."""
    cdef int32_t[COUNT_MAX] places
    cdef int32_t count = read_positions(positions, 8 * bits.shape[0], places)
    if count:
        bitmap_set(&bits[0], places, count)


def has_positions(const uint8_t[::1] bits, positions) -> bool:
    """Whether all bits at `positions` are set; ValueError for one beyond the map."""
    cdef int32_t[COUNT_MAX] places
    cdef int32_t count = read_positions(positions, 8 * bits.shape[0], places)
    return count == 0 or bitmap_has(&bits[0], places, count)
