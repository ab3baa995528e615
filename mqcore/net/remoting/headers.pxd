# What a header says (remoting.md 4.1, 4.2.1, 4.3), in the words of mqcore/net/requests.pxd.
from libc.stdint cimport int32_t

from mqcore.net.remoting.frames cimport Request
from mqcore.net.requests cimport EndRequest, PullRequest, SendRequest
from mqcore.wire.header cimport CODE_LITE_PULL, CODE_PULL, CODE_SEND, CODE_SEND_BATCH, CODE_SEND_V2


cdef inline bint is_send(int32_t code) noexcept nogil:
    return code == CODE_SEND or code == CODE_SEND_V2 or code == CODE_SEND_BATCH


cdef inline bint is_pull(int32_t code) noexcept nogil:
    return code == CODE_PULL or code == CODE_LITE_PULL


# False: a field is missing, or is not what it should be; the coordinator names it. What they fill
# points into the frame. The born host is the caller's.
cdef bint read_send(const Request* request, SendRequest* send) noexcept nogil
cdef bint read_pull(const Request* request, PullRequest* pull) noexcept nogil
cdef bint read_end(const Request* request, EndRequest* end) noexcept nogil
