"""Sends messages to dead letters."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from mqcore.layout cimport TOPIC_LENGTH_MAX
from mqcore.net.grpc.acks cimport DeliveryAsked, read_delivery
from mqcore.net.grpc.asking cimport ask_with, ask_with_number
from mqcore.net.grpc.calls cimport DEAD_MAX, DeadLetter, pop_clock, say_status
from mqcore.net.grpc.methods cimport (
    STATUS_INTERNAL_SERVER_ERROR,
    STATUS_INVALID_RECEIPT_HANDLE,
    STATUS_MESSAGE_NOT_FOUND,
    STATUS_OK,
    STATUS_TOO_MANY_REQUESTS,
    status_of,
)
from mqcore.net.grpc.session cimport session_call
from mqcore.net.remoting.command cimport Command, command_begin
from mqcore.net.requests cimport GROUP_BYTES_MAX, HANDLED, HANDLE_FORWARD
from mqcore.net.serving.handler cimport front_command
from mqcore.net.transport.transport cimport connection_find
from mqcore.shm.tables cimport name_hash, queue_find, queue_hash
from mqcore.store.pop.pop cimport POP_EXPIRED, POP_OK, POP_STALE, pop_ack, pop_holds
from mqcore.store.pop.queues cimport pop_find
from mqcore.store.pop.state cimport PopClock, PopQueue
from mqcore.store.queue.consume_queue cimport entry_decode, queue_read
from mqcore.text cimport literal
from mqcore.wire.codes cimport REQUEST_CONSUMER_SEND_MSG_BACK, RESPONSE_SUCCESS

cdef enum:
    DEAD_LEVEL = -1                    # delay level of what goes to the dead letters at once


cdef void dead_letters_open(Grpc* g) noexcept nogil:
    cdef int32_t i
    for i in range(DEAD_MAX):
        g.dead[i].offset = -1


cdef void dead_letters_forget(Grpc* g, const Connection* c) noexcept nogil:
    cdef int32_t i
    for i in range(DEAD_MAX):
        if g.dead[i].connection == c.id:
            g.dead[i].offset = -1


cdef int64_t position_of(Grpc* g, int32_t number, int64_t offset) noexcept nogil:
    if number < 0 or offset < 0 or (
            queue_read(&g.reader.queues, number, offset, 1, g.reader.entries) != 1):
        return -1
    return entry_decode(g.reader.entries).log_position


cdef DeadLetter* free_place(Grpc* g) noexcept nogil:
    cdef int32_t i
    for i in range(DEAD_MAX):
        if g.dead[i].offset < 0:
            return &g.dead[i]
    return NULL


cdef bint is_under_way(const Grpc* g, const PopQueue* q, int64_t offset) noexcept nogil:
    cdef int32_t i
    cdef const DeadLetter* one
    for i in range(DEAD_MAX):
        one = &g.dead[i]
        if one.offset == offset and one.queue_id == q.queue_id and (
                one.group_length == q.group_length and one.topic_length == q.topic_length
                and memcmp(one.group, q.names, q.group_length) == 0
                and memcmp(one.topic, q.names + q.group_length, q.topic_length) == 0):
            return True
    return False


cdef int begin(Grpc* g, Connection* c, DeadLetter* one, const uint8_t* group, int32_t group_length,
               const uint8_t* topic, int32_t topic_length, int64_t log_position) noexcept nogil:
    """Asks the coordinator; all other members of the place are set."""
    cdef Command command
    cdef int result
    memcpy(one.group, group, group_length)
    one.group_length = group_length
    memcpy(one.topic, topic, topic_length)
    one.topic_length = topic_length
    one.connection = c.id
    command_begin(&command, REQUEST_CONSUMER_SEND_MSG_BACK, -1 - <int32_t>(one - &g.dead[0]), 0)
    ask_with_number(&command, literal("offset"), log_position)
    ask_with(&command, literal("group"), group, group_length)
    ask_with_number(&command, literal("delayLevel"), DEAD_LEVEL)
    ask_with(&command, literal("originTopic"), topic, topic_length)
    result = front_command(g.handler, c, &command, NULL, 0, 0, True)
    if result != HANDLED:
        one.offset = -1
    return result


cdef void dead_letter(Grpc* g, Connection* c, const Pair* pair, int32_t queue_id, int64_t log_position,
                      const PopClaim* claim) noexcept nogil:
    cdef DeadLetter* one = free_place(g)
    if one == NULL:
        return                         # GD1: it comes again
    one.call = 0
    one.queue_id = queue_id
    one.offset = claim.offset
    one.pop_ms = claim.pop_ms
    one.invisible_ms = claim.invisible_ms
    begin(g, c, one, pair.group, pair.group_length, pair.topic, pair.topic_length, log_position)


cdef void dead_letter_told(Grpc* g, int32_t opaque, int32_t code) noexcept nogil:
    cdef int32_t i = -1 - opaque
    cdef DeadLetter* one
    cdef Connection* c
    cdef Call* call
    cdef PopQueue* q
    cdef PopClock clock = pop_clock(g)
    if not 0 <= i < DEAD_MAX or g.dead[i].offset < 0:
        return
    one = &g.dead[i]
    q = pop_find(&g.pops, one.group, one.group_length, one.topic, one.topic_length, one.queue_id)
    if code == RESPONSE_SUCCESS and q != NULL:
        pop_ack(&g.pops, q, one.offset, one.pop_ms, one.invisible_ms, &clock)
    one.offset = -1
    c = connection_find(g.door.transport, one.connection)
    call = session_call(c, one.call) if c != NULL and one.call else NULL
    if call != NULL:
        say_status(g, call, status_of(code), "OK" if code == RESPONSE_SUCCESS
                   else "the message could not be stored with the dead letters")


# -- ForwardMessageToDeadLetterQueue -----------------------------------------------------------------

cdef int serve_forward(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                       int64_t length) noexcept nogil:
    cdef DeliveryAsked a
    cdef PopQueue* q
    cdef PopClock clock = pop_clock(g)
    cdef DeadLetter* one
    cdef int64_t position
    cdef int outcome = read_delivery(g, c, call, message, length, &a)
    if outcome != HANDLE_FORWARD:
        return outcome
    q = pop_find(&g.pops, a.group, a.group_length, a.topic, a.topic_length, a.receipt.queue_id)
    outcome = POP_EXPIRED if q == NULL else pop_holds(
        &g.pops, q, a.receipt.offset, a.receipt.pop_ms, a.receipt.invisible_ms, &clock)
    if outcome == POP_STALE:
        say_status(g, call, STATUS_OK, "OK")                 # settled, by an earlier request mostly
        return HANDLED
    if outcome != POP_OK:
        say_status(g, call, STATUS_INVALID_RECEIPT_HANDLE if q != NULL and outcome == POP_EXPIRED
                   else STATUS_INTERNAL_SERVER_ERROR, "receipt_handle: no delivery has it, or its time is over")
        return HANDLED
    one = free_place(g)
    if one == NULL or is_under_way(g, q, a.receipt.offset):
        say_status(g, call, STATUS_TOO_MANY_REQUESTS, "the message, or too many others, are on their way there")
        return HANDLED
    position = position_of(g, queue_find(
        g.shm, a.topic, a.topic_length, a.receipt.queue_id, queue_hash(
            name_hash(a.topic, a.topic_length, 0), a.receipt.queue_id)), a.receipt.offset)       # GD2
    if position < 0:                   # retention has deleted it: there is nothing to keep
        pop_ack(&g.pops, q, a.receipt.offset, a.receipt.pop_ms, a.receipt.invisible_ms, &clock)
        say_status(g, call, STATUS_MESSAGE_NOT_FOUND, "the message is deleted")
        return HANDLED
    one.call = call.id
    one.queue_id = a.receipt.queue_id
    one.offset = a.receipt.offset
    one.pop_ms = a.receipt.pop_ms
    one.invisible_ms = a.receipt.invisible_ms
    return begin(g, c, one, a.group, a.group_length, a.topic, a.topic_length, position)
