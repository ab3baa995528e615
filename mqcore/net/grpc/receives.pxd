# ReceiveMessage (grpc.md 2.5, 2.6) over POP (store/pop/pop.pxd).
#
#   GR1  A receive says its status first, then its messages, then the server's time.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.pairs cimport Pair
from mqcore.net.grpc.streams cimport Call
from mqcore.net.remoting.command cimport Said
from mqcore.net.transport.transport cimport Connection

cdef enum:
    BATCH_MAX = 32

cdef struct Asked:                     # a ReceiveMessageRequest
    const uint8_t* group
    int32_t group_length
    const uint8_t* topic
    int32_t topic_length
    int32_t queue_id
    int32_t filter_type
    const uint8_t* filter
    int32_t filter_length
    int32_t batch
    int64_t invisible_ms               # -1: not said
    bint renew
    int64_t poll_ms                    # -1: not said
    const uint8_t* attempt_id
    int32_t attempt_length

# Handled.
cdef int serve_receive(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                       int64_t length) noexcept nogil
# The coordinator's answer about a pair (pairs GP1); the receive that asked continues.
cdef void pair_told(Grpc* g, Connection* c, Call* call, const Said* said) noexcept nogil
# A waiting receive once more; False: nothing is there.
cdef bint receive_again(Grpc* g, Connection* c, Call* call, Pair* pair) noexcept nogil
cdef void refuse_receive(Grpc* g, Call* call, int32_t code, const char* text) noexcept nogil
