# Large buffers on their way back to the system (memory N21).
#
# The pages go first, and the address range is freed after: when the C library then gives the end of its
# heap back by itself, nothing is left in it that would take time. Buffers of connections that live
# are freed with their pages, which the next answer writes to.
from libc.stdint cimport int64_t

cdef enum:
    LARGE_BYTES = 128 << 10
    RETURN_BYTES = 2 << 20             # and what one buffer has beyond it

cdef struct Waiting:                   # in the buffer's own first bytes
    Waiting* next
    int64_t bytes

cdef struct Returned:
    Waiting* first
    int64_t bytes                      # of all that wait

# Takes a buffer of `bytes` that nobody uses any more; True: it waits, False: it was freed. NULL: nothing.
cdef bint returned_add(Returned* r, void* buffer, int64_t bytes) noexcept nogil
# Gives back until `wanted` bytes are reached, or nothing waits; how many were.
cdef int64_t returned_give(Returned* r, int64_t wanted) noexcept nogil
