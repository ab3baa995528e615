# What a frame is and who serves it: sends and pulls here, the rest the coordinator.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.server cimport Connection, Server

# One frame without its length word; Handled.
cdef int handle_frame(Server* s, Connection* c, const uint8_t* frame, int32_t length) noexcept nogil
# A request that the coordinator gives back: it has been looked at, and may be run now.
cdef void redo_request(Server* s, Connection* c, const uint8_t* header, int32_t header_length,
                       bint binary, const uint8_t* body, int32_t body_length) noexcept nogil
# All whole frames that a connection has; what is left stays in its input.
cdef void handle_input(Server* s, Connection* c, uint8_t* data, int64_t length) noexcept nogil
