"""How far delayed messages are delivered, as the scheduler shows it (broker.md 4.6)."""
from libc.stdint cimport int32_t, int64_t

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.layout cimport DELAY_LEVEL_MAX, TIMER_LATENESS, ScheduleState
from mqcore.shm.segment cimport Segment

cdef enum:
    READ_TRIES_MAX = 1000


def delay_offsets(Segment segment not None) -> dict[int, int] | None:
    """
    Delay level, from 1 -> the next queue offset to be delivered.

    None while the scheduler has not said, or when it writes again and again in between.
    """
    cdef ScheduleState* state = segment.shm.schedule
    cdef int32_t before, count
    for _ in range(READ_TRIES_MAX):
        before = load_i32_acquire(&state.sequence)
        count = min(load_i32_acquire(&state.level_count), <int32_t>DELAY_LEVEL_MAX)
        if count <= 0:
            return None
        found = {level + 1: load_i64_acquire(&state.offsets[level]) for level in range(count)}
        if before & 1 == 0 and load_i32_acquire(&state.sequence) == before:
            return found
    return None


def timer_pending(Segment segment not None) -> int:
    """How many messages wait for a time of delivery of their own."""
    return max(load_i64_acquire(&segment.shm.schedule.timer_pending), <int64_t>0)


def timer_next(Segment segment not None) -> int:
    """The second, since 1970, in which the next such message is due, 0: none waits."""
    return load_i64_acquire(&segment.shm.schedule.timer_next)


def timer_lateness(Segment segment not None) -> tuple[list[int], int]:
    """
    How many were handed over at most 1, 2, 4 ms and so on after their time, the last number those
    that were later; and the sum of that, in ms.
    """
    cdef ScheduleState* state = segment.shm.schedule
    return ([load_i64_acquire(&state.timer_lateness[i]) for i in range(TIMER_LATENESS)],
            load_i64_acquire(&state.timer_late_ms))
