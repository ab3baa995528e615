"""POP: the records of its file, and receipt handles."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memcmp, memset

from mqcore.store.pop.handles cimport RECEIPT_MAX, Receipt, receipt_parse, receipt_write
from mqcore.store.pop.journal_read cimport journal_apply
from mqcore.store.pop.messages cimport committed_of, message_at
from mqcore.store.pop.pop cimport (
    POP_OK,
    PopBatch,
    PopClaim,
    pop_ack,
    pop_batch,
    pop_enter,
    pop_expire,
    pop_next_due,
    pop_peek,
    pop_take,
)
from mqcore.store.pop.queues cimport pop_begin, pop_end
from mqcore.store.pop.state cimport NO_CLIENT, PopClock, PopQueue, PopState

from tests.fuzz.targets.input cimport Input, hold, input_of, take_part

cdef enum:
    QUEUES = 4
    MESSAGES = 16
    LATER_MS = 1 << 30
    INVISIBLE_MS = 1000

cdef PopState* state = <PopState*>calloc(1, sizeof(PopState))


cdef void look(PopState* s, PopQueue* q) noexcept nogil:
    cdef int32_t message = q.first, count = 0
    cdef int64_t before = -1
    while message >= 0:
        hold(message_at(s, message).offset > before, "messages stand in the order of their offsets")
        before = message_at(s, message).offset
        hold(before < q.next, "every message is below next")
        count += 1
        message = message_at(s, message).next
    hold(count == q.count, "a queue counts its messages")
    hold(committed_of(s, q) <= q.next, "the committed offset is not above next")


cdef void consume(PopState* s, PopQueue* q, const PopClock* clock) noexcept nogil:
    """All that is ready again is delivered, once, and acknowledged."""
    cdef PopBatch batch
    cdef PopClaim claim
    cdef int64_t offset
    cdef int32_t count = q.count
    memset(&batch, 0, sizeof(batch))
    batch.client, batch.invisible_ms = NO_CLIENT, INVISIBLE_MS
    pop_batch(s, &batch, clock)
    hold(pop_enter(s, q, &batch) == POP_OK, "nothing is hidden for ever")
    offset = pop_peek(s, q, &batch, 0)
    while offset >= 0:
        hold(count > 0, "each message is delivered once")
        count -= 1
        hold(pop_take(s, q, &batch, offset, &claim), "a message that is there is delivered")
        hold(pop_ack(s, q, claim.offset, claim.pop_ms, claim.invisible_ms, clock) == POP_OK,
             "the latest delivery is acknowledged")
        offset = pop_peek(s, q, &batch, 0)
    hold(q.count == 0, "every message is delivered")


cdef int pop_file(const uint8_t* data, size_t size) noexcept nogil:
    cdef Input rest = input_of(data, size)
    cdef int64_t part = take_part(&rest)
    cdef PopClock clock = PopClock(steady_ms=INT64_MAX - LATER_MS, wall_ms=0)
    cdef int32_t i
    memset(state, 0, sizeof(PopState))
    if not pop_begin(state, QUEUES, MESSAGES):
        return 0
    if journal_apply(state, rest.at, <int32_t>part):
        journal_apply(state, rest.at + part, <int32_t>(rest.left - part))
    for i in range(QUEUES):
        if state.queues[i] != NULL:
            look(state, state.queues[i])
    while pop_expire(state, &clock, 1):
        pass
    hold(pop_next_due(state) == INT64_MAX, "what is due is shown")
    for i in range(QUEUES):
        if state.queues[i] != NULL:
            consume(state, state.queues[i], &clock)
    hold(state.count == 0, "the state counts its messages")
    pop_end(state)
    return 0


cdef int receipt(const uint8_t* data, size_t size) noexcept nogil:
    cdef Receipt one, other
    cdef uint8_t text[RECEIPT_MAX]
    cdef int32_t length
    if size > <size_t>(2 * RECEIPT_MAX) or not receipt_parse(data, <int32_t>size, &one):
        return 0
    length = receipt_write(&one, text)
    hold(length <= RECEIPT_MAX, "a handle has room")
    hold(receipt_parse(text, length, &other), "a handle that was written is one")
    hold(one.offset == other.offset and one.pop_ms == other.pop_ms
         and one.queue_id == other.queue_id and one.log_position == other.log_position
         and one.invisible_ms == other.invisible_ms and one.broker_length == other.broker_length
         and memcmp(one.broker, other.broker, one.broker_length) == 0,
         "it says the same")
    return 0


TARGETS = {"pop_file": <size_t>&pop_file, "receipt": <size_t>&receipt}
