# A connection's output: answers are written straight into its buffer, and sent once a turn.
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.transport.transport cimport Connection, Transport

# Where `size` bytes can be written; NULL: no memory.
cdef uint8_t* output_room(Transport* t, Connection* c, int64_t size) noexcept nogil
cdef void output_used(Transport* t, Connection* c, int64_t size) noexcept nogil
# Sends what waits; may find that its peer is gone (transport N8), and may handle what was held back
# (transport N2).
cdef void output_flush(Transport* t, Connection* c) noexcept nogil
cdef void output_flush_all(Transport* t) noexcept nogil                # of everybody dirty
