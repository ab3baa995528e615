# AckMessage and ChangeInvisibleDuration (grpc.md 2.5).
#
#   GR2  Acks are in the state before they are answered, and in its file before the answer leaves.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.streams cimport Call
from mqcore.net.transport.transport cimport Connection
from mqcore.store.pop.handles cimport Receipt

cdef struct DeliveryAsked:             # a request about one delivery
    const uint8_t* group
    int32_t group_length
    const uint8_t* topic
    int32_t topic_length
    Receipt receipt
    int64_t invisible_ms               # of a change; -2: absent, or out of bounds

# HANDLE_FORWARD: it is read, and its account may consume; else as Handled.
cdef int read_delivery(Grpc* g, Connection* c, Call* call, const uint8_t* message, int64_t length,
                       DeliveryAsked* a) noexcept nogil
# Handled.
cdef int serve_ack(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                   int64_t length) noexcept nogil
# Behind pop_flush: acks of this turn are answered with an error if that failed.
cdef void acks_settled(Grpc* g) noexcept nogil
cdef int serve_change(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                      int64_t length) noexcept nogil
