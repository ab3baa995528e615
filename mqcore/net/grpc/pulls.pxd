# PullMessage (grpc.md 1.2): messages of one queue from an offset on, as remoting's pulls are served. Stock
# does not serve it.
#
#   GL1  An answer says its status first, then its messages, then the offset from which to pull next.
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.streams cimport Call
from mqcore.net.remoting.command cimport Said
from mqcore.net.requests cimport PullAnswer
from mqcore.net.transport.transport cimport Connection

cdef int serve_pull_message(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                            int64_t length) noexcept nogil   # Handled
cdef void answer_pull_message(Grpc* g, Call* call, const PullAnswer* answer) noexcept nogil
# The coordinator's answer, which has no messages.
cdef void pull_told(Grpc* g, Call* call, const Said* said) noexcept nogil
