"""From the timer topic's queue into the wheel (timer_index.pxd)."""
from libc.errno cimport EIO, ENOENT, ENOSPC
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from mqcore.atomics cimport load_i64_acquire, store_i64_release
from mqcore.shm.tables cimport name_hash, queue_find, queue_hash
from mqcore.store.log.view cimport log_next_use
from mqcore.store.queue.consume_queue cimport QueueItem
from mqcore.store.record cimport RecordView, java_hash
from mqcore.store.schedule.levels cimport (
    NOTE_RECALL_LOST,
    RECORD_LATER,
    Level,
    Scheduler,
    checked_record,
    entry_at,
    level_end,
    note_skip,
    record_at,
)
from mqcore.store.schedule.timer_counts cimport counts_add, counts_begin
from mqcore.store.schedule.timer_items cimport (
    RECALLS_MAX,
    Recalls,
    TimerItem,
    heap_push,
    positions_add,
    positions_have,
    positions_sort,
    recalls_add,
    recalls_find,
)
from mqcore.store.schedule.timer_record cimport (
    TIMER_SECOND_MS,
    TimedMessage,
    timed_is_made,
    timed_is_made_from,
    timed_message,
)
from mqcore.store.schedule.timer_state cimport Timer
from mqcore.store.schedule.timer_wheel cimport (
    TIMER_DEFAULT,
    TIMER_DELETE,
    TIMER_ROLL,
    UNIT_LATE,
    UNIT_SETTLED,
    WHEEL_SLOTS,
    TimerUnit,
    wheel_add,
    wheel_close,
    wheel_last,
    wheel_mark,
    wheel_note,
    wheel_noted_offset,
    wheel_noted_second,
    wheel_open,
    wheel_unit,
)
from mqcore.store.topic_names cimport TIMER_TOPIC, TIMER_TOPIC_LENGTH, is_timer_topic

cdef enum:
    ROLL_SHORT_MS = ROLL_MS // 3       # with less left, half a window first (stock)
    INDEXED_PER_TURN = 4096


cdef void fail_timer(Timer* t, int error, int64_t now_ms) noexcept nogil:
    t.error = error
    t.retry_ms = now_ms + TIMER_RETRY_MS


cdef bint timer_open(Scheduler* s, int64_t store_ms, int64_t now_ms) noexcept nogil:
    cdef Timer* t = &s.timer
    cdef Level* level = &s.levels[TIMER_LEVEL]
    cdef int64_t least = load_i64_acquire(&s.shm.queues[level.queue].min_offset)
    cdef int error = wheel_open(&t.wheel, t.root, t.untrusted)
    if not t.untrusted and (error in (EIO, ENOENT) or (
            not error and wheel_noted_second(&t.wheel) <= 0)):     # its files do not fit together
        t.untrusted = True
        wheel_close(&t.wheel)
        error = wheel_open(&t.wheel, t.root, True)
    if error:
        fail_timer(t, error, now_ms)
        return False
    t.error = 0
    if t.untrusted:
        t.second = t.safe_second if t.safe_second > 0 else store_ms // TIMER_SECOND_MS
        level.next = least
    else:
        t.second = wheel_noted_second(&t.wheel)
        level.next = max(wheel_noted_offset(&t.wheel), least)
        t.safe_offset = 0              # what is not in the wheel is pending
    t.read_to = level_end(s, level) if t.untrusted else 0                             # timer TM8
    t.made_to = t.read_to
    t.rolled_to = 0
    t.untrusted = False
    t.is_open = True
    t.late_until = -1
    t.begun = False
    t.life_begin = t.wheel.end
    t.next_second = t.second
    if not timer_fits(s):
        timer_distrust(s)
        return False
    timer_survey(s)
    return True


cdef void timer_survey(Scheduler* s) noexcept nogil:
    counts_begin(&s.timer, s.book.state)
    find_late(s, s.timer.second)
    find_late(s, s.timer.second + 1)


cdef bint timer_fits(Scheduler* s) noexcept nogil:
    cdef Level* level = &s.levels[TIMER_LEVEL]
    cdef int64_t position = s.timer.wheel.last_log_position
    cdef int64_t most = load_i64_acquire(&s.shm.queues[level.queue].max_offset)
    cdef RecordView record
    cdef QueueItem item
    if level.next > most:
        return False
    if position < 0 or position < load_i64_acquire(&s.shm.log.first):
        return True
    log_next_use(&s.log)
    if record_at(s, position, &record) == NULL or record.size != s.timer.wheel.last_size or (
            not is_timer_topic(record.topic, record.topic_length)):
        return False
    level.cached_count = 0
    return entry_at(s, level, record.queue_offset, most, &item) and item.log_position == position


cdef void timer_distrust(Scheduler* s) noexcept nogil:
    cdef Timer* t = &s.timer
    cdef Level* level = &s.levels[TIMER_LEVEL]
    cdef int64_t most = load_i64_acquire(&s.shm.queues[level.queue].max_offset)
    t.safe_second = t.second
    t.safe_offset = min(level.next, most)
    if t.late_until >= t.second:
        t.safe_offset = min(t.safe_offset, t.lowest_late)
    t.untrusted = True
    t.is_open = False
    wheel_close(&t.wheel)


cdef bint timer_find_queue(Scheduler* s) noexcept nogil:
    cdef Level* level = &s.levels[TIMER_LEVEL]
    if level.queue < 0:
        level.queue = queue_find(
            s.shm, <const uint8_t*>TIMER_TOPIC, TIMER_TOPIC_LENGTH, 0,
            queue_hash(name_hash(<const uint8_t*>TIMER_TOPIC, TIMER_TOPIC_LENGTH, 0), 0))
        if level.queue >= 0:
            level.life = s.shm.queues[level.queue].removal_done
    return level.queue >= 0


cdef int timer_read(Scheduler* s, int64_t position, int64_t size, const uint8_t** at,
                    RecordView* record, TimedMessage* message) noexcept nogil:
    cdef int found
    log_next_use(&s.log)
    found = checked_record(s, position, size, at, record)
    return found or timed_message(record, message)


cdef bint timer_is_made(Scheduler* s, const RecordView* made) noexcept nogil:
    cdef RecordView record
    cdef TimedMessage message
    if made.prepared_position == 0 and not timed_is_made(made):
        return False                   # it is that of most records
    if record_at(s, made.prepared_position, &record) == NULL or not (
            is_timer_topic(record.topic, record.topic_length)):
        return False
    return timed_message(&record, &message) == 0 and timed_is_made_from(made, &record, &message)


cdef bint timer_is_rolled(Timer* t, int64_t log_position) noexcept nogil:
    if t.rolled_anew:
        positions_sort(&t.rolled)
        t.rolled_anew = False
    return t.rolled.count > 0 and positions_have(&t.rolled, log_position)


cdef int32_t timer_find_recall(Scheduler* s, const uint8_t* key, int32_t length) noexcept nogil:
    cdef uint64_t hash = name_hash(key, length, 0)
    cdef int32_t at = recalls_find(&s.timer.recalls, hash, -1)
    cdef RecordView record
    cdef TimedMessage marker
    while at >= 0:
        log_next_use(&s.log)
        if record_at(s, s.timer.recalls.places[at].marker, &record) != NULL and (
                timed_message(&record, &marker) == 0 and marker.recalled.value_length == length
                and memcmp(marker.recalled.value, key, length) == 0):
            return at
        at = recalls_find(&s.timer.recalls, hash, at)
    return -1


cdef void timer_note_recall(Scheduler* s, const TimedMessage* marker, int64_t position,
                            int64_t second) noexcept nogil:
    cdef Recalls* recalls = &s.timer.recalls
    cdef uint8_t[RECALL_KEY_MAX] key
    cdef int32_t length = marker.recalled.value_length, at
    if length > RECALL_KEY_MAX:
        return                         # no message has such a key
    memcpy(key, marker.recalled.value, length)
    at = timer_find_recall(s, key, length)
    if at >= 0:                        # one that is repeated takes no room
        recalls.places[at].second = max(recalls.places[at].second, second)
        recalls.last_second = max(recalls.last_second, second)
    elif not recalls_add(recalls, name_hash(key, length, 0), position, second, RECALLS_MAX):
        note_skip(s, NOTE_RECALL_LOST, TIMER_LEVEL, -1, position)


cdef int64_t due_in_wheel(int64_t due_ms, int64_t store_ms, int32_t* magic) noexcept nogil:
    """When its unit is due: at its time, or when it is stored again (timer TM6)."""
    magic[0] = TIMER_DEFAULT
    if due_ms - store_ms < ROLL_MS:
        return due_ms
    magic[0] |= TIMER_ROLL
    return store_ms + (ROLL_MS // 2 if due_ms - store_ms - ROLL_MS < ROLL_SHORT_MS else ROLL_MS)


cdef void note_late(Timer* t, int64_t second, int64_t queue_offset) noexcept nogil:
    """A late message is not settled before its slot's second is (timer TM5)."""
    t.lowest_late = queue_offset if t.late_until < t.second else min(t.lowest_late, queue_offset)
    t.late_until = max(t.late_until, second)


cdef void find_late(Scheduler* s, int64_t second) noexcept nogil:
    """Late messages and recalls of an earlier life in a slot."""
    cdef Timer* t = &s.timer
    cdef int64_t position = wheel_last(&t.wheel, second)
    cdef const uint8_t* at
    cdef RecordView record
    cdef TimedMessage message
    cdef TimerUnit unit
    while position >= 0 and wheel_unit(&t.wheel, position, &unit):
        position = unit.previous
        if unit.state != UNIT_LATE:
            continue                   # or it is settled
        if timer_read(s, unit.log_position, unit.size, &at, &record, &message):
            record.queue_offset = 0    # it cannot be read now
            note_late(t, second, record.queue_offset)
            continue
        note_late(t, second, record.queue_offset)
        if message.recalled.value_length:
            timer_note_recall(s, &message, unit.log_position, second)


cdef int add_unit(Scheduler* s, const RecordView* record, const TimedMessage* message,
                  int64_t queue_offset, int64_t store_ms) noexcept nogil:
    """A message's unit, and its item if it is late (timer TM1); 0 or errno."""
    cdef Timer* t = &s.timer
    cdef TimerUnit unit
    cdef TimerItem item
    cdef int64_t open_second = t.second + (1 if t.begun or t.late_until > t.second else 0)
    cdef int64_t position
    cdef bint late
    unit.due_ms = due_in_wheel(message.due_ms, store_ms, &unit.magic)
    if message.recalled.value_length:
        unit.magic |= TIMER_DELETE
    unit.second = max((unit.due_ms - 1) // TIMER_SECOND_MS, <int64_t>1)
    late = unit.second < open_second
    if late:
        unit.second = open_second
    if unit.second - t.second >= WHEEL_SLOTS or (late and t.late.count >= LATE_MAX):
        return ENOSPC
    unit.state = UNIT_LATE if late else 0
    unit.log_position, unit.size = record.log_position, record.size
    unit.topic_hash = java_hash(message.place.topic, message.place.topic_length, 0)
    position = wheel_add(&t.wheel, &unit, store_ms)
    if position < 0:
        return <int>-position
    unit.position = position
    counts_add(t, s.book.state, &unit, 1)
    t.next_second = min(t.next_second, unit.second)
    if not late:
        return 0
    t.waiting[unit.second & 1] += 1
    note_late(t, unit.second, queue_offset)
    item.due_ms, item.log_position, item.unit = unit.due_ms, unit.log_position, position
    item.kind = KIND_ODD if unit.second & 1 else KIND_EVEN
    if unit.magic & TIMER_DELETE:      # `message` is read no more
        timer_note_recall(s, message, unit.log_position, unit.second)
        timer_settle_recall(t, item.kind)
    elif not heap_push(&t.late, &item, True, LATE_MAX):
        return ENOSPC
    return 0


cdef int64_t timer_index(Scheduler* s, int64_t store_ms, int64_t now_ms, int64_t* wake_ms) noexcept nogil:
    cdef Timer* t = &s.timer
    cdef Level* level = &s.levels[TIMER_LEVEL]
    cdef int64_t count = 0, most = level_end(s, level)
    cdef const uint8_t* at
    cdef RecordView record
    cdef TimedMessage message
    cdef QueueItem item
    cdef int found, error
    if level.life != s.shm.queues[level.queue].removal_done:
        level.life = s.shm.queues[level.queue].removal_done
        level.cached_count = 0
        level.next = t.rolled_to = 0
        store_i64_release(&s.book.state.timer_cleared, 0)
        t.mark = -1
    level.next = max(level.next, load_i64_acquire(&s.shm.queues[level.queue].min_offset))
    if level.next >= t.read_to:
        t.read_to = most                                                              # timer TM8
    while level.next < most and count < INDEXED_PER_TURN:
        if not entry_at(s, level, level.next, most, &item):
            wake_ms[0] = min(wake_ms[0], now_ms + TIMER_RETRY_MS)
            break
        if item.log_position > t.wheel.last_log_position and not (                    # timer_wheel TW2
                positions_have(&t.found, item.log_position)):                         # timer TM3
            found = timer_read(s, item.log_position, item.record_size, &at, &record, &message)
            if found == RECORD_LATER:
                wake_ms[0] = min(wake_ms[0], now_ms + TIMER_RETRY_MS)
                break
            if found:
                note_skip(s, found, TIMER_LEVEL, level.next, item.log_position)
            elif level.next >= t.safe_offset or (message.due_ms - 1) // TIMER_SECOND_MS >= t.safe_second:
                if (level.next < t.made_to and message.rolled and timer_is_made(s, &record)
                        and positions_add(&t.rolled, record.prepared_position)):
                    t.rolled_anew = True
                error = add_unit(s, &record, &message, level.next, store_ms)
                if error:
                    fail_timer(t, error, now_ms)
                    wake_ms[0] = min(wake_ms[0], t.retry_ms)
                    break
        level.next += 1
        count += 1
    if count:
        wheel_note(&t.wheel, t.second, level.next)
    return count


cdef void timer_settle(Scheduler* s, int64_t unit, int32_t kind) noexcept nogil:
    cdef Timer* t = &s.timer
    cdef TimerUnit settled
    if wheel_unit(&t.wheel, unit, &settled) and not settled.state & UNIT_SETTLED:
        counts_add(t, s.book.state, &settled, -1)
    wheel_mark(&t.wheel, unit, UNIT_SETTLED)                                          # timer TM3
    timer_settle_recall(t, kind)


cdef void timer_settle_recall(Timer* t, int32_t kind) noexcept nogil:
    if kind != KIND_OF_SLOT:
        t.waiting[1 if kind == KIND_ODD else 0] -= 1
