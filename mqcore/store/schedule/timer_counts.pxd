# Messages that wait in the timer, by topic and by hour, for readers: rows in shared memory, of a fixed size.
#
# A row of an hour is at that hour since 1970, modulo TIMER_ROWS; `later` has what is stored again before it is
# due. Topics are counted by the hash that a unit has. When the table is full, or the place of a new topic would
# be too far from its hash, the topic's messages are counted among `others`; while others wait no topic gets
# a new row, so that each message is taken off where it was added. The begin of a process, or of a wheel that is
# made anew, counts again, COUNTED_PER_TURN units at a time: until that is over the rows say less than what waits.
from libc.stdint cimport int64_t

from mqcore.layout cimport ScheduleState
from mqcore.store.schedule.timer_state cimport Timer
from mqcore.store.schedule.timer_wheel cimport TimerUnit

cdef void counts_begin(Timer* t, ScheduleState* state) noexcept nogil
# A part of the wheel that was there when this life began; how many units were looked at.
cdef int64_t counts_go_on(Timer* t, ScheduleState* state) noexcept nogil
# A unit of this life, or of before, begins or ends to wait: by 1 or -1. Recalls are not counted.
cdef void counts_add(Timer* t, ScheduleState* state, const TimerUnit* unit, int64_t by) noexcept nogil
