"""Serves receives, acks and changes of invisible time from the state of POP."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset, strlen

from mqcore.atomics cimport load_i64_acquire, store_u8_release
from mqcore.endian cimport load_i64
from mqcore.filter.loaded cimport filter_drop
from mqcore.layout cimport (
    RECORD_LOG_POSITION,
    RECORD_QUEUE_OFFSET,
    TOPIC_LENGTH_MAX,
    QueueEntry,
)
from mqcore.net.grpc.answers cimport call_say
from mqcore.net.grpc.asking cimport ask
from mqcore.net.grpc.authorization cimport may_consume
from mqcore.net.grpc.calls cimport (
    Asked,
    Grpc,
    pop_clock,
    put_status,
    read_duration,
    read_filter,
    read_message_queue,
    read_name,
    wait_most,
)
from mqcore.net.grpc.dead_letters cimport dead_letter
from mqcore.net.grpc.messages cimport Delivery, put_message
from mqcore.net.grpc.methods cimport (
    STATUS_BAD_REQUEST,
    STATUS_ILLEGAL_CONSUMER_GROUP,
    STATUS_ILLEGAL_FILTER_EXPRESSION,
    STATUS_ILLEGAL_INVISIBLE_TIME,
    STATUS_ILLEGAL_TOPIC,
    STATUS_MESSAGE_NOT_FOUND,
    STATUS_OK,
    STATUS_TOO_MANY_REQUESTS,
)
from mqcore.net.grpc.pairs cimport (
    DISK_ROUNDS_MAX,
    QUEUES_MAX,
    REFRESH_MS,
    Pair,
    pair_awaits_disk,
    pair_find,
    pair_open,
    pair_wake,
    waiting_add,
)
from mqcore.net.grpc.protobuf cimport (
    PB_BYTES,
    PbReader,
    pb_begin,
    pb_end,
    pb_inside,
    pb_next,
    pb_open,
    pb_put_number,
)
from mqcore.net.grpc.remote_answers cimport (
    remote_begin,
    remote_found,
    remote_message,
    remote_refuse,
)
from mqcore.net.grpc.streams cimport PREFIX, Call, Session
from mqcore.net.remoting.command cimport Said
from mqcore.net.requests cimport GROUP_BYTES_MAX, HANDLED, HANDLE_DENIED, PullRequest
from mqcore.net.serving.scan cimport Found, Portion, scan
from mqcore.net.serving.wanted cimport Wanted, wanted_by
from mqcore.net.transport.transport cimport Connection, takes_output, wall_of_turn
from mqcore.shm.tables cimport queue_find, queue_hash
from mqcore.store.pop.handles cimport (
    RECEIPT_MAX,
    REVIVE_QUEUE_FIFO,
    TOPIC_ITSELF,
    Receipt,
    receipt_write,
)
from mqcore.store.pop.messages cimport committed_of
from mqcore.store.pop.pop cimport (
    POP_BLOCKED,
    PopBatch,
    PopClaim,
    pop_batch,
    pop_client_open,
    pop_enter,
    pop_pass,
    pop_peek,
    pop_prove,
    pop_settle,
    pop_take,
)
from mqcore.store.pop.queues cimport PopPlace, pop_find, pop_forget, pop_moved, pop_open
from mqcore.store.pop.state cimport NO_CLIENT, POP_INVISIBLE_MAX_MS, PopClock, PopQueue
from mqcore.store.record cimport PARSE_RECORD, RecordHead, RecordView, record_head, record_parse

cdef enum:
    RENEWED_MS = 60_000                # of a push client's message, until it is renewed first
    INVISIBLE_MIN_MS = 10_000
    RECEIVE_BYTES_MAX = 4 << 20         # of one receive; one message more may come
    SQL = 2                            # a FilterType

# -- what is asked -----------------------------------------------------------------------------------

cdef bint read_receive(Asked* a, const uint8_t* message, int64_t length) noexcept nogil:
    cdef PbReader r
    a.group = a.topic = a.filter = a.attempt_id = message
    a.group_length = a.topic_length = a.filter_length = a.attempt_length = 0
    a.queue_id = -1
    a.filter_type = a.batch = 0
    a.invisible_ms = a.poll_ms = -1
    a.renew = a.filter_escaped = a.one_queue = a.order = a.from_min = False
    pb_open(&r, message, length)
    while pb_next(&r):
        if r.number == 1:
            read_name(&r, &a.group, &a.group_length)
        elif r.number == 2:
            read_message_queue(&r, &a.topic, &a.topic_length, &a.queue_id)
        elif r.number == 3:
            read_filter(&r, &a.filter_type, &a.filter, &a.filter_length)
        elif r.number == 4:
            a.batch = <int32_t>r.value
        elif r.number == 5:
            a.invisible_ms = read_duration(&r)
        elif r.number == 6:
            a.renew = r.value != 0
        elif r.number == 7:
            a.poll_ms = read_duration(&r)
        elif r.number == 8 and r.kind == PB_BYTES:
            a.attempt_id, a.attempt_length = r.bytes, r.length
    return not r.broken


# -- answers -----------------------------------------------------------------------------------------

cdef void end_receive(Grpc* g, Call* call) noexcept nogil:
    """The server's time ends a receive (GR1)."""
    cdef int64_t begun
    cdef int64_t now_ms = wall_of_turn(g.door.transport)
    if call.session == NULL:
        remote_found(g, call)
        return
    g.out.length = 0
    begun = pb_begin(&g.out, 3)
    pb_put_number(&g.out, 1, now_ms // 1000)
    pb_put_number(&g.out, 2, now_ms % 1000 * 1_000_000)
    pb_end(&g.out, begun)
    call_say(call, g.out.start, g.out.length, True)


cdef void say_receive_status(Grpc* g, Call* call, int32_t code, const char* text) noexcept nogil:
    if call.session == NULL:
        return                         # it is part of the end
    g.out.length = 0
    put_status(g, 1, code, <const uint8_t*>text, <int64_t>strlen(text))
    call_say(call, g.out.start, g.out.length, False)


cdef void refuse_receive(Grpc* g, Call* call, int32_t code, const char* text) noexcept nogil:
    if call.session == NULL:
        remote_refuse(g, call, code, text)
        return
    say_receive_status(g, call, code, text)
    end_receive(g, call)


cdef bint say_message(Grpc* g, Call* call, const Pair* pair, const uint8_t* record, int32_t size,
                      const PopClaim* claim, int64_t start_offset) noexcept nogil:
    """False: the record cannot be read."""
    cdef RecordView view
    cdef RecordHead head
    cdef Delivery delivery
    cdef Receipt receipt
    cdef uint8_t handle[RECEIPT_MAX]
    if record_parse(record, size, &view) != PARSE_RECORD:
        return False
    record_head(&view, record, &head)
    if call.session == NULL:
        return remote_message(g, record, &view, &head, claim)
    receipt.start_offset = start_offset
    receipt.pop_ms = claim.pop_ms
    receipt.invisible_ms = claim.invisible_ms
    receipt.revive_queue = REVIVE_QUEUE_FIFO if pair.fifo else 0
    receipt.topic_kind = TOPIC_ITSELF
    receipt.broker = g.broker_name
    receipt.broker_length = g.broker_name_length
    receipt.queue_id = view.queue_id
    receipt.offset = claim.offset
    receipt.log_position = view.log_position
    delivery.handle = handle
    delivery.handle_length = receipt_write(&receipt, handle)
    delivery.attempt = head.reconsume_times + claim.attempts
    g.out.length = 0
    put_message(&g.out, 2, record, &view, &delivery)
    if g.out.lacks_memory:
        return False
    call_say(call, g.out.start, g.out.length, False)
    return True


# -- one look (pop.pxd, "A receive") -----------------------------------------------------------------

cdef bint match_of(Grpc* g, const Asked* a, Wanted* wanted) noexcept nogil:
    cdef PullRequest pull
    memcpy(pull.group, a.group, a.group_length)
    pull.group_length = a.group_length
    memcpy(pull.topic, a.topic, a.topic_length)
    pull.topic_length = a.topic_length
    pull.brings_filter = a.filter_type != SQL                # an SQL one is its settings'
    pull.version = 0
    pull.filter_type.length = -1
    pull.filter.start = a.filter
    pull.filter.length = a.filter_length
    pull.filter.escaped = a.filter_escaped
    return wanted_by(g.wants, &pull, wanted)


cdef PopQueue* queue_opened(Grpc* g, Pair* pair, const Asked* a, int32_t queue_id, int32_t* number,
                            int64_t* end) noexcept nogil:
    cdef PopPlace place
    cdef QueueEntry* entry
    number[0] = queue_find(g.shm, pair.topic, pair.topic_length, queue_id,
                           queue_hash(pair.topic_hash, queue_id))
    if number[0] < 0:
        return NULL
    entry = &g.shm.queues[number[0]]
    place.group, place.group_length = pair.group, pair.group_length
    place.topic, place.topic_length = pair.topic, pair.topic_length
    place.queue_id = queue_id
    place.life = load_i64_acquire(&entry.restart_position)
    place.least = load_i64_acquire(&entry.min_offset)
    place.end = end[0] = load_i64_acquire(&entry.max_offset)
    place.committed = pair.committed[queue_id]
    place.start = (place.least if place.least == 0 or a.from_min
                   else max(place.end - 1, place.least))
    place.fifo = pair.fifo or a.order
    return pop_open(&g.pops, &place)


cdef int32_t deliver(Grpc* g, Connection* c, Call* call, const Pair* pair, PopQueue* q,
                     PopBatch* batch, const Found* found, int64_t* at, int32_t told) noexcept nogil:
    """
    Hands out what a look at a queue found, from offset at[0] on; at[0] becomes the first offset that
    is not delivered. Returns how many messages.
    """
    cdef int32_t i, count = 0
    cdef int64_t offset
    cdef PopClaim claim
    cdef RecordView view
    for i in range(found.count):
        offset = load_i64(found.records[i] + RECORD_QUEUE_OFFSET)
        if offset > at[0] and offset > q.next:
            pop_pass(&g.pops, q, offset)
        if not pop_take(&g.pops, q, batch, offset, &claim):
            break
        at[0] = offset + 1
        if claim.exceeded:
            if record_parse(found.records[i], found.sizes[i], &view) == PARSE_RECORD:
                dead_letter(g, c, pair, view.queue_id, view.log_position, &claim)
            continue
        if told + count == 0:
            say_receive_status(g, call, STATUS_OK, "OK")
        if say_message(g, call, pair, found.records[i], found.sizes[i], &claim, batch.pop_ms):
            count += 1
    return count


cdef int64_t last_position(const Found* found, int64_t end) noexcept nogil:
    """Of the last record below offset `end`."""
    cdef int32_t i = found.count - 1
    while i > 0 and load_i64(found.records[i] + RECORD_QUEUE_OFFSET) >= end:
        i -= 1
    return load_i64(found.records[i] + RECORD_LOG_POSITION)


cdef inline int64_t answered_bytes(const Grpc* g, const Call* call) noexcept nogil:
    return (g.remote.body.length if call.session == NULL
            else call.output_end - call.output_start)


cdef int32_t look_in_queue(Grpc* g, Connection* c, Call* call, Pair* pair, int32_t queue_id,
                           const Asked* a, const Wanted* wanted, PopBatch* batch,
                           int32_t told) noexcept nogil:
    """How many messages it gave."""
    cdef int32_t number, count = 0, got
    cdef int64_t end, offset, at, fresh
    cdef PopQueue* q = queue_opened(g, pair, a, queue_id, &number, &end)
    cdef Portion portion
    cdef Found found
    if q == NULL or pop_enter(&g.pops, q, batch) == POP_BLOCKED:
        return 0
    portion.replays = False
    while told + count < a.batch and answered_bytes(g, call) < RECEIVE_BYTES_MAX and (
            takes_output(g.door.transport, c)):
        offset = pop_peek(&g.pops, q, batch, end)
        if offset < 0:
            return count
        fresh = q.next
        portion.count_max = a.batch - told - count if offset >= q.next else 1
        scan(g.reader, number, offset, end if offset >= q.next else offset + 1, &portion,
             &wanted.match, pair.disk_rounds < DISK_ROUNDS_MAX, &found)
        if found.count == 0 and found.cold_job:
            if found.examined > 0 and offset >= q.next:
                pop_pass(&g.pops, q, offset + found.examined)
            pair_awaits_disk(&g.pairs, pair, found.cold_job)             # pairs GP5
            return count
        if found.examined == 0:
            return count               # it cannot be read now; a damaged one is in the log
        at = offset
        got = deliver(g, c, call, pair, q, batch, &found, &at, told + count)
        count += got
        if offset >= fresh and at > offset and found.count > 0:
            pop_prove(&g.pops, q, last_position(&found, at))
        if offset < q.next and at == offset:
            if found.count > 0:
                return count           # no memory
            pop_settle(&g.pops, q, batch, offset)
        elif found.count == 0 or at > load_i64(found.records[found.count - 1]
                                               + RECORD_QUEUE_OFFSET):
            if offset + found.examined > q.next:
                pop_pass(&g.pops, q, offset + found.examined)
        else:
            return count
    return count


cdef int32_t look(Grpc* g, Connection* c, Call* call, Pair* pair, const Asked* a,
                  bint* known) noexcept nogil:
    cdef Session* s = call.session
    cdef PopClock clock = pop_clock(g)
    cdef PopBatch batch
    cdef Wanted wanted
    cdef int32_t i, queue_id, count = 0
    known[0] = match_of(g, a, &wanted)
    if not known[0]:
        return 0
    pair.used_ms = g.door.transport.steady_ms
    if s == NULL:
        remote_begin(g, pair, a)
    if a.renew and s.pop_client == NO_CLIENT:
        s.pop_client = pop_client_open(&g.pops)
    batch.client = s.pop_client if a.renew else NO_CLIENT
    batch.invisible_ms = RENEWED_MS if a.renew else <int32_t>a.invisible_ms
    batch.attempts_max = pair.attempts_max
    batch.renew = a.renew and batch.client != NO_CLIENT
    batch.attempt_id = a.attempt_id
    batch.attempt_length = a.attempt_length
    pop_batch(&g.pops, &batch, &clock)
    if (pair.fifo or a.one_queue) and 0 <= a.queue_id < pair.queue_count:
        count = look_in_queue(g, c, call, pair, a.queue_id, a, &wanted, &batch, 0)
    else:
        pair.turn += 1
        for i in range(pair.queue_count):
            queue_id = <int32_t>((<unsigned int>pair.turn + i) % <unsigned int>pair.queue_count)
            count += look_in_queue(g, c, call, pair, queue_id, a, &wanted, &batch, count)
            if count >= a.batch:
                break
    filter_drop(&g.wants.filters, wanted.match.filter)
    if count > 0 or pair.disk_job == 0:
        pair.disk_rounds = 0
    if count > 0:
        end_receive(g, call)
    return count


cdef int32_t look_ahead(Grpc* g, Pair* pair, const Asked* a) noexcept nogil:
    cdef Wanted wanted
    cdef Portion portion
    cdef Found found
    cdef RecordView view
    cdef RecordHead head
    cdef PopClaim claim
    cdef PopQueue* q
    cdef int32_t i, j, number
    cdef int64_t end
    if not match_of(g, a, &wanted):
        return -1
    remote_begin(g, pair, a)
    portion.replays = False
    claim.attempts = 1
    claim.pop_ms = 0
    for i in range(pair.queue_count):
        if a.one_queue and i != a.queue_id:
            continue
        q = queue_opened(g, pair, a, i, &number, &end)
        if q == NULL or q.next >= end or g.remote.message_count >= a.batch:
            continue
        portion.count_max = a.batch - g.remote.message_count
        scan(g.reader, number, q.next, end, &portion, &wanted.match, False, &found)
        for j in range(found.count):
            if record_parse(found.records[j], found.sizes[j], &view) == PARSE_RECORD:
                record_head(&view, found.records[j], &head)
                claim.offset = view.queue_offset
                remote_message(g, found.records[j], &view, &head, &claim)
    filter_drop(&g.wants.filters, wanted.match.filter)
    return g.remote.message_count


# -- receives ----------------------------------------------------------------------------------------

cdef bint wrong_with_receive(Grpc* g, Call* call, Asked* a) noexcept nogil:
    if not 1 <= a.topic_length <= TOPIC_LENGTH_MAX:
        refuse_receive(g, call, STATUS_ILLEGAL_TOPIC, "message_queue.topic: expected 1 to 127 bytes")
    elif not 1 <= a.group_length < GROUP_BYTES_MAX:
        refuse_receive(g, call, STATUS_ILLEGAL_CONSUMER_GROUP, "group: expected 1 to 255 bytes")
    elif not a.renew and not INVISIBLE_MIN_MS <= a.invisible_ms <= POP_INVISIBLE_MAX_MS:
        refuse_receive(g, call, STATUS_ILLEGAL_INVISIBLE_TIME,
                       "invisible_duration: expected 10 seconds to 12 hours")
    elif a.batch < 0 or a.poll_ms < -1:
        refuse_receive(g, call, STATUS_BAD_REQUEST,
                       "batch_size, long_polling_timeout: expected 0 or more")
    else:
        return False
    return True


cdef int64_t wait_of(const Call* call, const Asked* a) noexcept nogil:
    """Until when it may wait (steady ms): as it says, 20 s at most, and not beyond its deadline."""
    return call.since_us // 1000 + (min(a.poll_ms, wait_most(call)) if a.poll_ms >= 0
                                    else wait_most(call))


cdef void look_or_wait(Grpc* g, Connection* c, Call* call, Pair* pair,
                       Asked* a) noexcept nogil:
    cdef int64_t until_ms = wait_of(call, a)
    cdef bint known
    a.batch = min(max(a.batch, 1), BATCH_MAX)
    if look(g, c, call, pair, a, &known):
        return
    if not known:
        refuse_receive(g, call, STATUS_ILLEGAL_FILTER_EXPRESSION,
                       "filter_expression: it is not the one of the client's settings, or has too many tags")
    elif until_ms <= g.door.transport.steady_ms and pair.disk_job == 0:
        refuse_receive(g, call, STATUS_MESSAGE_NOT_FOUND, "no new message")
    elif not waiting_add(pair, call, c.id, until_ms):
        refuse_receive(g, call, STATUS_TOO_MANY_REQUESTS, "polling full")
    else:
        g.pairs.next_ms = min(g.pairs.next_ms, until_ms)
        await_queues(g, pair, True)


cdef void await_queues(Grpc* g, Pair* pair, bint wakes) noexcept nogil:
    """pairs GP2. wakes: a queue that has something since it was looked at wakes the pair."""
    cdef int32_t i, number
    cdef PopQueue* q
    for i in range(pair.queue_count):
        number = queue_find(g.shm, pair.topic, pair.topic_length, i,
                            queue_hash(pair.topic_hash, i))
        if number < 0:
            g.waits_for_births = True
            continue
        store_u8_release(&g.interest[number], 1)
        q = pop_find(&g.pops, pair.group, pair.group_length, pair.topic, pair.topic_length, i)
        if wakes and (q == NULL or load_i64_acquire(&g.shm.queues[number].max_offset) > q.next):
            pair_wake(&g.pairs, pair)


cdef int serve_receive(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                       int64_t length) noexcept nogil:
    cdef Asked a
    cdef Pair* pair
    if not read_receive(&a, message, length):
        refuse_receive(g, call, STATUS_BAD_REQUEST, "the request is broken")
        return HANDLED
    if wrong_with_receive(g, call, &a):
        return HANDLED
    if not may_consume(g, c, a.group, a.group_length, a.topic, a.topic_length):
        return HANDLE_DENIED
    pair = pair_find(&g.pairs, a.group, a.group_length, a.topic, a.topic_length)
    if pair == NULL or g.door.transport.steady_ms - pair.asked_ms > REFRESH_MS:            # pairs GP1
        return ask(g, c, call, message, length)
    look_or_wait(g, c, call, pair, &a)
    return HANDLED


cdef void follow_resets(Grpc* g, Pair* pair, const int64_t* had) noexcept nogil:
    """pairs GP4. had: what the coordinator had when it was asked before, -1: none, or never asked."""
    cdef int32_t i
    cdef int64_t offset
    cdef PopQueue* q
    for i in range(pair.queue_count):
        q = pop_find(&g.pops, pair.group, pair.group_length, pair.topic, pair.topic_length, i)
        offset = pair.committed[i]
        if q == NULL:
            continue
        if q.told < 0:
            pop_moved(&g.pops, q, max(offset, committed_of(&g.pops, q)))
        elif offset < 0 and had[i] >= 0:                     # they were deleted
            pop_forget(&g.pops, q)
            pair.told[i] = -1
            continue
        elif offset >= 0 and (offset > q.told or offset < pair.told[i]):
            pop_moved(&g.pops, q, offset)
            pair.told[i] = offset
            continue
        pair.told[i] = q.told


cdef int32_t refusal_of(const Said* said, const uint8_t** text, int32_t* length) noexcept nogil:
    cdef PbReader r, inner
    cdef int32_t code = 0
    length[0] = 0
    pb_open(&r, said.body, said.body_length)
    while pb_next(&r):
        if r.number != 1:
            continue
        inner = pb_inside(&r)
        while pb_next(&inner):
            if inner.number == 1 and inner.value != STATUS_OK:
                code = <int32_t>inner.value
            elif inner.number == 2 and inner.kind == PB_BYTES:
                text[0], length[0] = inner.bytes, inner.length
    return code


cdef void begin_told(Grpc* g, Pair* pair) noexcept nogil:
    """
    A new pair of queues with a state (pairs GP6): what the coordinator was told is what it has, where no
    ack can have changed that since it was asked.
    """
    cdef int32_t i
    cdef const PopQueue* q
    for i in range(pair.queue_count):
        q = pop_find(&g.pops, pair.group, pair.group_length, pair.topic, pair.topic_length, i)
        if q != NULL and q.count == 0 and q.told == q.next:
            pair.told[i] = q.told


cdef void pair_learn(Grpc* g, Pair* pair, const Said* said) noexcept nogil:
    cdef PbReader r
    cdef int32_t count = 0
    cdef bint new = pair.asked_ms == 0
    cdef int64_t had[QUEUES_MAX]
    memset(had, 0xFF, sizeof(had))     # -1
    if not new:
        memcpy(had, pair.committed, pair.queue_count * sizeof(int64_t))
    pb_open(&r, said.body, said.body_length)
    while pb_next(&r):
        if r.number == 2:
            pair.fifo = r.value != 0
        elif r.number == 3:
            pair.attempts_max = <int32_t>r.value
        elif r.number == 4 and count < QUEUES_MAX:
            pair.committed[count] = <int64_t>r.value
            count += 1
    pair.queue_count = count
    pair.asked_ms = g.door.transport.steady_ms
    if new:
        begin_told(g, pair)
    follow_resets(g, pair, had)


cdef void pair_told(Grpc* g, Connection* c, Call* call, const Said* said) noexcept nogil:
    cdef Asked a
    cdef Pair* pair
    cdef const uint8_t* text
    cdef int32_t length
    if refusal_of(said, &text, &length):
        call_say(call, said.body, said.body_length, False)
        end_receive(g, call)
        return
    read_receive(&a, call.input + PREFIX, call.input_length - PREFIX)
    pair = pair_open(&g.pairs, a.group, a.group_length, a.topic, a.topic_length)
    if pair == NULL:
        refuse_receive(g, call, STATUS_TOO_MANY_REQUESTS,
                       "too many pairs of groups and topics are received from")
        return
    pair_learn(g, pair, said)
    look_or_wait(g, c, call, pair, &a)


cdef bint receive_again(Grpc* g, Connection* c, Call* call, Pair* pair) noexcept nogil:
    cdef Asked a
    cdef bint known
    read_receive(&a, call.input + PREFIX, call.input_length - PREFIX)
    a.batch = min(max(a.batch, 1), BATCH_MAX)
    if look(g, c, call, pair, &a, &known):
        return True
    await_queues(g, pair, False)
    return False
