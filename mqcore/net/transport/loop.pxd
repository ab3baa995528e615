# The epoll loop of a transport. A turn is: sleep, read what came, what the rooms above have of their
# own (rings), the stalled and the deferred ones, then all output, and then newcomers and handshakes:
#
#     count = transport_sleep(t, timeout_ms)
#     transport_read(t, count)
#     ...
#     transport_continue(t)
#     output_flush_all(t)
#     transport_end_turn(t)
from libc.stdint cimport int64_t

from mqcore.net.transport.transport cimport Transport

# Memory and the epoll descriptor; `bell` wakes it. connection_max and size_each are set. False: errno.
cdef bint transport_open(Transport* t, int bell, int64_t memory_bytes_max) noexcept nogil
# `kind`: of its connections. False: errno.
cdef bint transport_listen(Transport* t, int fd, int kind) noexcept nogil
cdef void transport_stop_listening(Transport* t) noexcept nogil
# Until something comes or the time is over: how many events there are. It does not sleep when
# something is to be looked at now.
cdef int transport_sleep(Transport* t, int timeout_ms) noexcept nogil
cdef void transport_read(Transport* t, int count) noexcept nogil
cdef void transport_continue(Transport* t) noexcept nogil                 # the stalled and the deferred ones
# work N20, tls TL3, and the doomed ones.
cdef void transport_end_turn(Transport* t) noexcept nogil
# memory N13, and once in a while who is idle; with each tick.
cdef void transport_tick(Transport* t) noexcept nogil
cdef void transport_close_all(Transport* t) noexcept nogil
