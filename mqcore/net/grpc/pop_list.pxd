# GET_POP_STATE: what is in flight, for people.
from libc.stdint cimport int32_t, int64_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.remote cimport RemoteAsker

cdef enum:
    POP_ROWS_MAX = 4096                # queues of one answer
    POP_LOOKS_MAX = 200_000            # unsettled messages that one answer looks at

# Fields of the request, all optional: consumerGroup, topic: only these. The body of the answer is JSON (pop.md 5).
cdef void list_pops(Grpc* g, const RemoteAsker* asker) noexcept nogil
