# Pulls: checked, looked up, filtered, answered from the mapped log; or held (held.pxd).
from libc.stdint cimport int32_t, int64_t

from mqcore.net.server cimport Connection, Server
from mqcore.wire.header cimport Header

# settled: the coordinator has looked at it. Handled.
cdef int handle_pull(Server* s, Connection* c, const Header* header, bint settled) noexcept nogil
