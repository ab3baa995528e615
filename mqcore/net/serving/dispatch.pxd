# RocketMQ's requests to those who serve them: sends, pulls and ends of transactions here, the rest the
# coordinator.
from libc.stdint cimport int32_t, uint8_t

from mqcore.net.remoting.access cimport AccessGuard
from mqcore.net.remoting.frames cimport Remoting, Request
from mqcore.net.serving.forward cimport Forwarding
from mqcore.net.serving.limits cimport Limits
from mqcore.net.serving.pull cimport Pulls
from mqcore.net.serving.send cimport Sends
from mqcore.net.serving.transaction cimport Ends
from mqcore.net.transport.transport cimport Connection

cdef struct Dispatch:
    Remoting* remoting
    Sends* sends
    Pulls* pulls
    Ends* ends
    Forwarding* forwarding
    Limits* limits
    AccessGuard* guard

# As Remoting has them. dispatch: a Dispatch*.
cdef bint holds(void* dispatch, Connection* c) noexcept nogil
cdef void refused(void* dispatch, Connection* c, const Request* request) noexcept nogil
cdef int serve(void* dispatch, Connection* c, Request* request) noexcept nogil
# A request that the coordinator gives back: it has been looked at, and may be run now.
cdef void redo_request(Dispatch* d, Connection* c, const uint8_t* header, int32_t header_length,
                       bint binary, const uint8_t* body, int32_t body_length) noexcept nogil
