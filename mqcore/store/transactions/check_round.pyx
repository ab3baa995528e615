"""Rounds over undecided half messages (check_round.pxd has the rules)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i64_release
from mqcore.endian cimport load_i32, store_i32
from mqcore.layout cimport (
    CHECK_REQUEST,
    CHECK_TOPIC,
    GROUP_LENGTH_MAX,
    PROPERTIES_LENGTH_MAX,
    RECORD_RECONSUME_TIMES_AFTER_HOSTS,
    REQUEST_WAITS,
    SLOT_WRITER,
    TOPIC_LENGTH_MAX,
    AppendHead,
    AppendResult,
    CheckHead,
    TransactionState,
)
from mqcore.shm.ring cimport (
    ring_claim,
    ring_claim_or_ask,
    ring_finish,
    ring_length_max,
    ring_next,
    ring_release,
)
from mqcore.shm.segment cimport doorbell_ring
from mqcore.shm.store_clock cimport (
    store_clock_look,
    store_clock_shown,
    store_clock_steady_of,
    store_clock_wall_of,
)
from mqcore.shm.tables cimport name_hash
from mqcore.store.log.append_end cimport (
    append_bytes_max,
    append_claim,
    append_finish,
    append_has_room,
    append_push,
    append_records,
    append_to,
)
from mqcore.store.log.put_results cimport put_is_stored
from mqcore.store.queue.half_queue cimport (
    HALF_FOUND,
    HALF_UNREADABLE,
    half_advance,
    half_is_ended,
    half_is_settled,
    half_moved,
    half_next,
    half_ops_wait,
    half_pass_expired,
    half_queue_end,
    half_read_ops,
    half_record,
    half_settle,
)
from mqcore.store.record cimport (
    RecordHead,
    RecordView,
    record_begin,
    record_end,
    record_head,
    record_place,
)
from mqcore.store.topic_names cimport (
    GIVEN_UP_TOPIC,
    GIVEN_UP_TOPIC_LENGTH,
    HALF_TOPIC,
    HALF_TOPIC_LENGTH,
)
from mqcore.store.transactions.half_message cimport (
    CHANGES_LENGTH_MAX,
    NOT_SAID,
    HalfNotes,
    copy_head,
    copy_properties,
    read_notes,
)
from mqcore.wire.check_header cimport CHECK_HEADER_ROOM, CheckedMessage, put_check_header


# -- copies -------------------------------------------------------------------------------------------

cdef int32_t copy_room(const RecordView* record) noexcept nogil:
    return record.size + TOPIC_LENGTH_MAX + CHANGES_LENGTH_MAX


cdef bint append_copy(CheckRound* round, const RecordView* record, const uint8_t* bytes,
                      Flight* flight) noexcept nogil:
    """False: the properties would be too long."""
    cdef const char* topic = GIVEN_UP_TOPIC if flight.action == ACTION_GIVE_UP else HALF_TOPIC
    cdef int32_t topic_length = (GIVEN_UP_TOPIC_LENGTH if flight.action == ACTION_GIVE_UP
                                 else HALF_TOPIC_LENGTH)
    cdef AppendHead* head = append_claim(&round.appends, copy_room(record))
    cdef uint8_t* at = append_records(head)
    cdef uint8_t* properties
    cdef RecordHead copied
    cdef int32_t length
    copy_head(record, bytes, &copied)
    copied.queue_id = 0
    if flight.action == ACTION_GIVE_UP:
        copied.flag = record.flag
        copied.reconsume_times = load_i32(copied.store_host + copied.store_host_size
                                          + RECORD_RECONSUME_TIMES_AFTER_HOSTS)
    properties = record_begin(at, &copied, record.body, record.body_length,
                              <const uint8_t*>topic, topic_length)
    length = copy_properties(record, flight.check_times, flight.original, properties + 2)
    if length > PROPERTIES_LENGTH_MAX:
        return False
    round.next_tag += 1
    head.opaque = flight.tag = round.next_tag
    flight.writer = load_i32_acquire(&round.shm.slots[SLOT_WRITER].incarnation)
    append_to(head, name_hash(<const uint8_t*>topic, topic_length, 0), topic_length, 0)
    head.topic_start = <int32_t>(properties - topic_length - at)
    head.request_flags = REQUEST_WAITS                       # settled when it is durable
    head.bytes_total = record_end(at, properties, length)
    append_finish(&round.appends, head)
    round.budget -= 1
    round.flights[(round.flight_first + round.flight_count) & (FLIGHTS - 1)] = flight[0]
    round.flight_count += 1
    return True


# -- checks -------------------------------------------------------------------------------------------

cdef int32_t check_room(const RecordView* record, const HalfNotes* notes) noexcept nogil:
    return (<int32_t>sizeof(CheckHead) + notes.group.value_length + 8 + CHECK_HEADER_ROOM
            + 12 * notes.unique_key.value_length + record.size + TOPIC_LENGTH_MAX
            + CHANGES_LENGTH_MAX)


cdef bint send_check(CheckRound* round, const Flight* flight, const AppendResult* result) noexcept nogil:
    """The request to a producer (remoting.md 4.8), by way of the coordinator. False: no room now."""
    cdef RecordView record
    cdef HalfNotes notes
    cdef RecordHead copied
    cdef CheckedMessage asked
    cdef const uint8_t* bytes
    cdef CheckHead* head
    cdef uint8_t* frame
    cdef uint8_t* at
    cdef uint8_t* properties
    cdef int32_t room, header_length, body_length
    if half_record(&round.halves, flight.half_offset, &record, &bytes) != HALF_FOUND:
        return True                    # expired meanwhile: the copy is checked in a later round
    read_notes(&record, &notes)
    if not 1 <= notes.group.value_length <= GROUP_LENGTH_MAX or not (
            1 <= notes.real_topic.value_length <= TOPIC_LENGTH_MAX):
        return True                    # nobody could be asked
    room = check_room(&record, &notes)
    if room > ring_length_max(&round.checks):
        return True
    head = <CheckHead*>ring_claim_or_ask(&round.checks, room)
    if head == NULL:
        round.check_room = room
        return False
    memset(head, 0, sizeof(CheckHead))
    head.name_length = notes.group.value_length
    at = <uint8_t*>head + sizeof(CheckHead)
    memcpy(at, notes.group.value, notes.group.value_length)
    frame = at + notes.group.value_length
    record_head(&record, bytes, &copied)       # of what was looked at: its flag, its reconsume times
    round.opaque = (round.opaque + 1) & 0x7FFFFFFF
    asked = CheckedMessage(
        log_position=result.log_position, queue_offset=result.queue_offset,
        store_host=copied.store_host, store_host_size=copied.store_host_size,
        unique_key=notes.unique_key.value, unique_key_length=notes.unique_key.value_length)
    at = put_check_header(frame + 8, &asked, round.opaque)
    header_length = <int32_t>(at - frame - 8)
    copied.queue_id = <int32_t>notes.real_queue_id
    properties = record_begin(at, &copied, record.body, record.body_length, notes.real_topic.value,
                              notes.real_topic.value_length)
    body_length = record_end(at, properties, copy_properties(
        &record, flight.check_times, -1, properties + 2))
    record_place(at, result.queue_offset, result.log_position, record.store_time_ms)
    store_i32(frame, 4 + header_length + body_length)
    store_i32(frame + 4, header_length)
    ring_finish(&round.checks, CHECK_REQUEST, <int32_t>sizeof(CheckHead) + notes.group.value_length + 8
                + header_length + body_length)
    round.shm.transactions.checks += 1
    return True


# -- a round ------------------------------------------------------------------------------------------

cdef bint is_published(CheckRound* round, const AppendResult* result) noexcept nogil:
    """Records of a transient pool die with their writer: only what is published is stored (B1)."""
    return load_i64_acquire(&round.shm.log.published) > result.log_position


cdef inline bint writer_lives(CheckRound* round, const Flight* flight) noexcept nogil:
    return load_i32_acquire(&round.shm.slots[SLOT_WRITER].incarnation) == flight.writer


cdef void note_oldest(CheckRound* round, int64_t born_ms, int64_t copy) noexcept nogil:
    """Copies stand behind younger messages: the first in the queue need not be the oldest."""
    if round.oldest_copy < 0 or born_ms <= round.oldest_born_ms or (
            half_is_settled(&round.halves, round.oldest_copy)):
        round.oldest_copy = copy
        round.oldest_born_ms = born_ms


cdef int64_t oldest_born_ms(CheckRound* round) noexcept nogil:
    cdef RecordView record
    cdef const uint8_t* bytes = NULL
    cdef int64_t born_ms = 0
    if round.halves.half_offset < half_queue_end(&round.halves):
        half_record(&round.halves, round.halves.half_offset, &record, &bytes)
        if bytes != NULL:
            born_ms = record.born_time_ms
    if round.oldest_copy >= 0 and not half_is_settled(&round.halves, round.oldest_copy) and (
            born_ms == 0 or round.oldest_born_ms < born_ms):
        return round.oldest_born_ms
    return born_ms


cdef int land(CheckRound* round, const AppendResult* result) noexcept nogil:
    """One copy is stored, or not: Landing."""
    cdef Flight* flight = &round.flights[round.flight_first]
    cdef bint good = put_is_stored(result.status)
    cdef bint published = good and is_published(round, result)
    good = good and writer_lives(round, flight)
    if good and not published:
        return LANDING_NOT_YET
    if not good:                                                         # B1
        round.over = True
        round.refused = True
    else:
        if flight.action == ACTION_CHECK and not half_is_ended(&round.halves, flight.half_offset) and (
                not send_check(round, flight, result)):
            return LANDING_NO_ROOM
        if flight.action == ACTION_GIVE_UP:
            round.shm.transactions.expired += 1
            good = half_settle(&round.halves, flight.half_offset)
        else:
            good = half_moved(&round.halves, flight.half_offset, flight.original, result.queue_offset)
            note_oldest(round, flight.born_ms, result.queue_offset)
        if not good:
            round.over = True
    round.flight_first = (round.flight_first + 1) & (FLIGHTS - 1)
    round.flight_count -= 1
    return LANDED


cdef int take_results(CheckRound* round) noexcept nogil:
    """Landing: why the next result is not taken yet, or LANDED."""
    cdef uint8_t* record
    cdef int32_t kind
    cdef int64_t before
    cdef AppendResult* result
    cdef int landing = LANDED
    while landing == LANDED:
        before = round.appends.results.position
        if ring_next(&round.appends.results, &record, &kind) < 0:
            break
        result = <AppendResult*>record
        if result.producer_incarnation != round.appends.incarnation or round.flight_count == 0 or (
                result.opaque != round.flights[round.flight_first].tag):
            continue                   # a predecessor's, or answered twice by a writer that died
        landing = land(round, result)
        if landing != LANDED:
            round.appends.results.position = before
    if ring_release(&round.appends.results):
        doorbell_ring(&round.shm.slots[SLOT_WRITER])
    return landing


cdef int64_t age_when_stored(CheckRound* round, const RecordView* record, int64_t stored_ms) noexcept nogil:
    """Below 0: its born time is ahead of our wall clock."""
    cdef int64_t wall_ms = store_clock_wall_of(&round.clock, record.store_time_ms), born_ms
    if record.born_time_ms > wall_ms:
        return wall_ms - record.born_time_ms
    if not store_clock_shown(&round.clock, record.born_time_ms, stored_ms, &born_ms):
        return 0
    return max(min(wall_ms - record.born_time_ms, stored_ms - born_ms), 0)


cdef int decide(CheckRound* round, const RecordView* record, HalfNotes* notes, Flight* flight,
                int64_t now_ms) noexcept nogil:
    """
    Action for an undecided half message (broker.md 5.4 steps d to g); 0: neither it nor what follows
    is due.
    """
    cdef int64_t stored_ms = store_clock_steady_of(&round.clock, record.store_time_ms)
    cdef int64_t age = now_ms - stored_ms + age_when_stored(round, record, stored_ms)        # B5
    cdef int64_t immune_ms = round.timeout_ms
    flight.check_times = 1 if notes.check_times < 0 else notes.check_times + 1
    if notes.check_times >= round.check_max:
        flight.check_times = notes.check_times
        return ACTION_GIVE_UP
    if age > round.reserved_ms:
        return ACTION_GIVE_UP
    if stored_ms >= round.started_ms:
        return 0
    if notes.immune_ms != NOT_SAID:
        if notes.immune_ms >= 0:
            immune_ms = min(notes.immune_ms, round.reserved_ms)
        if -round.timeout_ms <= age < immune_ms:             # B6
            flight.check_times = notes.check_times       # nobody was asked
            return ACTION_PUT_BACK
    elif 0 <= age < immune_ms:
        return 0 if now_ms - stored_ms < immune_ms else ACTION_PASS      # B6
    return ACTION_CHECK


cdef bint tell_topic(CheckRound* round) noexcept nogil:
    """The topic of the given up has to exist before its first message does."""
    cdef CheckHead* head
    if round.topic_told:
        return True
    head = <CheckHead*>ring_claim(&round.checks, sizeof(CheckHead) + GIVEN_UP_TOPIC_LENGTH)
    if head == NULL:
        return False
    memset(head, 0, sizeof(CheckHead))
    head.name_length = GIVEN_UP_TOPIC_LENGTH
    memcpy(<uint8_t*>head + sizeof(CheckHead), GIVEN_UP_TOPIC, GIVEN_UP_TOPIC_LENGTH)
    ring_finish(&round.checks, CHECK_TOPIC, sizeof(CheckHead) + GIVEN_UP_TOPIC_LENGTH)
    round.topic_told = True
    return True


cdef int look_at(CheckRound* round, int64_t now_ms) noexcept nogil:
    """The half message at the cursor: Step. STEP_DONE: the round ends here."""
    cdef RecordView record
    cdef HalfNotes notes
    cdef Flight flight
    cdef const uint8_t* bytes
    cdef int found = half_record(&round.halves, round.cursor, &record, &bytes)
    if found == HALF_UNREADABLE:
        return STEP_DONE                                                 # half_queue U4
    if found != HALF_FOUND:
        return pass_by(round)
    read_notes(&record, &notes)
    if notes.original >= 0 and half_is_ended(&round.halves, notes.original):
        return pass_by(round)
    flight.half_offset = round.cursor
    flight.original = -1
    flight.born_ms = record.born_time_ms
    flight.action = decide(round, &record, &notes, &flight, now_ms)
    if flight.action == 0:
        return STEP_DONE
    if flight.action == ACTION_PASS:
        round.cursor += 1
        return STEP_MORE
    if flight.action == ACTION_PUT_BACK:
        flight.original = notes.original if notes.original >= 0 else record.queue_offset
    if copy_room(&record) > append_bytes_max(&round.appends):
        round.halves.strange += 1          # longer than this broker's messages may be
        return pass_by(round)
    if round.flight_count == FLIGHTS or round.budget <= 0 or not tell_topic_if(round, &flight) or (
            not append_has_room(&round.appends, copy_room(&record))):
        return STEP_WAIT
    if not append_copy(round, &record, bytes, &flight):
        flight.action = ACTION_GIVE_UP         # as long as they may be: asking again needs more
        flight.check_times = notes.check_times
        flight.original = -1
        if not tell_topic(round):
            return STEP_WAIT
        append_copy(round, &record, bytes, &flight)
    round.cursor += 1
    return STEP_MORE


cdef int pass_by(CheckRound* round) noexcept nogil:
    """Nothing is to be done about the half message at the cursor, ever."""
    if not half_settle(&round.halves, round.cursor):
        return STEP_DONE
    round.cursor += 1
    return STEP_MORE


cdef inline bint tell_topic_if(CheckRound* round, const Flight* flight) noexcept nogil:
    return flight.action != ACTION_GIVE_UP or tell_topic(round)


cdef void round_advance(CheckRound* round) noexcept nogil:
    """How far both queues are settled, to shared memory; what is on its way stays to be seen."""
    cdef TransactionState* state = round.shm.transactions
    half_advance(&round.halves, round.flights[round.flight_first].half_offset if round.flight_count else INT64_MAX)
    store_i64_release(&state.half_offset, round.halves.half_offset)
    store_i64_release(&state.op_offset, round.halves.op_offset)


cdef void keep_pace(CheckRound* round, int64_t steady) noexcept nogil:
    """B4"""
    if steady != round.budget_ms:
        round.budget = PACE_PER_MS * min(steady - round.budget_ms, <int64_t>PACE_BEHIND_MS)
        round.budget_ms = steady


cdef void round_begin(CheckRound* round, int64_t now_ms) noexcept nogil:
    half_pass_expired(&round.halves)
    round_advance(round)
    store_clock_look(round.shm.clock, &round.clock)
    round.started_ms = now_ms
    round.cursor = round.halves.half_offset
    round.end = half_queue_end(&round.halves)
    round.over = round.refused = False


cdef int round_step(CheckRound* round, int64_t now_ms) noexcept nogil:
    cdef int32_t looked
    cdef int result = STEP_MORE
    if half_ops_wait(&round.halves):                                         # B3
        if half_read_ops(&round.halves) < 0:
            round.over = True
        elif half_ops_wait(&round.halves):
            round_advance(round)
            return STEP_MORE
    store_clock_look(round.shm.clock, &round.clock)
    round.landing = take_results(round)
    if round.landing != LANDED:
        return STEP_WAIT
    round_advance(round)
    for looked in range(LOOKS_AT_ONCE):
        if round.over:
            break
        round.cursor = half_next(&round.halves, round.cursor, round.end)
        if round.cursor >= round.end:
            round.over = True
            break
        result = look_at(round, now_ms)
        if result == STEP_DONE:
            round.over = True
        elif result == STEP_WAIT:
            break
    append_push(&round.appends)
    if not round.over:
        return result
    return STEP_WAIT if round.flight_count else STEP_DONE
