# Acks and changes of invisible time over remoting; they are answered behind pop_flush (remote RM2).
from libc.stdint cimport int32_t, uint8_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.remote cimport RemoteAsker

cdef void serve_remote_ack(Grpc* g, const RemoteAsker* asker, bint changes) noexcept nogil
# BATCH_ACK_MESSAGE: what a proxy has gathered. Its body is JSON.
cdef void serve_remote_acks(Grpc* g, const RemoteAsker* asker, const uint8_t* body,
                            int32_t length) noexcept nogil
# Answers the acks of this turn.
cdef void remote_settled(Grpc* g) noexcept nogil
