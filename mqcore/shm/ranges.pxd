# Which parts of the segment are allocated when, (start, end) each.
from libc.stdint cimport int64_t

from mqcore.layout cimport ShmHead, TraceRing

# The writer, the dispatcher, and each serving process have one
cdef inline int64_t trace_rings_size(int serving_count) noexcept nogil:
    return (2 + serving_count) * <int64_t>sizeof(TraceRing)

cdef list growing(const ShmHead* head)         # as they fill (reserve.pxd), in the order of their places
cdef list not_growing(const ShmHead* head)     # at the start: all that lies between those
