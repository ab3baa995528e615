# Delivery of delayed messages (broker.md 4.4): each level's queue is read in order; what is due
# goes to its real topic through an `appends` ring of our own; results settle it in the book.
#
#   S4  An entry is handed over once, in its queue's order, and again only after its result said
#       that it was refused, or after the log was searched for it (replay.pxd).
#   S5  Nothing is handed over before everything that was handed over by an earlier life has its
#       result, and the log from settled_position on was searched: the writer gives the room in
#       `appends` back after it has published the results.
#       A result settles when the log is published beyond its record, and the writer that gave it
#       lives; else the log is asked: a transient pool's records die with their writer.
#   S6  No message is early: it is handed over in a later millisecond than the one in which its delay
#       is over, counted on the steady clock from its store time on (store_clock T9), whatever the
#       wall clock is set to meanwhile; and the writer stamps it no earlier. The one exception is
#       broker.md 4.4's: a time further away than the level's delay (the levels were changed, or the
#       store comes from a broker whose clock was set back) counts as now.
#   S7  A level whose queue is read to its end sets its interest byte, then looks at the end again;
#       the dispatcher does it the other way round (dispatch D3). Nobody polls.
from libc.stdint cimport int64_t

from mqcore.store.schedule.levels cimport Scheduler

# One turn: results, then what is due at now_ms. Returns how much was done; wake_ms: when to turn again
# if nothing rings. Both on the steady clock, and `steady` the same time: tests choose their own now_ms.
cdef int64_t schedule_turn(Scheduler* s, int64_t now_ms, int64_t steady,
                           int64_t* wake_ms) noexcept nogil
cdef bint schedule_has_work(Scheduler* s) noexcept nogil
cdef bint schedule_is_quiet(Scheduler* s) noexcept nogil      # all that was handed over is settled
