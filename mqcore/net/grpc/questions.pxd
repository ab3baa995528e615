# Questions of tools for a consumer, by its Telemetry (grpc.md 1.7). The nonce of each is the opaque of what the
# coordinator asks (broker/requests/grpc_relay.py).
from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.streams cimport Call
from mqcore.net.remoting.command cimport Said

cdef void ask_for_stacks(Grpc* g, Call* telemetry, const Said* said) noexcept nogil
cdef void ask_to_consume(Grpc* g, Call* telemetry, const Said* said) noexcept nogil
