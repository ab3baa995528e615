"""Delivery at a time (timer.pxd has its rules)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from mqcore.atomics cimport load_i64_acquire, store_i64_release
from mqcore.layout cimport (
    FIGURE_DELIVERED,
    FIGURE_REPUTS,
    PUT_MESSAGE_ILLEGAL,
    TOPIC_LENGTH_MAX,
    TIMER_LATENESS,
    AppendHead,
    AppendResult,
    ScheduleState,
)
from mqcore.shm.store_clock cimport store_clock_at, store_clock_steady_of
from mqcore.shm.tables cimport name_hash
from mqcore.store.log.append_end cimport append_bytes_max, append_claim, append_records, append_to
from mqcore.store.log.put_results cimport put_is_stored
from mqcore.store.log.view cimport log_next_use
from mqcore.store.queue.place cimport queue_id_of_late
from mqcore.store.record cimport RecordView
from mqcore.store.schedule.book cimport book_move_position
from mqcore.store.schedule.levels cimport (
    DELIVERY_NUMBER_MASK,
    FLIGHT_MAX,
    NOTE_NO_PLACE,
    NOTE_TOO_LARGE,
    NOTE_UNREADABLE,
    RECORD_LATER,
    Scheduler,
    hand_in,
    note_skip,
    record_at,
)
from mqcore.store.schedule.timer_index cimport (
    KIND_OF_SLOT,
    LATE_MAX,
    RECALL_KEY_MAX,
    ROLL_MS,
    TIMER_LEVEL,
    TIMER_RETRY_MS,
    timer_distrust,
    timer_find_recall,
    timer_find_queue,
    timer_fits,
    timer_index,
    timer_is_made,
    timer_is_rolled,
    timer_note_recall,
    timer_open,
    timer_read,
    timer_settle,
    timer_settle_recall,
    timer_survey,
)
from mqcore.store.schedule.timer_counts cimport counts_go_on
from mqcore.store.schedule.timer_items cimport (
    TimerItem,
    heap_pop,
    heap_push,
    item_before,
    items_free,
    items_sort,
    positions_add,
    positions_free,
    positions_have,
    positions_sort,
    recalls_add,
    recalls_expire,
    recalls_find,
    recalls_free,
)
from mqcore.store.schedule.timer_record cimport (
    TIMER_PROPERTIES_MAX,
    TIMER_SECOND_MS,
    TimedMessage,
    timed_is_twin,
    timed_message,
    timed_write,
)
from mqcore.store.schedule.timer_state cimport TIMER_KINDS, Timer
from mqcore.store.schedule.timer_wheel cimport (
    TIMER_DELETE,
    TIMER_ROLL,
    UNIT_LATE,
    UNIT_SETTLED,
    TimerUnit,
    wheel_clear,
    wheel_drop_settled,
    wheel_close,
    wheel_last,
    wheel_next,
    wheel_note,
    wheel_sync,
    wheel_trim,
    wheel_unit,
    wheel_units,
)
from mqcore.store.topic_names cimport TIMER_TOPIC, TIMER_TOPIC_LENGTH

cdef enum:
    COLLECTED_MAX = 1 << 20            # TM7
    FAR_MAX = 1 << 16                  # TM6: messages of a second that are compared
    KIND_MASK = 3                      # of a delivery's name: units stand at multiples of 4
    TRIM_SECONDS = 64
    NOT_DELIVERED = -3                 # it was recalled, or stored again
    WRONG_UNIT = -4                    # of a record whose place another one has taken
    NO_ROOM = -2


cdef void timer_begin(Scheduler* s, const char* root) noexcept nogil:
    snprintf(s.timer.root, sizeof(s.timer.root), b"%s", root)
    s.timer.collected_max = COLLECTED_MAX
    s.timer.held_second = -1
    s.timer.known_position = INT64_MAX


cdef void timer_load(Scheduler* s, int64_t safe_second, int64_t safe_offset, bint trusted) noexcept nogil:
    s.timer.safe_second = safe_second
    s.timer.safe_offset = safe_offset
    s.timer.untrusted = not trusted


cdef void publish_cleared(Scheduler* s) noexcept nogil:
    """TM9. Messages handed over are answered in their order."""
    cdef Timer* t = &s.timer
    cdef int64_t read = s.levels[TIMER_LEVEL].next
    cdef int64_t cleared = 0
    if not t.is_open or s.unknown:
        return
    if s.flying == 0:
        cleared = read
        t.mark = -1
    elif t.mark >= 0 and ((s.answered - t.mark_sent) & DELIVERY_NUMBER_MASK) < DELIVERY_NUMBER_MASK // 2:
        cleared = t.mark
        t.mark = -1
    if t.mark < 0 and cleared < read:
        t.mark, t.mark_sent = read, s.sent
    if cleared > s.book.state.timer_cleared:
        store_i64_release(&s.book.state.timer_cleared, cleared)


cdef void timer_publish(Scheduler* s) noexcept nogil:
    cdef ScheduleState* state = s.book.state
    cdef Timer* t = &s.timer
    cdef int64_t second, offset, position
    timer_safe(s, &second, &offset, &position)
    store_i64_release(&state.timer_second, second)
    store_i64_release(&state.timer_offset, offset)
    store_i64_release(&state.timer_position, position)
    store_i64_release(&state.timer_trusted, 1 if timer_trusts(s) else 0)
    store_i64_release(&state.timer_pending, t.pending)
    store_i64_release(&state.timer_next, 0 if t.pending <= 0 and state.timer_counted else
                      t.second if t.begun else
                      max(t.next_second, t.second) if t.next_second < INT64_MAX else 0)
    publish_cleared(s)


cdef void timer_resume(Scheduler* s) noexcept nogil:
    cdef ScheduleState* state = s.book.state
    timer_load(s, state.timer_second, state.timer_offset, state.timer_trusted != 0)
    s.timer.known_position = state.timer_position
    if s.timer.untrusted:              # what was delivered is searched for from there
        store_i64_release(&state.settled_position, min(state.settled_position, state.timer_position))


cdef void timer_close(Scheduler* s) noexcept nogil:
    wheel_close(&s.timer.wheel)
    items_free(&s.timer.slot)
    items_free(&s.timer.late)
    recalls_free(&s.timer.recalls)
    recalls_free(&s.timer.far)
    positions_free(&s.timer.found)
    positions_free(&s.timer.rolled)
    s.timer.is_open = False


cdef inline int64_t steady_of(Scheduler* s, int64_t due_ms, int64_t now_ms) noexcept nogil:
    """When to look again at what is due at a store time that is not reached."""
    return max(store_clock_steady_of(&s.clock, due_ms), now_ms + 1)


cdef void timer_restart(Scheduler* s) noexcept nogil:
    cdef Timer* t = &s.timer
    cdef int i
    t.slot.count = t.late.count = 0
    t.slot_next = 0
    t.begun = t.more = False
    for i in range(TIMER_KINDS):
        t.flying[i] = 0
    t.waiting[0] = t.waiting[1] = t.refused = 0
    t.read_to = t.rolled_to = 0
    t.mark = -1
    recalls_free(&t.recalls)
    recalls_free(&t.far)
    positions_sort(&t.found)
    if t.is_open and (t.untrusted or not timer_fits(s)):
        timer_distrust(s)
    if t.is_open:
        t.life_begin = t.wheel.end
        t.next_second = t.second
        timer_survey(s)


cdef void timer_found(Scheduler* s, const RecordView* made) noexcept nogil:
    """Its prepared position counts if it was made from the record there."""
    if timer_is_made(s, made):
        positions_add(&s.timer.found, made.prepared_position)
        s.timer.held_second = max(s.timer.held_second, made.store_time_ms // TIMER_SECOND_MS)


# -- a second begins -------------------------------------------------------------------------------


cdef bint collect(Scheduler* s) noexcept nogil:
    """
    Read the unsettled units of the slot of `second`: its recalls first, then the earliest COLLECTED_MAX
    messages behind those that were handed over. False: the slot does not have the units that it counts.
    """
    cdef Timer* t = &s.timer
    cdef TimerItem item, passed
    cdef TimerUnit unit
    cdef RecordView record
    cdef TimedMessage marker
    cdef const uint8_t* at
    cdef int64_t position = wheel_last(&t.wheel, t.second)
    cdef int32_t units = 0
    cdef bint again = t.more and t.slot.count > 0
    if again:
        passed = t.slot.items[t.slot.count - 1]
    t.slot.count = t.slot_next = 0
    t.more = False
    while position >= 0 and wheel_unit(&t.wheel, position, &unit) and unit.second == t.second:
        position = unit.previous
        units += 1
        if unit.state & UNIT_LATE and unit.position >= t.life_begin:
            continue
        if unit.state & UNIT_SETTLED:
            continue
        if positions_have(&t.found, unit.log_position) or timer_is_rolled(t, unit.log_position):
            timer_settle(s, unit.position, KIND_OF_SLOT)
            continue
        if unit.magic & TIMER_DELETE and not unit.magic & TIMER_ROLL:
            if timer_read(s, unit.log_position, unit.size, &at, &record, &marker) == 0:
                timer_note_recall(s, &marker, unit.log_position, t.second)
            if not again:
                timer_settle_recall(t, KIND_OF_SLOT)
            continue
        item.due_ms, item.log_position, item.unit = unit.due_ms, unit.log_position, unit.position
        item.kind = KIND_OF_SLOT
        if again and not item_before(&passed, &item):
            continue
        if t.slot.count == t.collected_max:
            t.more = True
            if not item_before(&item, &t.slot.items[0]):
                continue
            heap_pop(&t.slot, False)
        if not heap_push(&t.slot, &item, False, t.collected_max):
            t.more = True              # no memory: what is there goes first
    items_sort(&t.slot)
    return units == wheel_units(&t.wheel, t.second)


cdef bint begin_second(Scheduler* s, int64_t store_ms, int64_t now_ms,
                       int64_t* wake_ms) noexcept nogil:
    """Whether a second has begun, or begins now."""
    cdef Timer* t = &s.timer
    cdef int64_t now_second = store_ms // TIMER_SECOND_MS
    if t.begun:
        return True
    if s.levels[TIMER_LEVEL].next < t.rolled_to:                                      # TM6
        return False
    if t.waiting[t.second & 1] == 0 and wheel_units(&t.wheel, t.second) == 0:
        if t.next_second <= t.second:
            t.next_second = wheel_next(&t.wheel, t.second)
        if t.next_second > now_second:
            if now_second > t.second:
                t.second = now_second
            if s.levels[TIMER_LEVEL].flying == 0 and t.late.count == 0 and t.late_until < t.second:
                t.safe_position = t.begun_position = load_i64_acquire(&s.shm.log.published)
            if t.next_second < INT64_MAX:
                wake_ms[0] = min(wake_ms[0], steady_of(s, t.next_second * TIMER_SECOND_MS, now_ms))
            return False
        t.second = t.next_second
    if t.second > now_second:
        wake_ms[0] = min(wake_ms[0], steady_of(s, t.second * TIMER_SECOND_MS, now_ms))
        return False
    t.begun = True
    t.safe_position, t.begun_position = t.begun_position, load_i64_acquire(&s.shm.log.published)
    recalls_expire(&t.recalls, t.second)
    recalls_expire(&t.far, t.second)
    if not collect(s):                 # damage: made again from the queue (TM5)
        t.untrusted = s.unknown = True
        wake_ms[0] = min(wake_ms[0], now_ms + 1)
        return False
    return True


cdef void end_second(Scheduler* s) noexcept nogil:
    """TM2: `second` is settled."""
    cdef Timer* t = &s.timer
    wheel_clear(&t.wheel, t.second)
    t.second += 1
    t.begun = False
    wheel_note(&t.wheel, t.second, s.levels[TIMER_LEVEL].next)
    if t.second % TRIM_SECONDS == 0:
        wheel_trim(&t.wheel, t.second)


# -- handing over ----------------------------------------------------------------------------------


cdef bint is_recalled(Scheduler* s, const TimedMessage* message) noexcept nogil:
    """The search moves the log's mapped places (view L2): the caller reads its record again."""
    cdef uint8_t[RECALL_KEY_MAX] key
    cdef int32_t topic_length = message.place.topic_length
    cdef int32_t length = topic_length + 1 + message.unique.value_length
    if message.unique.value_length == 0 or length > RECALL_KEY_MAX:
        return False
    memcpy(key, message.place.topic, topic_length)
    key[topic_length] = c'+'
    memcpy(key + topic_length + 1, message.unique.value, message.unique.value_length)
    return timer_find_recall(s, key, length) >= 0


cdef bint may_have_twin(const RecordView* record, const TimedMessage* message) noexcept nogil:
    """Whether a message was more than ROLL_MS ahead, in this record or before."""
    return message.unique.value_length > 0 and (
        message.rolled > 0 or message.due_ms - record.store_time_ms >= ROLL_MS)


cdef bint is_twin(Scheduler* s, const RecordView* record, const TimedMessage* message) noexcept nogil:
    """Whether another record of the same message was handed over in this second (TM6)."""
    cdef RecordView other
    cdef TimedMessage found
    cdef uint64_t hash = name_hash(message.unique.value, message.unique.value_length,
                                   <uint64_t>message.due_ms)
    cdef int32_t place = recalls_find(&s.timer.far, hash, -1)
    while place >= 0:                  # all stay mapped: it is one use of the log (view L2)
        if (s.timer.far.places[place].marker != record.log_position
                and record_at(s, s.timer.far.places[place].marker, &other) != NULL
                and timed_message(&other, &found) == 0
                and timed_is_twin(record, message, &other, &found)):
            return True
        place = recalls_find(&s.timer.far, hash, place)
    recalls_add(&s.timer.far, hash, record.log_position, message.due_ms // TIMER_SECOND_MS + 1,
                FAR_MAX)
    return False


cdef void note_lateness(ScheduleState* state, int64_t late_ms) noexcept nogil:
    """Bucket i has what was at most 2^i ms late, the last one the rest."""
    cdef int i = 0
    while i < TIMER_LATENESS - 1 and late_ms > <int64_t>1 << i:
        i += 1
    store_i64_release(&state.timer_lateness[i], state.timer_lateness[i] + 1)
    store_i64_release(&state.timer_late_ms, state.timer_late_ms + max(late_ms, <int64_t>0))


cdef int hand_over_timed(Scheduler* s, const TimerItem* item, int64_t store_ms) noexcept nogil:
    """0, a NoteKind, RECORD_LATER, NO_ROOM, NOT_DELIVERED, or WRONG_UNIT."""
    cdef Timer* t = &s.timer
    cdef RecordView record
    cdef TimedMessage message
    cdef TimerUnit unit
    cdef const uint8_t* at
    cdef AppendHead* head
    cdef int32_t most, size, queue_id = 0
    cdef bint rolls
    cdef int found
    if not wheel_unit(&t.wheel, item.unit, &unit):
        return NOTE_UNREADABLE
    if timer_is_rolled(t, unit.log_position):
        return NOT_DELIVERED
    found = timer_read(s, unit.log_position, unit.size, &at, &record, &message)
    if found > 0 and unit.log_position >= load_i64_acquire(&s.shm.log.first):
        return WRONG_UNIT              # the queue tells what stands there, or that nothing does
    if found:
        return found
    rolls = (unit.magic & TIMER_ROLL) != 0
    if not rolls and message.due_ms > store_ms:                                       # TM4
        return WRONG_UNIT
    if not rolls and t.recalls.count:
        if is_recalled(s, &message):
            return NOT_DELIVERED
        found = timer_read(s, unit.log_position, unit.size, &at, &record, &message)
        if found:
            return found
    if not rolls and may_have_twin(&record, &message) and is_twin(s, &record, &message):
        return NOT_DELIVERED
    if not rolls:
        queue_id = queue_id_of_late(s.shm, message.place.topic, message.place.topic_length,
                                    message.place.queue_id)
        if queue_id < 0:
            return NOTE_NO_PLACE
        message.place.queue_id = queue_id
    most = record.size + TOPIC_LENGTH_MAX + TIMER_PROPERTIES_MAX
    if most > append_bytes_max(&s.appends):
        return NOTE_TOO_LARGE
    head = append_claim(&s.appends, most)
    if head == NULL:
        s.wanted_bytes = most
        return NO_ROOM
    size = timed_write(at, &record, &message, rolls, record.store_time_ms, store_ms,
                       append_records(head), &head.topic_start)
    if rolls:
        append_to(head, name_hash(<const uint8_t*>TIMER_TOPIC, TIMER_TOPIC_LENGTH, 0),
                  TIMER_TOPIC_LENGTH, 0)
    else:
        append_to(head, name_hash(message.place.topic, message.place.topic_length, 0),
                  message.place.topic_length, queue_id)
        note_lateness(s.book.state, store_ms - message.due_ms)
    hand_in(s, head, TIMER_LEVEL, item.unit | item.kind, size, record.sys_flag)
    return 0


cdef const TimerItem* next_item(Timer* t, bint* of_slot) noexcept nogil:
    """The earliest of what is in memory; NULL: nothing is."""
    cdef bint has_slot = t.slot_next < t.slot.count
    of_slot[0] = has_slot and (t.late.count == 0 or item_before(
        &t.slot.items[t.slot_next], &t.late.items[0]))
    if of_slot[0]:
        return &t.slot.items[t.slot_next]
    return &t.late.items[0] if t.late.count else NULL


cdef int64_t deliver_timed(Scheduler* s, int64_t store_ms, int64_t now_ms,
                           int64_t* wake_ms) noexcept nogil:
    cdef Timer* t = &s.timer
    cdef const TimerItem* next
    cdef TimerItem item
    cdef int64_t count = 0
    cdef bint of_slot
    cdef int handed
    while s.flying < FLIGHT_MAX:
        if t.slot_next == t.slot.count and t.more and t.begun and not collect(s):
            t.untrusted = s.unknown = True
            break
        next = next_item(t, &of_slot)
        if next == NULL:
            break
        if next.due_ms > store_ms:                                                    # TM4
            wake_ms[0] = min(wake_ms[0], steady_of(s, next.due_ms, now_ms))
            break
        item = next[0]
        handed = hand_over_timed(s, &item, store_ms)
        if handed == NO_ROOM:
            break
        if handed == WRONG_UNIT:       # delivery S5 first: some of its messages are on their way
            t.untrusted = s.unknown = True
            wake_ms[0] = min(wake_ms[0], now_ms + 1)
            break
        if handed == RECORD_LATER:
            wake_ms[0] = min(wake_ms[0], now_ms + TIMER_RETRY_MS)
            break
        if of_slot:
            t.slot_next += 1
        else:
            heap_pop(&t.late, True)
            t.refused -= item.kind == KIND_OF_SLOT
        count += 1
        if handed == 0:
            t.flying[item.kind] += 1
            continue
        if handed != NOT_DELIVERED:
            note_skip(s, handed, TIMER_LEVEL, -1, item.log_position)
        timer_settle(s, item.unit, item.kind)
    return count


cdef bint is_settled(const Timer* t) noexcept nogil:
    """TM2."""
    return (t.begun and not t.more and t.slot_next == t.slot.count and t.refused == 0
            and t.flying[KIND_OF_SLOT] == 0 and t.waiting[t.second & 1] == 0)


cdef void timer_result(Scheduler* s, const AppendResult* result, int64_t name) noexcept nogil:
    """The outcome of what was handed over in this life, or in an earlier one."""
    cdef Timer* t = &s.timer
    cdef int32_t kind = <int32_t>(name & KIND_MASK)
    cdef int64_t position = name & ~<int64_t>KIND_MASK
    cdef bint own = result.producer_incarnation == s.appends.incarnation and not s.unknown
    cdef TimerUnit unit
    cdef TimerItem item
    if not own:
        return                         # the search of the log finds it
    t.flying[kind] -= 1
    if not wheel_unit(&t.wheel, position, &unit):
        return
    if put_is_stored(result.status) or result.status == PUT_MESSAGE_ILLEGAL:
        if put_is_stored(result.status):
            s.slot.figures[FIGURE_DELIVERED] += 1
        else:
            note_skip(s, NOTE_TOO_LARGE, TIMER_LEVEL, -1, unit.log_position)
        if put_is_stored(result.status) and unit.magic & TIMER_ROLL:
            t.rolled_to = max(t.rolled_to, result.queue_offset + 1)
        timer_settle(s, position, kind)
        if put_is_stored(result.status):
            book_move_position(&s.book, result.log_position)
        return
    s.slot.figures[FIGURE_REPUTS] += 1
    item.due_ms = store_clock_at(&s.clock, s.turn_ms) + TIMER_RETRY_MS
    item.log_position, item.unit, item.kind = unit.log_position, position, kind
    t.refused += kind == KIND_OF_SLOT
    if not heap_push(&t.late, &item, True, LATE_MAX + FLIGHT_MAX):
        s.unknown = True               # no memory: everything begins anew from the wheel


# -- a turn ----------------------------------------------------------------------------------------


cdef int64_t timer_turn(Scheduler* s, int64_t now_ms, int64_t* wake_ms) noexcept nogil:
    cdef Timer* t = &s.timer
    cdef int64_t store_ms, count = 0
    if t.root[0] == 0:
        return 0
    if not timer_find_queue(s):
        t.safe_position = t.begun_position = load_i64_acquire(&s.shm.log.published)
        return 0
    if t.retry_ms > now_ms:
        wake_ms[0] = min(wake_ms[0], t.retry_ms)
    store_ms = store_clock_at(&s.clock, now_ms)
    if not t.is_open and (t.retry_ms > now_ms or not timer_open(s, store_ms, now_ms)):
        wake_ms[0] = min(wake_ms[0], now_ms + TIMER_RETRY_MS)
        return 0
    if t.retry_ms <= now_ms:
        count += timer_index(s, store_ms, now_ms, wake_ms)
        if count and s.levels[TIMER_LEVEL].next < t.read_to:                          # TM8
            timer_publish(s)
            return count
    while begin_second(s, store_ms, now_ms, wake_ms):
        count += deliver_timed(s, store_ms, now_ms, wake_ms)
        if not is_settled(t):
            break
        end_second(s)
    if not t.begun:
        count += deliver_timed(s, store_ms, now_ms, wake_ms)       # late ones of the next second
    count += counts_go_on(t, s.book.state)
    timer_publish(s)
    return count


cdef void timer_safe(Scheduler* s, int64_t* second, int64_t* queue_offset, int64_t* position) noexcept nogil:
    position[0] = INT64_MAX
    if s.timer.is_open or s.timer.untrusted or s.timer.safe_second > 0:
        position[0] = s.timer.safe_position
    second[0] = s.timer.second if s.timer.is_open else s.timer.safe_second
    if s.timer.held_second >= second[0]:           # the clock may be behind what is delivered
        position[0] = min(position[0], s.timer.held_position)
    queue_offset[0] = s.levels[TIMER_LEVEL].next if s.timer.is_open else s.timer.safe_offset
    if s.timer.is_open and s.timer.late_until >= s.timer.second:
        queue_offset[0] = min(queue_offset[0], s.timer.lowest_late)


cdef bint timer_trusts(const Scheduler* s) noexcept nogil:
    cdef const Timer* t = &s.timer
    if not t.is_open:
        return not t.untrusted
    return s.levels[TIMER_LEVEL].next >= t.made_to and t.rolled.count == 0


cdef int timer_end(Scheduler* s) noexcept nogil:
    cdef Timer* t = &s.timer
    if not t.is_open:
        return 0
    wheel_drop_settled(&t.wheel, t.second)
    wheel_drop_settled(&t.wheel, t.second + 1)
    wheel_note(&t.wheel, t.second, s.levels[TIMER_LEVEL].next)
    return wheel_sync(&t.wheel)
