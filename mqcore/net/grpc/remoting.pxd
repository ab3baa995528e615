# Serves POP over remoting from the state that gRPC's receives use (remote.pxd has the rules).
from libc.stdint cimport int32_t, uint8_t, uint64_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.pairs cimport Pair
from mqcore.net.grpc.streams cimport Call
from mqcore.net.remoting.command cimport Said
from mqcore.net.transport.transport cimport Connection

cdef enum:
    REMOTE_RETRY_MS = 5000             # until a question without an answer is asked again

# A frame without its length word, of a connection of that serving process.
cdef void serve_remote(Grpc* g, int32_t link, uint64_t connection, const uint8_t* frame,
                       int32_t length) noexcept nogil
# A waiting request once more; False: nothing is there.
cdef bint remote_again(Grpc* g, Connection* c, Call* call, Pair* pair) noexcept nogil
# The coordinator's answer about a pair; said: NULL: there will be none.
cdef void remote_told(Grpc* g, Connection* c, int32_t opaque, const Said* said) noexcept nogil
# Asks the coordinator about a pair, if it was not asked yet.
cdef void remote_ask(Grpc* g, int32_t link, Pair* pair) noexcept nogil
