"""Messages that wait for delivery, and its progress, as the scheduler shows them (broker.md 4.6)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.layout cimport (
    DELAY_LEVEL_MAX,
    TIMER_LATENESS,
    TIMER_ROWS,
    ScheduleState,
    TopicEntry,
)
from mqcore.shm.segment cimport Segment

cdef enum:
    READ_TRIES_MAX = 1000
    MS_PER_HOUR = 3_600_000


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


def timer_cleared(Segment segment not None) -> int:
    """Messages whose recall has a smaller queue offset are in the log, or never will be (timer TM9)."""
    return load_i64_acquire(&segment.shm.schedule.timer_cleared)


def timer_figures(Segment segment not None, int64_t now_ms) -> dict[str, object]:
    """
    Messages that wait for a time of delivery of their own, for JSON.

    pending: messages; counted: false while the scheduler still counts what was there when it began;
    topics: {name: messages}; others: those of topics without a row; hours: {begin in seconds since
    1970: messages}, in their order; later: what was due more than two days ahead when it was stored
    last, in no hour; nextSecond: in which the next is due, 0: none waits; lateness: how many were
    handed over at most 1, 2, 4 ms and so on after their time, the last number the rest; lateMillis:
    the sum of that. now_ms: the wall clock: hours are told apart within weeks from it.
    """
    cdef ScheduleState* state = segment.shm.schedule
    cdef int64_t hour, first = now_ms // MS_PER_HOUR - TIMER_ROWS // 2
    cdef int32_t i
    rows = {<int32_t>load_i64_acquire(&state.timer_topic_hashes[i]):
            load_i64_acquire(&state.timer_topics[i])
            for i in range(TIMER_ROWS) if load_i64_acquire(&state.timer_topics[i]) > 0}
    hours = {}
    for hour in range(first, first + TIMER_ROWS):
        waiting = load_i64_acquire(&state.timer_hours[hour & (TIMER_ROWS - 1)])
        if waiting > 0:
            hours[hour * MS_PER_HOUR // 1000] = waiting
    names = _names(segment, rows)
    lateness, late_ms = timer_lateness(segment)
    return {
        "pending": timer_pending(segment), "counted": bool(load_i64_acquire(&state.timer_counted)),
        "topics": {names.get(hash, f"a deleted topic ({hash & 0xFFFFFFFF:08x})"): waiting
                   for hash, waiting in rows.items()},
        "others": max(load_i64_acquire(&state.timer_others), <int64_t>0), "hours": hours,
        "later": max(load_i64_acquire(&state.timer_later), <int64_t>0),
        "nextSecond": timer_next(segment), "lateness": lateness, "lateMillis": late_ms}


cdef int32_t java_hash_of(const TopicEntry* topic) noexcept:
    cdef uint32_t hash = 0
    cdef int32_t i
    for i in range(topic.name_length):
        hash = 31 * hash + topic.name[i]
    return <int32_t>hash


cdef dict _names(Segment segment, dict rows):
    """Topics by hash; two of one hash share a row, and are both named."""
    cdef TopicEntry* topic
    cdef int32_t i
    names = {}
    for i in range(load_i32_acquire(&segment.shm.head.topic_count)):
        topic = &segment.shm.topics[i]
        hash = java_hash_of(topic)
        if hash in rows and load_i32_acquire(&topic.live):
            name = topic.name[:topic.name_length].decode()
            names[hash] = f"{names[hash]} or {name}" if hash in names else name
    return names


def timer_lateness(Segment segment not None) -> tuple[list[int], int]:
    """
    How many were handed over at most 1, 2, 4 ms and so on after their time, the last number those
    that were later; and the sum of that, in ms.
    """
    cdef ScheduleState* state = segment.shm.schedule
    return ([load_i64_acquire(&state.timer_lateness[i]) for i in range(TIMER_LATENESS)],
            load_i64_acquire(&state.timer_late_ms))
