# Connections: made, watched, closed.
from libc.stdint cimport int32_t, int64_t

from mqcore.net.transport.transport cimport Connection, Transport

# watched: epoll tells what it says first; else connection_watch is called. NULL: no room.
cdef Connection* connection_add(Transport* t, int fd, int32_t kind, bint watched) noexcept nogil
# One without a socket: what is said to it is taken from its output by its maker, before the turn's
# output is sent. It never ends by itself. NULL: no room.
cdef Connection* connection_within(Transport* t, int32_t kind) noexcept nogil
cdef void connection_close(Transport* t, Connection* c, int reason, int64_t detail) noexcept nogil
# Tells epoll what is waited for.
cdef void connection_watch(Transport* t, Connection* c) noexcept nogil
cdef void connection_admit(Transport* t, Connection* c) noexcept nogil              # work N20
# transport N3. state: INPUT_STALLED or INPUT_WAITS.
cdef void connection_stall(Transport* t, Connection* c, int state) noexcept nogil
cdef void connection_hang_up(Transport* t, Connection* c) noexcept nogil             # transport N8
# transport N8. All that its peer sent is handled, but what it is `owed`; nobody looks at it until
# that is done.
cdef void connection_wait_for_above(Transport* t, Connection* c) noexcept nogil
cdef void connection_owes_less(Transport* t, Connection* c) noexcept nogil           # one request less
