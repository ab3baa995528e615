# Half of the room that the others leave: the rule for places and bytes that peers take and keep.
#
#   HR1  A peer may have at most half of `room`: of the whole without what all others have. So the next
#        peer finds as much, and no peer has everything. A peer keeps what it has.
#
# own: what the peer would have then. mqcore/turns.py says the same to Python: one comparison is not
# worth a module that each process would have to load.
from libc.stdint cimport int64_t

cdef inline bint within_half(int64_t own, int64_t room) noexcept nogil:
    return 2 * own <= room
