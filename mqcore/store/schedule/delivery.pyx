"""Delivery of delayed messages (delivery.pxd has its rules)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i64_release
from mqcore.layout cimport (
    FIGURE_DELIVERED,
    FIGURE_REPUTS,
    PUT_MESSAGE_ILLEGAL,
    PUT_WRITER_RESTARTED,
    SCHEDULE_AHEAD_MAX,
    SLOT_WRITER,
    WORKER_RUNNING,
    AppendHead,
    AppendResult,
)
from mqcore.shm.ring cimport ring_has_room, ring_is_empty, ring_next, ring_release
from mqcore.shm.segment cimport doorbell_ring
from mqcore.shm.store_clock cimport store_clock_at, store_clock_look, store_clock_steady_of
from mqcore.shm.tables cimport name_hash
from mqcore.store.log.append_end cimport (
    append_bytes_max,
    append_claim,
    append_push,
    append_records,
    append_to,
)
from mqcore.store.log.put_results cimport put_is_stored
from mqcore.store.queue.consume_queue cimport QueueItem
from mqcore.store.queue.place cimport queue_id_of_late
from mqcore.store.log.view cimport log_next_use
from mqcore.store.record cimport RecordView
from mqcore.store.schedule.book cimport book_has, book_move_position, book_settle
from mqcore.store.schedule.levels cimport (
    DELIVERY_NAME_BITS,
    DELIVERY_NUMBER_MASK,
    FLIGHT_MAX,
    NOTE_NO_PLACE,
    NOTE_TOO_LARGE,
    PHASE_DELIVERING,
    PHASE_SEARCHING,
    PHASE_SETTLING,
    RECORD_LATER,
    Level,
    Scheduler,
    delayed_record,
    hand_in,
    level_end,
    level_begin,
    level_entry,
    level_keep_in_range,
    levels_find_queues,
    note_skip,
    record_at,
)
from mqcore.store.schedule.record cimport RealPlace, delivery_size, delivery_write
from mqcore.store.schedule.timer_index cimport TIMER_LEVEL
from mqcore.store.schedule.timer cimport timer_restart, timer_result, timer_turn
from mqcore.store.schedule.replay cimport entry_is, replay_begin, replay_step

cdef enum:
    BACKOFF_MS = 100
    SETTLE_LOOK_MS = 5
    PUBLISH_LOOK_MS = 2
    CLOCK_STEP_MS = 10_000            # the store's clock may be so far ahead of ours
    SEARCH_RECORDS = 20_000           # of one turn
    HANDED_OVER = 0
    HANDED_NO_ROOM = -2


# -- handing over ----------------------------------------------------------------------------------


cdef int hand_over(Scheduler* s, int32_t number, int64_t offset, const QueueItem* item,
                   int64_t now_ms) noexcept nogil:
    """One delivery into the ring; HANDED_OVER, HANDED_NO_ROOM, RECORD_LATER or a NoteKind."""
    cdef RecordView delayed
    cdef RealPlace place
    cdef const uint8_t* at
    cdef AppendHead* head
    cdef int32_t size
    cdef int found
    log_next_use(&s.log)
    found = delayed_record(s, item, &at, &delayed, &place)
    if found:
        return found
    place.queue_id = queue_id_of_late(s.shm, place.topic, place.topic_length, place.queue_id)
    if place.queue_id < 0:
        return NOTE_NO_PLACE
    size = delivery_size(&delayed, &place)
    if size > append_bytes_max(&s.appends):
        return NOTE_TOO_LARGE
    head = append_claim(&s.appends, size)
    if head == NULL:
        s.wanted_bytes = size
        return HANDED_NO_ROOM
    head.topic_start = delivery_write(at, &delayed, &place, store_clock_at(&s.clock, now_ms),
                                      append_records(head))
    append_to(head, name_hash(place.topic, place.topic_length, 0), place.topic_length, place.queue_id)
    hand_in(s, head, number, offset, size, delayed.sys_flag)
    return HANDED_OVER


cdef bint is_due(Scheduler* s, const Level* level, int64_t due_ms, int64_t now_ms,
                 int64_t* wake_ms) noexcept nogil:
    """
    S6. A time is too far away only if an earlier turn has seen its entry: one that is younger than
    now_ms may seem so. What the writer stamped a little ahead of the clock is not too far away.
    """
    cdef int64_t last_ms = load_i64_acquire(&s.shm.log.last_store_time_ms)
    cdef int64_t store_ms = store_clock_at(&s.clock, now_ms)
    if store_ms < last_ms <= store_ms + CLOCK_STEP_MS:
        store_ms = last_ms
    if due_ms > store_ms + level.delay_ms:
        if level.next < level.seen_end:
            return True
        due_ms = now_ms
    else:
        due_ms = store_clock_steady_of(&s.clock, due_ms - level.delay_ms) + level.delay_ms
        if due_ms < now_ms:
            return True
    wake_ms[0] = min(wake_ms[0], due_ms + 1)
    return False


cdef bint may_go_on(Scheduler* s, int32_t number, int64_t now_ms, int64_t steady,
                    int64_t* wake_ms) noexcept nogil:
    """Whether a level may hand over: it has a queue, and is not waiting after a refusal."""
    cdef Level* level = &s.levels[number]
    if level.queue < 0:
        return False
    if level.failed:
        if level.flying:
            return False
        if level.retry_ms == 0:
            level.retry_ms = steady + BACKOFF_MS
            if level.limit == INT64_MAX:
                level.limit = level.next
        if steady < level.retry_ms:
            wake_ms[0] = min(wake_ms[0], now_ms + level.retry_ms - steady)
            return False
        level.failed = False
        level.retry_ms = 0
        level.next = s.book.state.offsets[number]
    if s.book.state.offsets[number] >= level.limit:
        level.limit = INT64_MAX
    if level.flying == 0 and level.next == s.book.state.offsets[number]:
        level_keep_in_range(s, number)
    return True


cdef int64_t deliver_level(Scheduler* s, int32_t number, int64_t now_ms, int64_t steady,
                           int64_t* wake_ms) noexcept nogil:
    cdef Level* level = &s.levels[number]
    cdef int64_t most, count = 0
    cdef QueueItem item
    cdef int handed
    if not may_go_on(s, number, now_ms, steady, wake_ms):
        return 0
    most = level_end(s, level)
    while (level.next < min(most, level.limit) and s.flying < FLIGHT_MAX
           and s.flying + s.book.ahead_count < SCHEDULE_AHEAD_MAX):
        if s.book.ahead_count and book_has(&s.book, number, level.next):
            level.next += 1
            continue
        if not level_entry(s, number, level.next, most, &item):
            wake_ms[0] = min(wake_ms[0], now_ms + BACKOFF_MS)
            break
        if not is_due(s, level, item.tag_code, now_ms, wake_ms):
            break
        handed = hand_over(s, number, level.next, &item, now_ms)
        if handed == RECORD_LATER:
            wake_ms[0] = min(wake_ms[0], now_ms + BACKOFF_MS)
            break
        if handed == HANDED_NO_ROOM:
            break
        if handed != HANDED_OVER:
            if level.flying:           # skipped in its order: after those before it
                break
            note_skip(s, handed, number, level.next, item.log_position)
            book_settle(&s.book, number, level.next)
        level.next += 1
        count += 1
        if level.next == most:
            most = level_end(s, level)
    level.seen_end = most
    return count


# -- results ---------------------------------------------------------------------------------------


cdef inline bint is_stored(const AppendResult* result) noexcept nogil:
    return put_is_stored(result.status)


cdef bint is_news(Scheduler* s, const AppendResult* result) noexcept nogil:
    """Whether a result is the first one to an append; and count it off."""
    cdef int32_t number = <int32_t>(result.connection >> DELIVERY_NAME_BITS)
    if result.producer_incarnation != s.appends.incarnation:
        return True                    # to an earlier life's: settling twice changes nothing
    if ((number - s.answered - 1) & DELIVERY_NUMBER_MASK) >= s.flying:
        return False                   # answered before, by a writer that died then
    s.answered = number
    s.flying = (s.sent - number) & DELIVERY_NUMBER_MASK
    s.levels[result.queue_id].flying -= 1
    return True


cdef bint writer_changed(Scheduler* s) noexcept nogil:
    return (load_i32_acquire(&s.shm.slots[SLOT_WRITER].incarnation)
            != s.book.state.writer)


cdef void settle_put(Scheduler* s, const AppendResult* result, int32_t number,
                     int64_t offset) noexcept nogil:
    cdef RecordView found
    cdef const uint8_t* at
    if book_has(&s.book, number, offset):
        return
    log_next_use(&s.log)
    at = record_at(s, result.log_position, &found)     # it may have further properties by the writer
    if ((s.unknown or result.producer_incarnation != s.appends.incarnation)
            and (at == NULL or not entry_is(s, number, offset, at, &found))):
        return
    if at != NULL and not s.unknown:
        book_move_position(&s.book, result.log_position + found.size)                # book S3
    book_settle(&s.book, number, offset)
    s.slot.figures[FIGURE_DELIVERED] += 1
    store_i64_release(&s.book.state.delivered, s.book.state.delivered + 1)


cdef void take_result(Scheduler* s, const AppendResult* result) noexcept nogil:
    cdef int64_t offset = result.connection & ((<uint64_t>1 << DELIVERY_NAME_BITS) - 1)
    cdef int32_t number = result.queue_id
    if (not 0 <= number < s.level_count and number != TIMER_LEVEL) or not is_news(s, result):
        return
    if number == TIMER_LEVEL and result.status != PUT_WRITER_RESTARTED:
        timer_result(s, result, offset)
        return
    if is_stored(result):
        settle_put(s, result, number, offset)
    elif result.status == PUT_MESSAGE_ILLEGAL:
        note_skip(s, NOTE_TOO_LARGE, number, offset, -1)
        book_settle(&s.book, number, offset)
    elif result.status == PUT_WRITER_RESTARTED:
        s.unknown = True
    else:
        s.slot.figures[FIGURE_REPUTS] += 1
        s.levels[number].failed = True


cdef int64_t take_results(Scheduler* s, int64_t now_ms, int64_t* wake_ms) noexcept nogil:
    cdef uint8_t* record
    cdef AppendResult* result
    cdef int32_t kind
    cdef int64_t before, count = 0
    s.awaited = 0
    while True:
        before = s.appends.results.position
        if ring_next(&s.appends.results, &record, &kind) < 0:
            break
        result = <AppendResult*>record
        if (is_stored(result) and not writer_changed(s)
                and result.log_position >= load_i64_acquire(&s.shm.log.published)):
            s.appends.results.position = before                      # S5
            s.awaited = result.log_position + 1
            wake_ms[0] = min(wake_ms[0], now_ms + PUBLISH_LOOK_MS)
            break
        take_result(s, result)
        count += 1
    if ring_release(&s.appends.results):
        doorbell_ring(&s.shm.slots[SLOT_WRITER])
    return count


cdef void take_arrivals(Scheduler* s) noexcept nogil:
    """What they say is seen in the queues' ends; new queues are looked up."""
    cdef uint8_t* record
    cdef int32_t kind
    cdef bint any = False
    while ring_next(&s.arrivals, &record, &kind) >= 0:
        any = True
    if any:
        ring_release(&s.arrivals)
        levels_find_queues(s)


# -- a turn ----------------------------------------------------------------------------------------


cdef int64_t take_last_results(Scheduler* s, int64_t now_ms, int64_t* wake_ms) noexcept nogil:
    """S5: when every result is read, and the writer has shown all of the log, the search begins."""
    cdef bint drained = load_i64_acquire(&s.appends.appends.cursors.head) == s.appends.appends.position
    cdef int64_t count = take_results(s, now_ms, wake_ms)
    cdef int32_t writer = load_i32_acquire(&s.shm.slots[SLOT_WRITER].incarnation)
    cdef int32_t i
    if (not drained or not ring_is_empty(&s.appends.results)
            or load_i32_acquire(&s.shm.slots[SLOT_WRITER].state) != WORKER_RUNNING):
        wake_ms[0] = min(wake_ms[0], now_ms + SETTLE_LOOK_MS)
        return count
    s.book.state.writer = writer       # one that begins after this look is seen by its number
    s.flying = 0
    s.answered = s.sent
    for i in range(s.level_count):
        s.levels[i].flying = 0
    s.levels[TIMER_LEVEL].flying = 0
    levels_find_queues(s)
    replay_begin(s)
    s.phase = PHASE_SEARCHING
    return count + 1


cdef void begin_delivering(Scheduler* s) noexcept nogil:
    cdef int32_t i
    s.unknown = False
    book_move_position(&s.book, s.search_end)
    for i in range(s.level_count):
        level_begin(&s.book, &s.levels[i], i)
    timer_restart(s)
    s.phase = PHASE_DELIVERING


cdef int64_t schedule_turn(Scheduler* s, int64_t now_ms, int64_t steady,
                           int64_t* wake_ms) noexcept nogil:
    cdef int64_t count
    cdef int32_t i
    wake_ms[0] = INT64_MAX
    s.wanted_bytes = 0
    s.turn_ms = now_ms
    s.unknown |= writer_changed(s)
    store_clock_look(s.shm.clock, &s.clock)
    count = take_results(s, now_ms, wake_ms)
    take_arrivals(s)
    if s.phase == PHASE_DELIVERING and s.unknown:
        s.phase = PHASE_SETTLING
    if s.phase == PHASE_SETTLING:
        count += take_last_results(s, now_ms, wake_ms)
    if s.phase == PHASE_SEARCHING:
        count += 1
        if replay_step(s, SEARCH_RECORDS):
            begin_delivering(s)
    if s.phase != PHASE_DELIVERING:
        return count
    if s.flying == 0:
        book_move_position(&s.book, load_i64_acquire(&s.shm.log.published))
    for i in range(s.level_count):
        count += deliver_level(s, i, now_ms, steady, wake_ms)
    count += timer_turn(s, now_ms, wake_ms)
    append_push(&s.appends)
    return count


cdef bint schedule_has_work(Scheduler* s) noexcept nogil:
    if s.awaited and load_i64_acquire(&s.shm.log.published) < s.awaited and not writer_changed(s):
        return not ring_is_empty(&s.arrivals)
    if not ring_is_empty(&s.appends.results) or not ring_is_empty(&s.arrivals):
        return True
    return s.wanted_bytes > 0 and ring_has_room(&s.appends.appends, <int32_t>sizeof(AppendHead) + s.wanted_bytes)


cdef bint schedule_is_quiet(Scheduler* s) noexcept nogil:
    return (s.phase >= PHASE_DELIVERING and s.flying == 0 and s.book.ahead_count == 0
            and not s.unknown)
