# Answers of calls: messages, then trailers.
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.grpc.streams cimport Call, Session

# A message, without its prefix; last: OK ends the call.
cdef void call_say(Call* call, const uint8_t* message, int64_t length, bint last) noexcept nogil
cdef void call_end(Call* call, int status, const char* text) noexcept nogil
# The session has frames for the transport (door_pump).
cdef void session_pends(Session* s) noexcept nogil
