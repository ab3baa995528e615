"""Deliveries, acknowledgements and due times of POP (pop.pxd has the rules)."""
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy

from mqcore.invariants cimport invariant
from mqcore.store.pop.journal cimport (
    note_attempt,
    note_message,
    note_pass,
    note_settled,
)
from mqcore.store.pop.messages cimport (
    committed_of,
    message_add,
    message_at,
    message_due,
    message_find,
    message_hide,
    message_lift,
    message_postpone,
    message_settle,
    message_show,
    queue_commits,
    queue_take_listed,
)
from mqcore.store.pop.state cimport (
    NO_CLIENT,
    NO_MESSAGE,
    POP_ATTEMPTS_MAX,
    POP_ATTEMPT_ID_MAX,
    POP_CLIENTS_MAX,
    POP_COMMITS,
    POP_DROP_MS,
    POP_HELD_MAX_MS,
    POP_INVISIBLE_MAX_MS,
    POP_QUEUE_MESSAGES_MAX,
    POP_SHARE,
    POP_WOKEN,
    READY_AGAIN,
    PopClock,
    PopMessage,
    PopQueue,
    PopState,
)

cdef enum:
    CLIENT_FREE = -2                   # PopState.clients
    CLIENTS_FIRST = 64
    PARTS = 8                          # pop PO9


# -- deliveries ------------------------------------------------------------------------------------


cdef inline int64_t next_stamp(PopState* s, const PopClock* clock) noexcept nogil:        # pop PO3
    s.stamp_ms = max(max(clock.wall_ms, s.stamp_ms), s.freed_ms + 1)
    return s.stamp_ms


cdef void pop_batch(PopState* s, PopBatch* batch, const PopClock* clock) noexcept nogil:
    batch.pop_ms = next_stamp(s, clock)
    batch.now_ms = clock.steady_ms
    batch.invisible_ms = min(max(batch.invisible_ms, <int32_t>1), <int32_t>POP_INVISIBLE_MAX_MS)
    if not 0 < batch.attempt_length <= POP_ATTEMPT_ID_MAX:
        batch.attempt_length = 0


cdef int pop_enter(PopState* s, PopQueue* q, PopBatch* batch) noexcept nogil:
    batch.taken = 0
    batch.again = False
    batch.cursor = NO_MESSAGE
    if not q.fifo:
        return POP_OK
    batch.cursor = q.first
    if batch.attempt_length and batch.attempt_length == q.attempt_length and (
            memcmp(batch.attempt_id, q.attempt_id, q.attempt_length) == 0) and (
            committed_of(s, q) < q.batch_end):
        batch.again = True
        return POP_OK
    return POP_BLOCKED if q.invisible > 0 else POP_OK                                     # pop PO6


cdef inline bint has_room(const PopState* s, const PopQueue* q) noexcept nogil:           # pop PO9
    return q.count < POP_QUEUE_MESSAGES_MAX and s.count < s.messages_max and (
        q.count < POP_SHARE or s.count < s.messages_max - s.messages_max // PARTS)


cdef int64_t pop_peek(const PopState* s, const PopQueue* q, const PopBatch* batch,
                      int64_t end) noexcept nogil:
    cdef int64_t offset
    if q.fifo:
        if batch.cursor >= 0:
            offset = message_at(s, batch.cursor).offset
            return offset if not batch.again or offset < q.batch_end else POP_NOTHING
        if batch.again:
            return POP_NOTHING
    elif q.ready_first >= 0:                                                              # pop PO4
        return message_at(s, q.ready_first).offset
    if q.next >= end:
        return POP_NOTHING
    return q.next if has_room(s, q) else POP_FULL


cdef bint next_message(PopState* s, PopQueue* q, PopBatch* batch, int64_t offset,
                       int32_t* message) noexcept nogil:
    """The message of pop_peek's offset; lifted, or new."""
    if q.fifo and batch.cursor >= 0:
        message[0] = batch.cursor
    else:
        message[0] = NO_MESSAGE if q.fifo else q.ready_first
    if message[0] >= 0:
        if message_at(s, message[0]).offset != offset or (
                not batch.again and message_at(s, message[0]).pop_ms >= batch.pop_ms):
            return False
        if q.fifo:
            batch.cursor = message_at(s, message[0]).next
        message_lift(s, q, message[0])
        return True
    if offset != q.next or not has_room(s, q):
        return False
    message[0] = message_add(s, q, offset)
    if message[0] < 0:
        return False
    q.next += 1
    return True


cdef bint pop_take(PopState* s, PopQueue* q, PopBatch* batch, int64_t offset,
                   PopClaim* claim) noexcept nogil:
    cdef int32_t message
    cdef PopMessage* m
    if not next_message(s, q, batch, offset, &message):
        return False
    m = message_at(s, message)
    if not (q.fifo and batch.again) and m.attempts < POP_ATTEMPTS_MAX:                    # pop PO5
        m.attempts += 1
    m.pop_ms = batch.pop_ms
    m.invisible_ms = batch.invisible_ms
    m.renewals = <int16_t>min(max(POP_HELD_MAX_MS // batch.invisible_ms - 1, 0),
                              POP_ATTEMPTS_MAX) if batch.renew and batch.client >= 0 else 0
    message_hide(s, q, message, batch.now_ms + batch.invisible_ms, batch.client)
    if q.fifo and not batch.again:
        if batch.taken == 0:
            q.attempt_length = batch.attempt_length
            if batch.attempt_length:   # without one attempt_id may be NULL
                memcpy(q.attempt_id, batch.attempt_id, batch.attempt_length)
        q.batch_end = offset + 1
    batch.taken += 1
    claim.offset = offset
    claim.pop_ms = m.pop_ms
    claim.invisible_ms = m.invisible_ms
    claim.attempts = m.attempts
    claim.exceeded = 0 < batch.attempts_max < m.attempts
    note_message(s, q, message)
    if q.fifo and not batch.again:
        note_attempt(s, q)
    return True


cdef void settle_one(PopState* s, PopQueue* q, int32_t message) noexcept nogil:
    note_settled(s, q, message_at(s, message).offset)
    message_settle(s, q, message)


cdef void pop_settle(PopState* s, PopQueue* q, PopBatch* batch, int64_t offset) noexcept nogil:
    cdef int32_t message = message_find(s, q, offset)
    if message >= 0:
        if batch != NULL and batch.cursor == message:
            batch.cursor = message_at(s, message).next
        settle_one(s, q, message)
    elif offset == q.next:
        pop_pass(s, q, offset + 1)


cdef void pop_pass(PopState* s, PopQueue* q, int64_t until) noexcept nogil:
    if until <= q.next:
        return
    q.next = until
    if q.first < 0:
        queue_commits(s, q)
    note_pass(s, q)


cdef void pop_prove(PopState* s, PopQueue* q, int64_t log_position) noexcept nogil:       # pop PO11
    if log_position >= 0 and q.next - 1 > q.proof_offset:
        q.proof_offset = q.next - 1
        q.proof_position = log_position
        note_pass(s, q)


# -- by a delivery's name --------------------------------------------------------------------------


cdef int find_delivery(const PopState* s, const PopQueue* q, int64_t offset, int64_t pop_ms,
                       int32_t invisible_ms, const PopClock* clock,
                       int32_t* message) noexcept nogil:
    message[0] = message_find(s, q, offset)
    if message[0] >= 0 and message_at(s, message[0]).pop_ms == pop_ms:
        return POP_OK
    if pop_ms <= clock.wall_ms - invisible_ms:
        return POP_EXPIRED
    return POP_STALE if message[0] >= 0 or 0 <= offset < q.next else POP_UNKNOWN


cdef int pop_holds(const PopState* s, const PopQueue* q, int64_t offset, int64_t pop_ms,
                   int32_t invisible_ms, const PopClock* clock) noexcept nogil:
    cdef int32_t message
    return find_delivery(s, q, offset, pop_ms, invisible_ms, clock, &message)


cdef int pop_ack(PopState* s, PopQueue* q, int64_t offset, int64_t pop_ms, int32_t invisible_ms,
                 const PopClock* clock) noexcept nogil:
    cdef int32_t message
    cdef int outcome = find_delivery(s, q, offset, pop_ms, invisible_ms, clock, &message)
    if outcome == POP_OK:
        settle_one(s, q, message)
    return outcome


cdef int pop_change(PopState* s, PopQueue* q, PopClaim* claim, int64_t new_ms,
                    const PopClock* clock) noexcept nogil:
    cdef int32_t message, client
    cdef PopMessage* m
    cdef int outcome
    if not 0 <= new_ms <= POP_INVISIBLE_MAX_MS:
        return POP_ILLEGAL
    outcome = find_delivery(s, q, claim.offset, claim.pop_ms, claim.invisible_ms, clock, &message)
    if outcome != POP_OK:
        return outcome
    m = message_at(s, message)
    client = m.client
    message_lift(s, q, message)
    if not q.fifo:
        s.stamp_ms = max(next_stamp(s, clock), m.pop_ms + 1)                              # pop PO3
        m.pop_ms = s.stamp_ms
    m.invisible_ms = <int32_t>new_ms
    m.renewals = 0
    message_hide(s, q, message, clock.steady_ms + new_ms, client)
    note_message(s, q, message)
    claim.pop_ms = m.pop_ms
    claim.invisible_ms = m.invisible_ms
    claim.attempts = m.attempts
    claim.exceeded = False
    if new_ms == 0:
        message_lift(s, q, message)
        message_show(s, q, message)
    return POP_OK


cdef void shorten(PopState* s, PopQueue* q, int32_t message, const PopClock* clock) noexcept nogil:
    """An invisible message, of no client now, is due within POP_DROP_MS."""
    cdef int64_t due_ms = min(message_due(s, message), clock.steady_ms + POP_DROP_MS)
    message_lift(s, q, message)
    message_at(s, message).renewals = 0
    message_hide(s, q, message, due_ms, NO_CLIENT)
    note_message(s, q, message)


cdef void pop_drop(PopState* s, PopQueue* q, const PopClaim* claim,
                   const PopClock* clock) noexcept nogil:
    cdef int32_t message = message_find(s, q, claim.offset)
    if message >= 0 and message_at(s, message).pop_ms == claim.pop_ms and (
            message_at(s, message).place != READY_AGAIN):
        shorten(s, q, message, clock)


# -- time ------------------------------------------------------------------------------------------


cdef int32_t pop_expire(PopState* s, const PopClock* clock, int32_t most) noexcept nogil:
    cdef int32_t done = 0, message
    cdef PopMessage* m
    while done < most and s.heap_count > 0 and s.heap[0].due_ms <= clock.steady_ms:       # pop PO2
        message = s.heap[0].message
        m = message_at(s, message)
        if m.client >= 0 and m.renewals > 0:                                              # pop PO7
            m.renewals -= 1
            message_postpone(s, message, clock.steady_ms + m.invisible_ms)
            if m.renewals == 0:
                note_message(s, s.queues[m.queue], message)
        else:
            message_lift(s, s.queues[m.queue], message)
            message_show(s, s.queues[m.queue], message)
        done += 1
    return done


cdef int64_t pop_next_due(const PopState* s) noexcept nogil:
    return s.heap[0].due_ms if s.heap_count > 0 else INT64_MAX


cdef PopQueue* pop_next_woken(PopState* s) noexcept nogil:
    return queue_take_listed(s, POP_WOKEN)


cdef PopQueue* pop_next_commit(PopState* s, int64_t* committed) noexcept nogil:
    cdef PopQueue* q
    while True:
        q = queue_take_listed(s, POP_COMMITS)
        if q == NULL:
            return NULL
        if q.life < 0:
            continue                   # not opened yet: others may have moved the group's offset
        committed[0] = committed_of(s, q)
        invariant("PO8", committed[0] <= q.next)
        if committed[0] != q.told:
            q.told = committed[0]
            return q


# -- clients ---------------------------------------------------------------------------------------


cdef bint more_clients(PopState* s) noexcept nogil:
    cdef int32_t room = max(2 * s.client_room, <int32_t>CLIENTS_FIRST), i
    cdef void* clients
    if s.client_room == POP_CLIENTS_MAX:
        return False
    clients = realloc(s.clients, room * sizeof(int32_t))
    if clients == NULL:
        return False
    s.clients = <int32_t*>clients
    for i in range(s.client_room, room):
        s.clients[i] = CLIENT_FREE
    s.client_hand = s.client_room
    s.client_room = room
    return True


cdef int32_t pop_client_open(PopState* s) noexcept nogil:
    cdef int32_t i, client
    if s.client_count == s.client_room and not more_clients(s):
        return NO_CLIENT
    for i in range(s.client_room):
        client = (s.client_hand + i) % s.client_room
        if s.clients[client] == CLIENT_FREE:
            s.clients[client] = NO_MESSAGE
            s.client_hand = client
            s.client_count += 1
            return client
    return NO_CLIENT


cdef bint pop_client_close(PopState* s, int32_t client, const PopClock* clock,
                           int32_t most) noexcept nogil:
    cdef int32_t message
    if not 0 <= client < s.client_room or s.clients[client] == CLIENT_FREE:
        return False
    while s.clients[client] >= 0:
        if most <= 0:
            return True
        most -= 1
        message = s.clients[client]
        shorten(s, s.queues[message_at(s, message).queue], message, clock)
    s.clients[client] = CLIENT_FREE
    s.client_count -= 1
    return False
