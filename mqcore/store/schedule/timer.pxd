# Delivery at a time (timer.md 1): the queue of rmq_sys_wheel_timer is read in order into the wheel, and
# each second's messages are delivered from it, in the order of their times, to the millisecond.
#
#   TM1  A second begins when the store clock reaches it. From then on its slot takes no unit: a message
#        that comes for it, or for an earlier one, gets a unit in the next slot that has not begun, and
#        waits in memory (`late`) for its own time. A second that has begun stays so for later processes while
#        the slot behind it has late units: the clock may be behind its begin again, and a recall must not
#        stand before its message.
#   TM2  A second is settled when all units of its slot are, those of late messages too. Seconds are
#        settled in their order, and `timercheck` names the first one that is not.
#   TM3  A unit is marked settled when its message is: delivered and durable (delivery S5), recalled, or
#        skipped for good. A recall has no mark: it counts until its second is settled, also for the next
#        process. A process that begins looks at the marks, and searches the log for the rest:
#        what is made from a record names it (timer_record.pxd).
#   TM4  No message is early: it is handed over when the store clock has reached its time.
#   TM5  When the wheel is lost, is of another folder, or has units of records that the log lost, it is
#        made again from the queue. Of the
#        messages before queue offset `safe_offset`, those of seconds before `safe_second` are settled.
#   TM6  A message that is due more than ROLL_MS ahead is stored again when the half or the whole of that
#        time is over: its record is never older than that, and retention leaves it. No further second
#        begins before that record is in the wheel; a wheel that is made again forgets the older one.
#        A record that a stock broker stored again does not name the older record: both are due at one time then, and
#        the second one with the same topic, unique key, times and body is not handed over.
#   TM7  At most COLLECTED_MAX messages of a second are in memory; the slot is read again for the rest.
#   TM8  Nothing is handed over before the queue is read to where it ended when that reading began: a
#        recall that was stored before its message came due counts, also after a rest of any length. An
#        entry that cannot be read, or finds no room, holds nothing up.
#   TM9  `timer_cleared`: messages whose recall stands before this queue offset are delivered by now, and in the
#        log, or will never be: the recall is read, and all that was handed over before that has its result.
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from mqcore.layout cimport AppendResult
from mqcore.store.record cimport RecordView
from mqcore.store.schedule.timer_state cimport Timer
from mqcore.store.schedule.levels cimport Scheduler

# The store's folder; before the first turn.
cdef void timer_begin(Scheduler* s, const char* root) noexcept nogil
# TM5: what is known of an earlier run. trusted: the wheel's files are that run's.
cdef void timer_load(Scheduler* s, int64_t safe_second, int64_t safe_offset, bint trusted) noexcept nogil
# Words for the next process of this run, and for figures; the words of the process before.
cdef void timer_publish(Scheduler* s) noexcept nogil
cdef void timer_resume(Scheduler* s) noexcept nogil
# A turn of its own within schedule_turn: how much was done.
cdef int64_t timer_turn(Scheduler* s, int64_t now_ms, int64_t* wake_ms) noexcept nogil
# Everything in memory is forgotten: what was handed over is settled by its unit (TM3).
cdef void timer_restart(Scheduler* s) noexcept nogil
cdef void timer_result(Scheduler* s, const AppendResult* result, int64_t name) noexcept nogil
# A record that was found in the search of the log.
cdef void timer_found(Scheduler* s, const RecordView* made) noexcept nogil
# At an orderly end: the slots that have begun keep only what is not settled; 0 or errno.
# Whether the wheel's files say what waits: they are neither doubted nor being made anew.
cdef bint timer_trusts(const Scheduler* s) noexcept nogil
cdef int timer_end(Scheduler* s) noexcept nogil
cdef void timer_close(Scheduler* s) noexcept nogil
# TM5: what is true of the wheel, and the log position below which none of the others was delivered.
cdef void timer_safe(Scheduler* s, int64_t* second, int64_t* queue_offset, int64_t* position) noexcept nogil
