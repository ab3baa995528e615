# RocketMQ's requests to those who serve them: sends, pulls and ends of transactions here, the rest the
# coordinator. Other fronts have the same two behind the same rules.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.remoting.access cimport AccessGuard
from mqcore.net.remoting.command cimport Command
from mqcore.net.remoting.frames cimport Remoting, Request
from mqcore.net.requests cimport EndRequest, PullRequest, SendRequest
from mqcore.net.serving.forward cimport Forwarding
from mqcore.net.serving.limits cimport Limits
from mqcore.net.serving.pops cimport PopDoor
from mqcore.net.serving.pull cimport Pulls
from mqcore.net.serving.send cimport Sends
from mqcore.net.serving.transaction cimport Ends
from mqcore.net.transport.transport cimport Connection

cdef struct RequestHandler:
    Remoting* remoting
    Sends* sends
    Pulls* pulls
    Ends* ends
    Forwarding* forwarding
    PopDoor* pops
    Limits* limits
    AccessGuard* guard

# As Remoting has them. handler: a RequestHandler*.
cdef bint holds_back(void* handler, Connection* c) noexcept nogil
cdef void refused(void* handler, Connection* c, const Request* request) noexcept nogil
cdef int serve(void* handler, Connection* c, Request* request) noexcept nogil
# A request that the coordinator gives back: it has been looked at, and may be run now.
cdef void redo_request(RequestHandler* h, Connection* c, const uint8_t* header, int32_t header_length,
                       bint binary, const uint8_t* body, int32_t body_length) noexcept nogil

# What another front asks for, in no protocol's words, under the limits of its address. What the
# coordinator has to decide goes there as the command that says the same, and waits here as
# RocketMQ's own does: topics and groups are made, offsets out of range settled, sends keep their
# order (send N7). passed: access control lets it pass, or is off; else the coordinator judges it (access
# AR3).
# send, pull: one of them, the other one NULL; bytes: that were read for it. Handled.
cdef int front_ask(RequestHandler* h, Connection* c, const SendRequest* send, const PullRequest* pull,
                   int64_t bytes, bint passed) noexcept nogil
# An end of a transaction that commits or rolls back. HANDLE_DENIED: its account may not.
cdef int front_end(RequestHandler* h, Connection* c, const EndRequest* end,
                   int64_t bytes) noexcept nogil
# A request of another front that access control has refused counts for its address (limits N17). sends: it is
# a send.
cdef void front_refused(RequestHandler* h, Connection* c, int64_t bytes, bint sends) noexcept nogil
# Anything else that the coordinator knows (HACKING.md, "Request codes"): a command without its end,
# which is closed here. Its answer is said by Front.say_frame.
cdef int front_command(RequestHandler* h, Connection* c, Command* command, const uint8_t* body,
                       int32_t length, int64_t bytes, bint passed) noexcept nogil
