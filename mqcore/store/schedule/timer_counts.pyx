"""Counts of what waits in the timer (timer_counts.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memset

from mqcore.atomics cimport store_i64_release
from mqcore.layout cimport TIMER_ROWS, ScheduleState
from mqcore.store.schedule.timer_state cimport Timer
from mqcore.store.schedule.timer_wheel cimport (
    TIMER_DELETE,
    TIMER_FILE_SIZE,
    TIMER_ROLL,
    UNIT_SETTLED,
    TimerUnit,
    wheel_behind,
    wheel_unit,
)

cdef enum:
    COUNTED_PER_TURN = 16_384
    PROBES_MAX = 64                    # of a topic's row
    SECONDS_PER_HOUR = 3600

cdef int64_t ROW_TAKEN = <int64_t>1 << 32     # in a row's hash: a topic has it


cdef int64_t* row_of(ScheduleState* state, int32_t hash, bint may_take) noexcept nogil:
    """The count of a topic; NULL: it has none."""
    cdef int64_t taken = <uint32_t>hash | ROW_TAKEN
    cdef int32_t row, unused = -1
    cdef uint32_t first = <uint32_t>hash * <uint32_t>0x9E3779B1 >> 16     # names that count up are spread
    cdef uint32_t i
    for i in range(PROBES_MAX):
        row = (first + i) & (TIMER_ROWS - 1)
        if state.timer_topic_hashes[row] == taken:
            return &state.timer_topics[row]
        if unused < 0 and state.timer_topics[row] == 0:
            unused = row
        if state.timer_topic_hashes[row] == 0:
            break
    if unused < 0 or not may_take:
        return NULL
    store_i64_release(&state.timer_topic_hashes[unused], taken)
    return &state.timer_topics[unused]


cdef inline void change(int64_t* count, int64_t by) noexcept nogil:
    store_i64_release(count, count[0] + by)


cdef void count(Timer* t, ScheduleState* state, const TimerUnit* unit, int64_t by) noexcept nogil:
    cdef int64_t* row = row_of(state, unit.topic_hash, by > 0 and state.timer_others == 0)
    t.pending += by
    change(&state.timer_others if row == NULL else row, by)
    if unit.magic & TIMER_ROLL:
        change(&state.timer_later, by)
    else:
        change(&state.timer_hours[unit.second // SECONDS_PER_HOUR & (TIMER_ROWS - 1)], by)


cdef void counts_begin(Timer* t, ScheduleState* state) noexcept nogil:
    store_i64_release(&state.timer_counted, 0)
    memset(state.timer_hours, 0, sizeof(state.timer_hours))
    memset(state.timer_topics, 0, sizeof(state.timer_topics))
    memset(state.timer_topic_hashes, 0, sizeof(state.timer_topic_hashes))
    state.timer_later = state.timer_others = t.pending = 0
    t.counted_to = t.wheel.first_file * TIMER_FILE_SIZE


cdef int64_t counts_go_on(Timer* t, ScheduleState* state) noexcept nogil:
    cdef TimerUnit unit
    cdef int64_t looked = 0
    t.counted_to = max(t.counted_to, t.wheel.first_file * TIMER_FILE_SIZE)
    while t.counted_to < t.life_begin and looked < COUNTED_PER_TURN:
        if (wheel_unit(&t.wheel, t.counted_to, &unit) and unit.second >= t.second
                and not unit.magic & TIMER_DELETE and not unit.state & UNIT_SETTLED):
            count(t, state, &unit, 1)
        t.counted_to = wheel_behind(&t.wheel, t.counted_to)
        looked += 1
    if t.counted_to >= t.life_begin and not state.timer_counted:
        store_i64_release(&state.timer_counted, 1)
    return looked


cdef void counts_add(Timer* t, ScheduleState* state, const TimerUnit* unit, int64_t by) noexcept nogil:
    if not unit.magic & TIMER_DELETE and (
            unit.position < t.counted_to or unit.position >= t.life_begin):
        count(t, state, unit, by)
