# The door to the coordinator: frames that are not served natively go there through `requests`, their
# answers come back through `answers`.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t

from mqcore.net.server cimport Connection, Server
from mqcore.wire.header cimport Header

# A whole frame (without its length word). park: Park (mqcore/net/parked.pxd);
# body_stays: send only the header. Handled.
cdef int forward_frame(Server* s, Connection* c, const uint8_t* frame, int32_t length,
                       int32_t header_length, const Header* header, int park,
                       bint body_stays) noexcept nogil
# The connection closes: what it has in the middle of things here is given up.
cdef void forget_forwarding(Server* s, Connection* c) noexcept nogil
cdef void forward_closed(Server* s, Connection* c) noexcept nogil
cdef void forward_reads(Server* s, Connection* c) noexcept nogil      # N6: it reads again
cdef bint forward_words(Server* s) noexcept nogil     # N14: what waits; False: some still does
# This process is new: the coordinator looks at its incarnation, by which it knows (N4).
cdef void forward_hello(Server* s) noexcept nogil
# The coordinator started anew: it is told who is connected here, by the heartbeats they sent last;
# what finds no room goes with the next calls of the second.
cdef void coordinator_is_new(Server* s) noexcept nogil
cdef void forward_heartbeats(Server* s) noexcept nogil
cdef void forward_commits(Server* s) noexcept nogil
cdef void note_commit(Server* s, const uint8_t* group, int32_t group_length, const uint8_t* topic,
                      int32_t topic_length, int32_t queue_id, int64_t offset) noexcept nogil
cdef void take_answers(Server* s) noexcept nogil
