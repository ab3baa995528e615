# Access control of gRPC calls (grpc.md 1.6): whose a call is, and what it may touch.
#
#   GA1  Every message of a call passes `authorize` before anything is done for it. Its signature is
#        verified then, with the rules in force; it signs the value of x-mq-date-time and nothing else. The
#        names of a native call are checked where they are read; all other calls travel with their
#        access key, and the coordinator checks their names (broker/requests/grpc.py).
#   GA2  Receives that waited when access rules changed get nothing more (as held H9).
#
# Nothing is kept of a signature that was right.
from libc.stdint cimport int32_t, uint8_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.streams cimport Call
from mqcore.net.transport.transport cimport Connection

# HANDLE_FORWARD: it continues, with g.account set (NULL: nothing is to be checked). HANDLE_DENIED: the refusal
# is counted, and its text is g.denied. HANDLE_WAIT: the rules are not shown yet.
cdef int authorize(Grpc* g, Connection* c, Call* call) noexcept nogil
# Whether the account of the call at hand may publish to a topic, or consume from it as a group. False: as
# HANDLE_DENIED.
cdef bint may_publish(Grpc* g, const Connection* c, const uint8_t* topic, int32_t length) noexcept nogil
cdef bint may_consume(Grpc* g, const Connection* c, const uint8_t* group, int32_t group_length,
                      const uint8_t* topic, int32_t topic_length) noexcept nogil
# Counts the refusal of a topic that a call names indirectly.
cdef void deny_topic(Grpc* g, const Connection* c, const uint8_t* topic, int32_t length) noexcept nogil
