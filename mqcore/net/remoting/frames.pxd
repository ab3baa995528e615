# RocketMQ's frames (remoting.md 1.1): cut from a connection's bytes, their headers read, each given to
# who serves it.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.shm.access cimport AccessAccount
from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.wire.header cimport Header, SignedFields

cdef enum:
    FRAME_WORK = 500                   # of any frame, beside its bytes
    RESPONSE_BIT = 1                   # of a header's flag
    ONEWAY_BIT = 2

cpdef enum FrameCloseReason:           # beside those of the transport
    CLOSE_FRAME_LENGTH = 1
    CLOSE_HEADER_LENGTH = 2
    CLOSE_CODEC = 3
    CLOSE_HEADER = 4

cdef struct Request:                   # or a response to what the broker asked
    const uint8_t* frame               # without its length word
    int32_t length
    int32_t header_length
    const uint8_t* body
    int32_t body_length
    bint unusual                       # its header is for the coordinator's reader: fields are not read
    bint passed                        # access control lets it pass; else the coordinator is asked
    const AccessAccount* account       # whose it is, once that is proved; else NULL
    Header header

cdef struct AccessShare:               # what access control keeps of a connection (access.pyx)
    int32_t sequence                   # of the rules that `white` was looked up in
    bint white                         # its address needs no account
    bint proved                        # the signature of its first frame, which waits, was right

cdef struct Remoting:
    Transport* transport
    # HANDLE_FORWARD: it goes on, with `passed` and `account` set.
    int (*check)(void* guard, Connection* c, Request* request) noexcept nogil
    void* guard
    SignedFields* fields               # of the request at hand; NULL: nothing is checked
    void* top
    bint (*holds_back)(void* top, Connection* c) noexcept nogil  # whether its next request waits
    # What is not served, since it was refused; what it has cost is counted.
    void (*refused)(void* top, Connection* c, const Request* request) noexcept nogil
    int (*serve)(void* top, Connection* c, Request* request) noexcept nogil          # Handled

cdef inline AccessShare* access_of(Connection* c) noexcept nogil:
    return <AccessShare*>c.of_front

# All whole frames of `data`, as far as transport N2, N3 and work N9 let it (Above.bytes_came).
# remoting: a Remoting*.
cdef int64_t cut_frames(void* remoting, Connection* c, uint8_t* data, int64_t length) noexcept nogil
