# The end of a followed log that sends it: what slaves of stock brokers and of ours hear (ha.md 2).
#
#   HM1  Only published bytes are sent: nobody has what the writer may take back (append A4). So in
#        sync mode a slave gets what is on our disk, unless sync_show_unflushed; else what is in the
#        file.
#   HM2  A report is believed up to what its link was sent, a link's first one up to our end. One beyond
#        that, or a number that is no position, closes the link and moves nothing.
#   HM3  `replicated` is what min_in_sync slaves have reported, each by any of its links, and never goes
#        back; others are present when so many have reported. A link has begun with ANNOUNCE less its
#        slave's id, and all links of one id are one slave's; without an id, as of stock, those of one host.
#   HM4  A frame lies in one segment and has at most batch_bytes. A link that has begun with ANNOUNCE is one
#        of ours: its frames are longer, and report 0 means our first byte. To others it means the start
#        of our last segment, as in stock.
#   HM5  A link holds the segment that it is sent: what is deleted meanwhile is sent to its end. Where the
#        next one is gone too, the link ends.
#   HM6  What may be on the disk alone is brought into memory by a thread (that of HM12) before it is sent:
#        the loop, and so the reports of the other links, wait for no disk.
#   HM7  There are LINKS_MAX links, and ADDRESS_LINKS_MAX of one address; each has the memory of its struct
#        and of its socket, whether it reads or not. When all are taken a newcomer gets the place of one whose
#        address has two links more than its own: of the one that waits longest without a report, else of
#        the newest of the address that has most; else of the one that waits longest. In an elected set a link
#        whose number etcd names makes no room, and at last the oldest of the others does. One that has shown a
#        certificate waits for no report. ACCEPTS_A_SECOND are taken
#        in a second, ACCEPTS_A_TURN before those that came are heard: a link that is gone already holds no place.
#   HM8  One of ours is told whose log it is, with the bytes below its end (greet.pxd), when it has said where
#        that is; it is sent the log from where it then says again.
#   HM9  In an elected set (leadership FO1) `replicated` is the least of the reports of those who
#        are waited for, and others are present when all of them have a link, at least min_in_sync.
#        A member is who has its number (shm/members.py); a later link of the same one closes the
#        first.
#   HM10  One of ours that has asked with TELL, once, behind its greeting, is told `replicated` when it has grown, in
#        an elected set what is shown (replica_gate G9): a frame at the place TELL, of those 8
#        bytes. Nobody else ever is.
#   HM11  A slave that hands its log on counts nothing: its slaves have what their master may yet take back. It tells
#        them what it shows itself (replica_gate G9, G10).
#   HM12  Records from before this run, and those that may come from the disk, are compared with
#         their checksums before they are sent, as for a pull (verifier.pxd). The first wrong record
#         ends the link, and is sent to no slave.
#   HM13  Where the writer waits for slaves, it rings before it writes what somebody waits for
#        (replica_gate G11): who was rung looks for that before it sleeps again (linger.pxd).
#   HM14  Without a slave it rests (shm/segment.pxd): the log's growth does not wake it.
#   HM15  Where it is guarded, the first position of a link of ours is answered with a nonce of 16 random bytes.
#        Its next position counts only behind the words that the cluster's account makes of that nonce (key.py):
#        else the link ends, as a stock link does at once. An address of `open_to` shows nothing, nor does a
#        link by TLS whose certificate was verified, where that does for the account.
from libc.stdint cimport int64_t

from mqcore.replication.links cimport Master

# Ends all links: who comes again is greeted anew.
cdef void master_part(Master* m) noexcept nogil
# All that can be done now; bytes sent. more: it goes on without an event.
cdef int64_t master_turn(Master* m, int64_t now_ms, bint* more) noexcept nogil
# Whether a link could be sent more, or waits no longer for the thread of HM12.
cdef bint master_has_work(Master* m) noexcept nogil
# Until a heartbeat, a silence or a new second; at most `most`.
cdef int64_t master_wait_ms(Master* m, int64_t now_ms, int64_t most) noexcept nogil
# Whether the bell alone has woken it.
cdef bint master_wait(Master* m, int64_t timeout_ms) noexcept nogil
# A look for what the writer is about to publish (HM13).
cdef void master_linger(Master* m) noexcept nogil
# Whether every slave has all of the log.
cdef bint master_is_even(Master* m) noexcept nogil
