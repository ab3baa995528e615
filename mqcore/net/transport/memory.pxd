# The memory of all connections' buffers: one sum for the process (processes.connection_memory_bytes).
#
#   N11  Input and output buffers, and what the rooms above keep for connections (heartbeats, parked
#        requests), together never take more than `memory_max`. Nothing grows without memory_take.
#   N12  When the sum is reached, the connection is closed that has held most for the longest
#        without progress: bytes above its own share (`memory_share`, for each alike, and with TLS
#        what an idle connection takes) times the age of its unfinished frame, record or handshake,
#        or of its oldest unread answer. A connection with no more than a share is safe.
#   N13  While more than `memory_high` is taken, transport N2 begins at OUT_SHORT_BYTES for
#        everybody: who reads does not notice. Then one goes, too, that has not moved for STUCK_MS.
#   N21  Large buffers (LARGE_BYTES and more) of connections that end are given back RETURN_BYTES a
#        turn, and the rest of the last one: the kernel takes 100 us a MiB, and hundreds of
#        connections may end within a few turns. Until then they count (N11). A connection that
#        needs their room gets it at once, and no more than it needs.
#
# Who has to go is marked (`doomed`); its buffers count no more as its own, and it is closed at the end of the
# turn: nobody's connection ends while a request of it is being handled.
from libc.stdint cimport int32_t, int64_t

from mqcore.net.transport.transport cimport Connection, Transport

cdef void memory_open(Transport* t, int64_t bytes_max) noexcept nogil
# Room for `bytes` more of a connection's buffers; False: it has to go itself.
cdef bint memory_take(Transport* t, Connection* c, int64_t bytes) noexcept nogil
cdef void memory_give(Transport* t, Connection* c, int64_t bytes) noexcept nogil
# What the rooms above keep for connections beside their buffers, and give back (negative).
cdef void memory_count(Transport* t, int64_t bytes) noexcept nogil
# A buffer of a connection that ends or has to go; it was counted, and is not the connection's any more.
cdef void memory_return(Transport* t, void* buffer, int64_t bytes) noexcept nogil
cdef void memory_end_turn(Transport* t) noexcept nogil                   # N21
cdef void memory_look(Transport* t) noexcept nogil                       # N13, with each tick
# It is closed at the end of the turn; nothing more is done for it.
cdef void connection_doom(Transport* t, Connection* c, int reason, int64_t detail) noexcept nogil
