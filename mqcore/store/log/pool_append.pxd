# What the appender does where the commit thread writes (transient_pool.pxd has the rules).
from libc.stdint cimport int64_t

from mqcore.layout cimport BLANK_SIZE_MIN
from mqcore.store.log.appender cimport Appender

cdef inline bint fits_segment(Appender* a, int64_t size) noexcept nogil:
    return (a.base >= 0 and
            a.position + a.staged + size + BLANK_SIZE_MIN <= a.base + a.segment_size)

# The blank record and the next segment (append.pxd, A3), after has_pool_room
cdef bint roll_in_pool(Appender* a) noexcept nogil
# Whether a request of `size` bytes fits the pool, with the end of a segment that it may need
cdef bint has_pool_room(Appender* a, int64_t size) noexcept nogil
# Without room requests stay in their rings for a while before they are refused
cdef bint pool_keeps_waiting(Appender* a) noexcept nogil
