# The wire's end of a connection. These two calls are all that moves a peer's bytes, in the clear or by
# TLS; what a connection speaks is found out with the first read (tls TL1).
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.transport.transport cimport Connection, Transport

# Up to `room` bytes from the peer; their number (more than 0), or WireEnd; when it is WIRE_GONE,
# wire_reason says why.
cdef int64_t wire_read(Transport* t, Connection* c, uint8_t* into, int64_t room) noexcept nogil
# Up to `length` bytes (more than 0) to the peer; how many went, or WireEnd.
cdef int64_t wire_send(Transport* t, Connection* c, const uint8_t* data,
                       int64_t length) noexcept nogil
