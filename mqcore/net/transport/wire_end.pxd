# The wire's end of a connection. These two calls are all that moves a peer's bytes: a TLS layer takes
# their places, and nothing else changes.
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.transport.transport cimport Connection

cdef enum WireEnd:
    WIRE_LATER = -1                    # nothing now: epoll tells when
    WIRE_GONE = -2                     # the peer is gone, or the connection has failed

# Up to `room` bytes from the peer; their number (more than 0), or WireEnd.
cdef int64_t wire_read(Connection* c, uint8_t* into, int64_t room) noexcept nogil
# Up to `length` bytes (more than 0) to the peer; how many went, or WireEnd.
cdef int64_t wire_send(Connection* c, const uint8_t* data, int64_t length) noexcept nogil
