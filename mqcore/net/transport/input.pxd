# A connection's input: read from its wire, handed up, and what is left of it kept.
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.transport.transport cimport Connection, Transport

# One read, and all whole frames of it as far as work N9 lets it; 0: nothing came.
cdef int64_t read_some(Transport* t, Connection* c) noexcept nogil
# What was left, once more: that of a peer that went up to its end (transport N8).
cdef void handle_again(Transport* t, Connection* c) noexcept nogil
