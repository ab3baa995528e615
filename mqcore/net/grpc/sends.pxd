# SendMessage (grpc.md 2.2).
#
#   GS1  What is wrong with a message is said before anything is stored, in the order in which stock
#        looks.
#   GS2  A message with a group goes to the queue that stock's consistent hash gives it, as long as
#        the number of queues is the same.
#   GS3  The id of a transaction says where its half message lies: 16 hexadecimal digits of its log
#        position, 16 of its offset.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.streams cimport Call
from mqcore.net.requests cimport SendAnswer
from mqcore.net.transport.transport cimport Connection

cdef enum:
    TRANSACTION_ID_LENGTH = 32

cdef int serve_send_message(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                            int64_t length) noexcept nogil
cdef void answer_send(Grpc* g, Call* call, const SendAnswer* answer) noexcept nogil
cdef void put_place(uint8_t* into, int64_t log_position, int64_t half_offset) noexcept nogil     # GS3
# False: it is none.
cdef bint transaction_place(const uint8_t* text, int32_t length, int64_t* log_position,
                            int64_t* half_offset) noexcept nogil
