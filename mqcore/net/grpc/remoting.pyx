"""Serves POP over remoting."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from mqcore.endian cimport load_i32
from mqcore.layout cimport FRAME_HEADER_LENGTH_MASK, FRAME_HEADER_WORD
from mqcore.net.grpc.asking cimport ask_with, ask_with_number
from mqcore.net.grpc.calls cimport Asked
from mqcore.net.grpc.methods cimport (
    METHOD_RECEIVE_MESSAGE,
    STATUS_MESSAGE_NOT_FOUND,
    STATUS_TOO_MANY_REQUESTS,
)
from mqcore.net.grpc.pairs cimport (
    PAIRS_MAX,
    REFRESH_MS,
    HeldReceive,
    pair_find,
    pair_open,
    pair_wake,
    waiting_add,
)
from mqcore.net.grpc.pop_list cimport list_pops
from mqcore.net.grpc.protobuf cimport pb_begin, pb_end, pb_put_bytes
from mqcore.net.grpc.receives cimport (
    await_queues,
    look,
    look_ahead,
    pair_learn,
    queue_opened,
    refusal_of,
)
from mqcore.net.grpc.remote cimport NOTE_CODE, NOTE_CONNECTION, NOTE_LINK, NOTE_QUEUE, RemoteAsker
from mqcore.net.grpc.remote_acks cimport serve_remote_ack, serve_remote_acks
from mqcore.net.grpc.remote_answers cimport (
    REMOTE_FIELDS_ROOM,
    asker_of,
    keep_call,
    link_of,
    read_frame,
    read_pop,
    remote_free,
    remote_refuse,
    reply_close,
    reply_open,
    say_notified,
    say_peeked,
    say_remote,
)
from mqcore.net.remoting.command cimport Command, command_begin
from mqcore.net.remoting.frames cimport ONEWAY_BIT
from mqcore.net.remoting.reply cimport Reply, reply_body, reply_number
from mqcore.net.requests cimport HANDLED
from mqcore.net.serving.handler cimport front_command
from mqcore.store.pop.pop cimport PopBatch, pop_peek
from mqcore.store.pop.state cimport PopQueue
from mqcore.text cimport literal
from mqcore.wire.codes cimport (
    REQUEST_ACK_MESSAGE,
    REQUEST_BATCH_ACK_MESSAGE,
    REQUEST_CHANGE_MESSAGE_INVISIBLETIME,
    REQUEST_GET_POP_STATE,
    REQUEST_GRPC_CALL,
    REQUEST_NOTIFICATION,
    REQUEST_PEEK_MESSAGE,
    REQUEST_POLLING_INFO,
    REQUEST_POP_MESSAGE,
    RESPONSE_INVALID_PARAMETER,
    RESPONSE_REQUEST_CODE_NOT_SUPPORTED,
    RESPONSE_SERVICE_NOT_AVAILABLE,
    RESPONSE_SUBSCRIPTION_PARSE_FAILED,
    RESPONSE_SUCCESS,
)
from mqcore.wire.header cimport Header

cdef enum:
    REFUSED_REMARK_MAX = 255


# -- requests that wait ------------------------------------------------------------------------------

cdef void wait_remote(Grpc* g, Connection* c, const Call* call, Pair* pair,
                      int64_t until_ms) noexcept nogil:
    cdef Call* kept = keep_call(g, call)
    if kept == NULL or not waiting_add(pair, kept, c.id, until_ms):
        if kept != NULL:
            remote_free(g, kept)
        remote_refuse(g, call, STATUS_TOO_MANY_REQUESTS, "polling full")
        return
    g.pairs.next_ms = min(g.pairs.next_ms, until_ms)
    if pair.asked_ms:
        await_queues(g, pair, True)


cdef bint would_find(Grpc* g, Pair* pair, const Asked* a) noexcept nogil:
    """Whether a receive would find a message, whatever its filter."""
    cdef int32_t i, number
    cdef int64_t end
    cdef PopBatch batch
    cdef PopQueue* q
    memset(&batch, 0, sizeof(batch))
    batch.cursor = -1
    for i in range(pair.queue_count):
        if a.one_queue and a.queue_id != i:
            continue
        q = queue_opened(g, pair, a, i, &number, &end)
        if q != NULL and not (q.fifo and q.invisible > 0) and (
                (q.fifo and q.first >= 0) or pop_peek(&g.pops, q, &batch, end) >= 0):
            return True
    return False


cdef int look_remote(Grpc* g, Connection* c, Call* call, Pair* pair, const Asked* a,
                     bint* known) noexcept nogil:
    """Whether it was answered."""
    cdef RemoteAsker asker
    cdef int32_t count
    if call.notes[NOTE_CODE] == REQUEST_NOTIFICATION:
        known[0] = True
        if not would_find(g, pair, a):
            return False
        asker = asker_of(call)
        say_notified(g, &asker, True, False)
        return True
    if call.notes[NOTE_CODE] == REQUEST_PEEK_MESSAGE:
        count = look_ahead(g, pair, a)
        known[0] = count >= 0
        if known[0]:
            asker = asker_of(call)
            say_peeked(g, &asker)
        return known[0]
    return look(g, c, call, pair, a, known) > 0


cdef bint remote_again(Grpc* g, Connection* c, Call* call, Pair* pair) noexcept nogil:
    cdef Asked a
    cdef Header header
    cdef bint known
    read_frame(g, call.input, <int32_t>call.input_length, &header)
    read_pop(g, &a)
    if look_remote(g, c, call, pair, &a, &known):
        return True
    await_queues(g, pair, False)
    return False


# -- requests ----------------------------------------------------------------------------------------

cdef void serve_pop(Grpc* g, Connection* c, Call* call) noexcept nogil:
    cdef RemoteAsker asker = asker_of(call)
    cdef Asked a
    cdef Pair* pair
    cdef bint known
    cdef const char* wrong = read_pop(g, &a)
    if wrong != NULL:
        say_remote(g, &asker, RESPONSE_INVALID_PARAMETER, wrong)
        return
    pair = pair_open(&g.pairs, a.group, a.group_length, a.topic, a.topic_length)
    if pair == NULL:
        remote_refuse(g, call, STATUS_TOO_MANY_REQUESTS,
                      "too many pairs of groups and topics are received from")
        return
    call.notes[NOTE_QUEUE] = a.queue_id
    pair.used_ms = g.door.transport.steady_ms
    if g.door.transport.steady_ms - pair.asked_ms > REFRESH_MS:
        remote_ask(g, asker.link, pair)
    if pair.asked_ms == 0:
        wait_remote(g, c, call, pair, g.door.transport.steady_ms
                    + max(a.poll_ms, <int64_t>REMOTE_RETRY_MS))
        return
    if a.queue_id >= pair.queue_count:
        say_remote(g, &asker, RESPONSE_INVALID_PARAMETER,
                   "queueId is illegal: the topic has fewer queues that can be read")
    elif look_remote(g, c, call, pair, &a, &known):
        return
    elif not known:
        say_remote(g, &asker, RESPONSE_SUBSCRIPTION_PARSE_FAILED,
                   "parse the consumer's subscription failed")
    elif a.poll_ms == 0:
        remote_refuse(g, call, STATUS_MESSAGE_NOT_FOUND, NULL)
    else:
        wait_remote(g, c, call, pair, g.door.transport.steady_ms + a.poll_ms)


cdef void serve_polling_info(Grpc* g, const RemoteAsker* asker) noexcept nogil:
    cdef Asked a
    cdef const Pair* pair
    cdef Reply r
    cdef const char* wrong = read_pop(g, &a)
    if wrong != NULL:
        say_remote(g, asker, RESPONSE_INVALID_PARAMETER, wrong)
        return
    pair = pair_find(&g.pairs, a.group, a.group_length, a.topic, a.topic_length)
    if reply_open(g, asker, &r, RESPONSE_SUCCESS, NULL, REMOTE_FIELDS_ROOM):
        reply_number(&r, literal("pollingNum"), pair.waiting if pair != NULL else 0)
        reply_body(&r, 0)
        reply_close(g, &r, 0)


cdef void serve_remote(Grpc* g, int32_t link, uint64_t connection, const uint8_t* frame,
                       int32_t length) noexcept nogil:
    cdef Header header
    cdef Call call
    cdef RemoteAsker asker
    cdef Connection* c = link_of(g, link)
    cdef int32_t code
    if c == NULL or not read_frame(g, frame, length, &header):
        return
    memset(&call, 0, sizeof(call))
    call.id = header.opaque
    call.refused = header.flag & ONEWAY_BIT != 0
    call.input = <uint8_t*>frame
    call.input_length = length
    call.notes[NOTE_CONNECTION] = <int64_t>connection
    call.notes[NOTE_LINK] = link
    call.notes[NOTE_CODE] = code = header.code
    asker = asker_of(&call)
    if g.handler.sends.appends.slave:
        say_remote(g, &asker, RESPONSE_SERVICE_NOT_AVAILABLE,
                   "service not available now: this broker follows another one")
    elif (code == REQUEST_POP_MESSAGE or code == REQUEST_NOTIFICATION
            or code == REQUEST_PEEK_MESSAGE):
        serve_pop(g, c, &call)
    elif code == REQUEST_ACK_MESSAGE or code == REQUEST_CHANGE_MESSAGE_INVISIBLETIME:
        serve_remote_ack(g, &asker, code == REQUEST_CHANGE_MESSAGE_INVISIBLETIME)
    elif code == REQUEST_BATCH_ACK_MESSAGE:
        header_length_of(frame, &length)
        serve_remote_acks(g, &asker, frame + length, call.input_length - length)
    elif code == REQUEST_POLLING_INFO:
        serve_polling_info(g, &asker)
    elif code == REQUEST_GET_POP_STATE:
        list_pops(g, &asker)
    else:
        say_remote(g, &asker, RESPONSE_REQUEST_CODE_NOT_SUPPORTED, "the request type is not supported")


cdef inline void header_length_of(const uint8_t* frame, int32_t* length) noexcept nogil:
    """Of its header, with its word."""
    length[0] = FRAME_HEADER_WORD + (load_i32(frame) & FRAME_HEADER_LENGTH_MASK)


# -- what the coordinator knows of a pair ------------------------------------------------------------

cdef void remote_ask(Grpc* g, int32_t link, Pair* pair) noexcept nogil:
    cdef Connection* c = link_of(g, link)
    cdef Command command
    cdef int64_t outer, inner
    if c == NULL or (pair.asking and g.door.transport.steady_ms - pair.asking_ms < REMOTE_RETRY_MS):
        return
    g.out.length = 0
    outer = pb_begin(&g.out, 1)
    pb_put_bytes(&g.out, 2, pair.group, pair.group_length)
    pb_end(&g.out, outer)
    outer = pb_begin(&g.out, 2)
    inner = pb_begin(&g.out, 1)
    pb_put_bytes(&g.out, 2, pair.topic, pair.topic_length)
    pb_end(&g.out, inner)
    pb_end(&g.out, outer)
    if g.out.lacks_memory:
        return
    command_begin(&command, REQUEST_GRPC_CALL, pair.number, 0)
    ask_with_number(&command, literal("method"), METHOD_RECEIVE_MESSAGE)
    ask_with(&command, literal("form"), <const uint8_t*>"remoting", 8)
    if front_command(g.handler, c, &command, g.out.start, <int32_t>g.out.length, 0, True) == HANDLED:
        pair.asking = True
        pair.asking_ms = g.door.transport.steady_ms


cdef void remote_told(Grpc* g, Connection* c, int32_t opaque, const Said* said) noexcept nogil:
    cdef Pair* pair = g.pairs.of_number[opaque] if 0 <= opaque < PAIRS_MAX else NULL
    cdef const uint8_t* text = NULL
    cdef char remark[REFUSED_REMARK_MAX + 1]
    cdef int32_t status = 0, length = 0, i
    cdef HeldReceive* one
    cdef HeldReceive* after
    if pair == NULL or not pair.asking:
        return
    pair.asking = False
    if said == NULL or said.header.code != RESPONSE_SUCCESS:
        return                         # it is asked again (turns)
    status = refusal_of(said, &text, &length)
    if status == 0:
        pair_learn(g, pair, said)
        pair_wake(&g.pairs, pair)
        return
    for i in range(min(length, <int32_t>REFUSED_REMARK_MAX)):
        remark[i] = <char>(text[i] if 0x20 <= text[i] < 0x7F and text[i] != c'"' and text[i] != c'\\'
                           else c'?')
    remark[min(max(length, 0), <int32_t>REFUSED_REMARK_MAX)] = 0
    pair.asked_ms = 0
    one = pair.first
    while one != NULL:
        after = one.after
        if one.call.session == NULL:
            remote_refuse(g, one.call, status, remark)
            remote_free(g, one.call)
        one = after
