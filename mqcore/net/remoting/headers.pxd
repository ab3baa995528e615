# What a header says (remoting.md 4.1, 4.2.1, 4.3), in the words of mqcore/net/requests.pxd.
from libc.stdint cimport int32_t

from mqcore.net.remoting.frames cimport Request
from mqcore.net.requests cimport Asker, EndRequest, PullRequest, SendRequest
from mqcore.wire.codes cimport (
    REQUEST_BATCH_ACK_MESSAGE,
    REQUEST_GET_POP_STATE,
    REQUEST_LITE_PULL_MESSAGE,
    REQUEST_POLLING_INFO,
    REQUEST_POP_MESSAGE,
    REQUEST_PULL_MESSAGE,
    REQUEST_SEND_BATCH_MESSAGE,
    REQUEST_SEND_MESSAGE,
    REQUEST_SEND_MESSAGE_V2,
)
from mqcore.wire.header cimport Header

cdef enum:                             # sysFlag bits of a pull (remoting.md 4.2.1)
    PULL_COMMITS = 1
    PULL_SUSPENDS = 2
    PULL_HAS_SUBSCRIPTION = 4
    PULL_REPLAYS = 1 << 30             # of ours


cdef inline bint is_send(int32_t code) noexcept nogil:
    return (code == REQUEST_SEND_MESSAGE or code == REQUEST_SEND_MESSAGE_V2
            or code == REQUEST_SEND_BATCH_MESSAGE)


cdef inline bint is_pull(int32_t code) noexcept nogil:
    return code == REQUEST_PULL_MESSAGE or code == REQUEST_LITE_PULL_MESSAGE


cdef inline bint is_pop(int32_t code) noexcept nogil:
    """Whether the process that has the state of POP serves it, where there is one."""
    return (REQUEST_POP_MESSAGE <= code <= REQUEST_POLLING_INFO
            or code == REQUEST_BATCH_ACK_MESSAGE or code == REQUEST_GET_POP_STATE)


cdef void read_asker(const Header* header, Asker* asker) noexcept nogil
# False: a field is missing, or is not what it should be; the coordinator names it. What they fill
# points into the frame. The born host is the caller's.
cdef bint read_send(const Request* request, SendRequest* send) noexcept nogil
cdef bint read_pull(const Request* request, PullRequest* pull) noexcept nogil
cdef bint read_end(const Request* request, EndRequest* end) noexcept nogil
