# Messages on their way to the dead letters of a group, and ForwardMessageToDeadLetterQueue (grpc.md 2.7).
#
#   GD1  What was delivered more often than its group allows, or what a client forwards, is settled when the
#        coordinator has stored its copy. Until then it is invisible; it comes again if that fails. At most
#        DEAD_MAX are on their way; those of a connection that ended meanwhile are forgotten.
#   GD2  A client forwards only what its handle's delivery still holds, and what is copied is the record
#        that the queue has at that offset: a log position is not believed (handles RH2).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.pairs cimport Pair
from mqcore.net.grpc.streams cimport Call
from mqcore.net.transport.transport cimport Connection
from mqcore.store.pop.pop cimport PopClaim

cdef void dead_letters_open(Grpc* g) noexcept nogil
# A delivery beyond the group's attempts.
cdef void dead_letter(Grpc* g, Connection* c, const Pair* pair, int32_t queue_id, int64_t log_position,
                      const PopClaim* claim) noexcept nogil
cdef int serve_forward(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                       int64_t length) noexcept nogil        # Handled
# The coordinator's answer: a response code.
cdef void dead_letter_told(Grpc* g, int32_t opaque, int32_t code) noexcept nogil
cdef void dead_letters_forget(Grpc* g, const Connection* c) noexcept nogil
# Log position of the record at an offset of queue `number` of the queue table; -1: the queue has no entry there.
cdef int64_t position_of(Grpc* g, int32_t number, int64_t offset) noexcept nogil
