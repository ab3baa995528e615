# Pulls: looked up, filtered by tag code, answered from the mapped log, or held until messages come.
#
#   H1  A held pull is in the list of its queue (or of the unborn ones) and counts in `interest`.
#   H2  After it is listed, the queue's end is looked at once more (dispatch.pxd, D3).
#   H3  A held pull whose connection is gone, or whose time is over, leaves at the next tick.
from libc.stdint cimport int32_t, int64_t

from mqcore.net.server cimport Connection, Server
from mqcore.wire.header cimport Header

# settled: the coordinator has looked at it. Handled.
cdef int handle_pull(Server* s, Connection* c, const Header* header, bint settled) noexcept nogil
cdef void take_arrivals(Server* s) noexcept nogil
cdef void look_at_held(Server* s, bint everything) noexcept nogil    # deadlines; or all of them
cdef void held_init(Server* s) noexcept nogil
