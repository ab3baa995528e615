# The door to the coordinator: frames that are not served natively go there through `requests`, their
# answers come back through `answers` (answers.pxd).
#
#   N5  The coordinator has at most FORWARDS_MAX shares and FORWARD_SHARE_BYTES of one connection in
#       hand, and ALL_FORWARDS_MAX and ALL_FORWARD_BYTES of all. A connection with nothing there may
#       pass the second limit up to NEWS_MAX, an urgent frame (N19) up to more. ANSWER_DONE says
#       what is done. A frame beyond a limit waits in its connection's buffer (transport N3).
#   N14  The coordinator hears of the end of every connection that it knew, and when a connection
#        reads again. Such a word waits for room (Forwarding.words), and no later frame goes before
#        it.
#   N15  A process has LONG_FRAMES_MAX places for frames that go to the coordinator in parts.
#        Connections get a place in the order in which they asked; after one a connection goes to
#        the end of the line.
#   N19  Frames that keep other clients' leases (heartbeats, goodbyes, locks, commits, answers) are
#        marked urgent. The coordinator handles them first; frames of a crowd wait in another lane,
#        and are not decoded before their turn.
#   N24  An answer is for a question: as many frames of a connection go there as answers as the
#        coordinator that is there has asked it; others are dropped unread. A frame that only the
#        coordinator can read is never urgent, and never kept.
#   N22  The last heartbeat of each connection, and the goodbyes since, are kept for the next
#        coordinator: the whole state or none, never an older one. They count as the connection's
#        memory (memory N11). Beyond KEPT_EACH_BYTES each, all connections share a quarter of that
#        sum by half HR1, and none gets room for which another connection would have to end. While
#        its parts are repeated, in a place of their own, the connection's next frame waits.
from libc.stdint cimport int32_t, int64_t, uint64_t

from mqcore.layout cimport LONG_FRAMES_MAX
from mqcore.net.identity cimport Identity
from mqcore.net.remoting.frames cimport Request
from mqcore.net.serving.asked cimport Asking
from mqcore.net.serving.offset_commits cimport OffsetCommits
from mqcore.net.serving.limits cimport Limits
from mqcore.net.serving.parked cimport Parking
from mqcore.net.serving.requests_ring cimport RequestsRing
from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.shm.segment cimport Shm

cdef enum:
    FORWARD_BYTES_MAX = 384 << 10      # a frame that goes to the coordinator whole

cdef struct Word:                      # N14
    uint64_t connection
    int32_t kind                       # FORWARD_

cdef struct Forwarding:
    Transport* transport
    Shm* shm
    const Identity* identity
    Parking* parking
    OffsetCommits* offset_commits
    RequestsRing* requests
    Limits* limits
    int32_t count                      # N5: shares of all connections' frames ...
    int64_t bytes                      # ... and their bytes
    Word* words                        # N14: two for each connection at most
    int32_t word_count
    int32_t coordinator                # incarnation that was met
    int64_t kept_large                 # N22: of all connections, what is more than KEPT_EACH_BYTES
    int32_t repeat_at                  # slot of whom what is kept is repeated next; -1: none
    int32_t repeat_from                # index in that: of the frame that is next ...
    int32_t repeat_sent                # ... and so much of it is in `requests`
    bint[LONG_FRAMES_MAX] long_frames  # places of frames that go in parts: taken
    int64_t long_tickets               # N15: that were given ...
    int64_t long_tickets_done          # ... and of these: that have had their place, or went away
    Asking asking                      # asked N16

cdef bint forwarding_open(Forwarding* f) noexcept nogil                # False: no memory
# A whole frame. park: Park (parked.pxd); body_stays: send only the header. Handled.
cdef int forward_frame(Forwarding* f, Connection* c, const Request* request, int park,
                       bint body_stays) noexcept nogil
# The connection closes: what it has in the middle of things here is given up, and the coordinator
# hears of it.
cdef void forget_forwarding(Forwarding* f, Connection* c) noexcept nogil
# The coordinator has done them; what its predecessor had was forgotten.
cdef void count_done(Forwarding* f, uint64_t connection, int32_t shares,
                      int64_t length) noexcept nogil
# answers N6: it does not read (False: the coordinator is not told now); it reads again.
cdef bint forward_unread(Forwarding* f, Connection* c) noexcept nogil
cdef void forward_reads(Forwarding* f, Connection* c) noexcept nogil
cdef bint forward_words(Forwarding* f) noexcept nogil  # N14: what waits; False: some still does
# This process is new: the coordinator looks at its incarnation, by which it knows (transport N4).
cdef void forward_hello(Forwarding* f) noexcept nogil
# If the coordinator started anew it is told who is connected here, by the heartbeats they sent last
# and the goodbyes since (N22); what finds no room goes with the next calls of the second.
cdef void meet_coordinator(Forwarding* f) noexcept nogil
cdef void forward_heartbeats(Forwarding* f) noexcept nogil
