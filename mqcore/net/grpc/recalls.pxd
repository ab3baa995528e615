# RecallMessage (grpc.md 2.8): the coordinator answers it as remoting's RECALL_MESSAGE.
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.streams cimport Call
from mqcore.net.remoting.command cimport Said
from mqcore.net.transport.transport cimport Connection

cdef int serve_recall(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                      int64_t length) noexcept nogil         # Handled
cdef void recall_told(Grpc* g, Call* call, const Said* said) noexcept nogil      # it succeeded
