# How much is done for one connection before the others have their turn.
#
# Work is counted in units of about a nanosecond: frames, queue entries, bytes that are copied, steps
# of SQL92 programs and the bytes that these look at. No clock is read for it.
#
#   N9   What a connection asks for in a turn is done until its slice is used up; at least one frame,
#        or one held pull, is. The rest stays in its buffer, or among its pulls that are due, and it
#        is not read (`late`). Late connections go on one after the other, LATE_WORK in all a turn,
#        when everybody else's new input was handled. Once a turn has lasted TURN_WORK, the slices
#        of the others are as small as they can be.
#   N10  One look at a queue ends when its allowance is used up, after one entry at least. What it
#        has found is the answer; a pull that has found nothing yet is answered with where to go on
#        (code 20), and a held one goes on from its cursor, when its connection's turn comes again.
from libc.stdint cimport int64_t

from mqcore.net.server cimport Connection, Server

cdef enum:
    FRAME_WORK = 500                   # of any frame, beside its bytes
    LOOK_WORK = 60                     # of a look at a held pull that finds nothing new
    ENTRY_WORK = 8                     # of a queue entry
    RECORD_WORK = 100                  # of a record that is parsed
    HELD_WORK = 500_000                # of a turn, for queues with new messages; for old held pulls

cdef void work_begin_turn(Server* s) noexcept nogil
cdef bint work_is_over(Server* s, Connection* c) noexcept nogil      # its slice is used up
cdef void work_charge(Server* s, Connection* c, int64_t began) noexcept nogil  # s.work was `began`
cdef int64_t work_allowance(Server* s) noexcept nogil                # N10
cdef void work_later(Server* s, Connection* c) noexcept nogil        # it goes on among the late ones
cdef void work_late(Server* s) noexcept nogil                        # the late ones' part of a turn
