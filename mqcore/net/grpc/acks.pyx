"""Serves acks and changes of invisible time."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport strlen

from mqcore.net.grpc.answers cimport call_say
from mqcore.net.grpc.authorization cimport may_consume
from mqcore.net.grpc.calls cimport (
    ACK_NOTES_MAX,
    Grpc,
    pop_clock,
    put_status,
    read_duration,
    read_name,
    say_status,
)
from mqcore.net.grpc.methods cimport (
    METHOD_CHANGE_INVISIBLE,
    STATUS_ILLEGAL_INVISIBLE_TIME,
    STATUS_INTERNAL_SERVER_ERROR,
    STATUS_INVALID_RECEIPT_HANDLE,
    STATUS_MULTIPLE_RESULTS,
    STATUS_OK,
)
from mqcore.net.grpc.protobuf cimport (
    PB_BYTES,
    PbReader,
    pb_begin,
    pb_end,
    pb_inside,
    pb_next,
    pb_open,
    pb_put_bytes,
    pb_put_number,
)
from mqcore.net.grpc.session cimport session_call
from mqcore.net.grpc.streams cimport Call
from mqcore.net.requests cimport HANDLED, HANDLE_DENIED, HANDLE_FORWARD
from mqcore.net.transport.transport cimport Connection, connection_find
from mqcore.store.pop.handles cimport RECEIPT_MAX, Receipt, receipt_parse, receipt_write
from mqcore.store.pop.journal cimport pop_flush
from mqcore.store.pop.pop cimport (
    POP_EXPIRED,
    POP_ILLEGAL,
    POP_OK,
    POP_STALE,
    PopClaim,
    pop_ack,
    pop_change,
)
from mqcore.store.pop.queues cimport pop_find
from mqcore.store.pop.state cimport PopClock, PopQueue

cdef enum:
    ACK_ENTRIES_MAX = 1024


cdef int32_t ack_one(Grpc* g, const uint8_t* group, int32_t group_length, const uint8_t* topic,
                     int32_t topic_length, const uint8_t* handle, int32_t length,
                     const char** text) noexcept nogil:
    cdef Receipt receipt
    cdef PopQueue* q
    cdef PopClock clock = pop_clock(g)
    cdef int outcome
    if not receipt_parse(handle, length, &receipt):
        text[0] = "receipt_handle: it is none"
        return STATUS_INTERNAL_SERVER_ERROR
    q = pop_find(&g.pops, group, group_length, topic, topic_length, receipt.queue_id)
    if q == NULL:
        text[0] = "receipt_handle: nothing of that queue was delivered to the group"
        return STATUS_INTERNAL_SERVER_ERROR
    outcome = pop_ack(&g.pops, q, receipt.offset, receipt.pop_ms, receipt.invisible_ms, &clock)
    if outcome == POP_OK or outcome == POP_STALE:
        text[0] = "OK"
        return STATUS_OK
    if outcome == POP_EXPIRED:
        text[0] = "receipt_handle: its time is over"
        return STATUS_INVALID_RECEIPT_HANDLE
    text[0] = "receipt_handle: there is no such delivery"
    return STATUS_INTERNAL_SERVER_ERROR


cdef void note_ack(Grpc* g, const Connection* c, const Call* call) noexcept nogil:
    """GR2: it was answered, and its answer has not left."""
    cdef PopClock clock
    if g.acked_count == ACK_NOTES_MAX:
        clock = pop_clock(g)
        g.journal_error = pop_flush(&g.pops, &clock)
        acks_settled(g)
    g.acked[g.acked_count].connection = c.id
    g.acked[g.acked_count].call = call.id
    g.acked_count += 1


cdef void acks_settled(Grpc* g) noexcept nogil:
    cdef int32_t i
    cdef Connection* c
    cdef Call* call
    for i in range(g.acked_count if g.journal_error else 0):
        c = connection_find(g.door.transport, g.acked[i].connection)
        call = session_call(c, g.acked[i].call) if c != NULL else NULL
        if call != NULL:
            call.output_start = call.output_end = 0
            call.done = False
            say_status(g, call, STATUS_INTERNAL_SERVER_ERROR,
                       "config/popState cannot be written: the message may come again")
    g.acked_count = 0


cdef int serve_ack(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                   int64_t length) noexcept nogil:
    cdef PbReader r, inner
    cdef const uint8_t* group = message
    cdef const uint8_t* topic = message
    cdef const uint8_t* handle
    cdef const uint8_t* id
    cdef int32_t group_length = 0, topic_length = 0, handle_length, id_length
    cdef int32_t code, common = 0, count = 0
    cdef const char* text = NULL
    cdef int64_t begun
    pb_open(&r, message, length)
    while pb_next(&r):
        if r.number == 1:
            read_name(&r, &group, &group_length)
        elif r.number == 2:
            read_name(&r, &topic, &topic_length)
        elif r.number == 3:
            count += 1
    if r.broken or count == 0 or count > ACK_ENTRIES_MAX:
        say_status(g, call, STATUS_INTERNAL_SERVER_ERROR, "entries: expected 1 to 1024")
        return HANDLED
    if not may_consume(g, c, group, group_length, topic, topic_length):
        return HANDLE_DENIED
    g.out.length = 0
    pb_open(&r, message, length)
    while pb_next(&r):
        if r.number != 3:
            continue
        inner = pb_inside(&r)
        handle = id = message
        handle_length = id_length = 0
        while pb_next(&inner):
            if inner.number == 1 and inner.kind == PB_BYTES:
                id, id_length = inner.bytes, inner.length
            elif inner.number == 2 and inner.kind == PB_BYTES:
                handle, handle_length = inner.bytes, inner.length
        code = ack_one(g, group, group_length, topic, topic_length, handle, handle_length, &text)
        common = code if common == 0 or common == code else STATUS_MULTIPLE_RESULTS
        begun = pb_begin(&g.out, 2)
        pb_put_bytes(&g.out, 1, id, id_length)
        pb_put_bytes(&g.out, 2, handle, handle_length)
        put_status(g, 3, code, <const uint8_t*>text, <int64_t>strlen(text))
        pb_end(&g.out, begun)
    if common == STATUS_MULTIPLE_RESULTS:
        text = "MULTIPLE_RESULTS"
    put_status(g, 1, common, <const uint8_t*>text, <int64_t>strlen(text))
    call_say(call, g.out.start, g.out.length, True)
    note_ack(g, c, call)
    return HANDLED


cdef int read_delivery(Grpc* g, Connection* c, Call* call, const uint8_t* message, int64_t length,
                       DeliveryAsked* a) noexcept nogil:
    cdef PbReader r
    cdef const uint8_t* handle = message
    cdef int32_t handle_length = 0
    a.group = a.topic = message
    a.group_length = a.topic_length = 0
    a.invisible_ms = -2
    pb_open(&r, message, length)
    while pb_next(&r):
        if r.number == 1:
            read_name(&r, &a.group, &a.group_length)
        elif r.number == 2:
            read_name(&r, &a.topic, &a.topic_length)
        elif r.number == 3 and r.kind == PB_BYTES:
            handle, handle_length = r.bytes, r.length
        elif r.number == 4 and call.method == METHOD_CHANGE_INVISIBLE:
            a.invisible_ms = read_duration(&r)
    if r.broken or not receipt_parse(handle, handle_length, &a.receipt):
        say_status(g, call, STATUS_INTERNAL_SERVER_ERROR, "receipt_handle: it is none")
        return HANDLED
    if not may_consume(g, c, a.group, a.group_length, a.topic, a.topic_length):
        return HANDLE_DENIED
    return HANDLE_FORWARD


cdef int serve_change(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                      int64_t length) noexcept nogil:
    cdef DeliveryAsked a
    cdef PopQueue* q
    cdef PopClaim claim
    cdef PopClock clock = pop_clock(g)
    cdef uint8_t text[RECEIPT_MAX]
    cdef int outcome = read_delivery(g, c, call, message, length, &a)
    if outcome != HANDLE_FORWARD:
        return outcome
    q = pop_find(&g.pops, a.group, a.group_length, a.topic, a.topic_length, a.receipt.queue_id)
    if q == NULL:
        say_status(g, call, STATUS_INTERNAL_SERVER_ERROR,
                   "receipt_handle: nothing of that queue was delivered to the group")
        return HANDLED
    claim.offset, claim.pop_ms, claim.invisible_ms = (a.receipt.offset, a.receipt.pop_ms,
                                                      a.receipt.invisible_ms)
    outcome = pop_change(&g.pops, q, &claim, a.invisible_ms, &clock)
    if outcome == POP_OK:
        a.receipt.pop_ms, a.receipt.invisible_ms = claim.pop_ms, claim.invisible_ms
        g.out.length = 0
        put_status(g, 1, STATUS_OK, <const uint8_t*>"OK", 2)
        pb_put_bytes(&g.out, 2, text, receipt_write(&a.receipt, text))
        call_say(call, g.out.start, g.out.length, True)
        note_ack(g, c, call)
    elif outcome == POP_ILLEGAL:
        say_status(g, call, STATUS_ILLEGAL_INVISIBLE_TIME,
                   "invisible_duration: expected 0 to 12 hours")
    elif outcome == POP_STALE or outcome == POP_EXPIRED:
        say_status(g, call, STATUS_INVALID_RECEIPT_HANDLE,
                   "receipt_handle: its time is over, or a later one has replaced it")
    else:
        say_status(g, call, STATUS_INTERNAL_SERVER_ERROR,
                   "receipt_handle: there is no such delivery")
    return HANDLED
