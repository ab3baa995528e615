# Sends: checked, encoded as records into the `appends` ring, answered when their results come.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.server cimport Connection, Server
from mqcore.wire.header cimport Header

# settled: the coordinator has looked at it. Handled.
cdef int handle_send(Server* s, Connection* c, const Header* header, const uint8_t* body,
                     int32_t body_length, bint settled) noexcept nogil
# Response code and remark of a PutStatus (broker.md 2.4); counts refusals.
cdef int32_t put_code(Server* s, int32_t status, const char** remark) noexcept nogil
cdef void take_results(Server* s) noexcept nogil
