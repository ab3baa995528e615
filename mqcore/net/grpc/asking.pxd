# Questions of the front for the coordinator.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.streams cimport Call
from mqcore.net.remoting.command cimport Command, Said
from mqcore.net.transport.transport cimport Connection
from mqcore.text cimport Literal

# A call, as it came. Handled.
cdef int ask(Grpc* g, Connection* c, Call* call, const uint8_t* message,
             int64_t length) noexcept nogil
cdef void ask_with(Command* m, Literal name, const uint8_t* text, int32_t length) noexcept nogil
cdef void ask_with_number(Command* m, Literal name, int64_t value) noexcept nogil
# Its remark, REMARK_MAX bytes of room; returns the length.
cdef int32_t said_remark(const Said* said, uint8_t* into) noexcept nogil
# A field of what the coordinator said; False: it has none.
cdef bint said_number(const Said* said, Literal name, int64_t* number) noexcept nogil
