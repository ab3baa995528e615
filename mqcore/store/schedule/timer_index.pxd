# The timer's way in: the queue of rmq_sys_wheel_timer is read in order into the wheel (timer.pxd has the
# rules).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport DELAY_LEVEL_MAX
from mqcore.store.record cimport RecordView
from mqcore.store.schedule.levels cimport Scheduler
from mqcore.store.schedule.timer_record cimport TimedMessage
from mqcore.store.schedule.timer_state cimport Timer

cdef enum:
    TIMER_LEVEL = DELAY_LEVEL_MAX      # number of the timer's queue among the levels
    TIMER_RETRY_MS = 100               # after what could not be read, written or stored
    LATE_MAX = 1 << 20                 # messages whose second had begun when they came
    RECALL_KEY_MAX = 1024              # of what a recall names
    ROLL_MS = 2 * 86_400_000           # stock's timerRollWindowSlots

# TimerKind: of a unit that is handed over, bits of its append's name
cdef enum:
    KIND_OF_SLOT = 0                   # of the slot of the second that is being settled
    KIND_EVEN = 1                      # late, with its unit in a slot of an even second
    KIND_ODD = 2

cdef bint timer_find_queue(Scheduler* s) noexcept nogil
# False: it cannot be opened now, see Timer.error.
cdef bint timer_open(Scheduler* s, int64_t store_ms, int64_t now_ms) noexcept nogil
# Whether the log still has the record of the wheel's last unit: a writer that died, or a power cut, takes the
# log's end with it, and other records stand there later (timer TM5).
cdef bint timer_fits(Scheduler* s) noexcept nogil
# Whether a record was made from the one at its prepared position; both stay mapped (view L2).
cdef bint timer_is_made(Scheduler* s, const RecordView* made) noexcept nogil
# Whether a record is in the wheel that was stored again behind it (timer TM6).
cdef bint timer_is_rolled(Timer* t, int64_t log_position) noexcept nogil
# The wheel is made anew at the next turn.
cdef void timer_distrust(Scheduler* s) noexcept nogil
# Reads new entries of the queue; how many. wake_ms: when to look again.
cdef int64_t timer_index(Scheduler* s, int64_t store_ms, int64_t now_ms,
                         int64_t* wake_ms) noexcept nogil
# The record of the timer topic at a log position: 0, a NoteKind, or RECORD_LATER.
cdef int timer_read(Scheduler* s, int64_t position, int64_t size, const uint8_t** at,
                    RecordView* record, TimedMessage* message) noexcept nogil
# The recall of a key, its place among Timer.recalls, or -1. The search moves the log's mapped places
# (view L2).
cdef int32_t timer_find_recall(Scheduler* s, const uint8_t* key, int32_t length) noexcept nogil
# The same for `marker`, whose record is read anew behind it. A recall counts until the slot of `second` is settled.
cdef void timer_note_recall(Scheduler* s, const TimedMessage* marker, int64_t position,
                            int64_t second) noexcept nogil
# Counting begins anew, and late units of an earlier life are looked up.
cdef void timer_survey(Scheduler* s) noexcept nogil
# A recall counts; its unit stays in its slot for a process that comes later.
cdef void timer_settle_recall(Timer* t, int32_t kind) noexcept nogil
cdef void timer_settle(Scheduler* s, int64_t unit, int32_t kind) noexcept nogil       # timer TM3
