# ReceiveMessage (grpc.md 2.5, 2.6) over POP (store/pop/pop.pxd).
#
#   GR1  A receive says its status first, then its messages, then the server's time.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.grpc.calls cimport Asked, Grpc
from mqcore.net.grpc.pairs cimport Pair
from mqcore.net.grpc.streams cimport Call
from mqcore.net.remoting.command cimport Said
from mqcore.net.transport.transport cimport Connection
from mqcore.store.pop.state cimport PopQueue

cdef enum:
    BATCH_MAX = 32

# Handled.
cdef int serve_receive(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                       int64_t length) noexcept nogil
# The coordinator's answer about a pair (pairs GP1); the receive that asked continues.
cdef void pair_told(Grpc* g, Connection* c, Call* call, const Said* said) noexcept nogil
# Takes over the answer of the coordinator about a pair.
cdef void pair_learn(Grpc* g, Pair* pair, const Said* said) noexcept nogil
# The code of a Status that is a refusal; 0: it is none. text: its message.
cdef int32_t refusal_of(const Said* said, const uint8_t** text, int32_t* length) noexcept nogil
# One look at all queues of a receive; known: whether its filter is. How many messages it gave.
cdef int32_t look(Grpc* g, Connection* c, Call* call, Pair* pair, const Asked* a,
                  bint* known) noexcept nogil
# Messages that the group was never given, over remoting: nothing changes by that. How many; -1: the filter is
# not known.
cdef int32_t look_ahead(Grpc* g, Pair* pair, const Asked* a) noexcept nogil
# The queue's state; NULL: it has no messages yet, or there is no room.
cdef PopQueue* queue_opened(Grpc* g, Pair* pair, const Asked* a, int32_t queue_id, int32_t* number,
                            int64_t* end) noexcept nogil
cdef void await_queues(Grpc* g, Pair* pair, bint wakes) noexcept nogil
# A waiting receive once more; False: nothing is there.
cdef bint receive_again(Grpc* g, Connection* c, Call* call, Pair* pair) noexcept nogil
cdef void refuse_receive(Grpc* g, Call* call, int32_t code, const char* text) noexcept nogil
