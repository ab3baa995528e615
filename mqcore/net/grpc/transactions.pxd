# EndTransaction, and questions about transactions whose producer went (grpc.md 2.4).
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.streams cimport Call
from mqcore.net.remoting.command cimport Said
from mqcore.net.transport.transport cimport Connection

# Handled.
cdef int serve_end_transaction(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                               int64_t length) noexcept nogil
# What CHECK_TRANSACTION_STATE asks a client of remoting, as a command on a Telemetry stream.
cdef void ask_producer(Grpc* g, Call* telemetry, const Said* said) noexcept nogil
