"""Reads requests of POP over remoting, and writes their answers."""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from mqcore.atomics cimport load_i64_acquire
from mqcore.endian cimport load_i32, store_i32
from mqcore.layout cimport (
    FRAME_CODEC_SHIFT,
    FRAME_HEADER_LENGTH_MASK,
    FRAME_HEADER_WORD,
    RECORD_RECONSUME_TIMES_AFTER_HOSTS,
    TOPIC_LENGTH_MAX,
    ForwardHead,
)
from mqcore.net.grpc.methods cimport (
    STATUS_CONSUMER_GROUP_NOT_FOUND,
    STATUS_FORBIDDEN,
    STATUS_MESSAGE_NOT_FOUND,
    STATUS_TOO_MANY_REQUESTS,
    STATUS_TOPIC_NOT_FOUND,
)
from mqcore.net.grpc.pairs cimport waiting_end
from mqcore.net.grpc.protobuf cimport pb_close, pb_put_raw
from mqcore.net.grpc.remote cimport (
    NOTE_CODE,
    NOTE_CONNECTION,
    NOTE_LINK,
    REMOTE_BATCH_MAX,
    Remote,
    RemoteMessage,
)
from mqcore.net.remoting.reply cimport (
    reply_begin,
    reply_body,
    reply_end,
    reply_number,
    reply_text,
)
from mqcore.net.requests cimport GROUP_BYTES_MAX
from mqcore.net.serving.loop cimport KIND_OTHER
from mqcore.net.serving.peer cimport peer_of
from mqcore.net.transport.connections cimport connection_within
from mqcore.net.transport.output cimport output_room, output_used
from mqcore.net.transport.transport cimport LIFE_OPEN
from mqcore.shm.tables cimport queue_find, queue_hash
from mqcore.store.pop.handles cimport REVIVE_QUEUE_FIFO
from mqcore.store.pop.queues cimport pop_find
from mqcore.store.pop.state cimport POP_INVISIBLE_MAX_MS, PopQueue
from mqcore.text cimport Literal, is_literal, literal
from mqcore.wire.codes cimport (
    REQUEST_NOTIFICATION,
    RESPONSE_NO_PERMISSION,
    RESPONSE_POLLING_FULL,
    RESPONSE_POLLING_TIMEOUT,
    RESPONSE_PULL_NOT_FOUND,
    RESPONSE_SUBSCRIPTION_GROUP_NOT_EXIST,
    RESPONSE_SUCCESS,
    RESPONSE_SYSTEM_ERROR,
    RESPONSE_TOPIC_NOT_EXIST,
)
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX, put_number
from mqcore.wire.header cimport (
    HEADER_READ,
    Text,
    field_value,
    header_read_all,
    text_i64,
    text_is_true,
)

cdef enum:
    REMOTE_HELD_MAX = 100_000          # requests that wait
    REMOTE_POLL_MAX_MS = 300_000
    OFFSET_ROOM = 3 * (NUMBER_LENGTH_MAX + 4)
    BODY_KEEP_BYTES = 1 << 20


# -- links -------------------------------------------------------------------------------------------

cdef Connection* link_of(Grpc* g, int32_t link) noexcept nogil:
    cdef Connection* c = g.remote.links[link]
    if c == NULL:
        c = connection_within(g.door.transport, KIND_OTHER)
        if c == NULL:
            return NULL
        peer_of(c).front = g.front
        g.remote.links[link] = c
        g.remote.sent[link] = 0
    return c if c.life == LIFE_OPEN else NULL


cdef int32_t link_number(const Grpc* g, const Connection* c) noexcept nogil:
    cdef int32_t i
    if c.fd >= 0:
        return -1
    for i in range(g.remote.count):
        if g.remote.links[i] == c:
            return i
    return -1


cdef void link_gone(Grpc* g, const Connection* c) noexcept nogil:
    cdef int32_t i = link_number(g, c)
    if i >= 0:
        g.remote.links[i] = NULL


# -- what is asked -----------------------------------------------------------------------------------

cdef bint remote_number(Grpc* g, Literal name, int64_t* value) noexcept nogil:
    """False: it is there and no number; an absent one leaves `value` unchanged."""
    cdef const Text* text = field_value(&g.remote.fields, name)
    return text == NULL or text_i64(text, value)


cdef int32_t remote_name(Grpc* g, Literal name,
                         const uint8_t** start) noexcept nogil:
    """Its bytes; 0: absent, or with escapes, which no name has."""
    cdef const Text* text = field_value(&g.remote.fields, name)
    start[0] = <const uint8_t*>""
    if text == NULL or text.escaped:
        return 0
    start[0] = text.start
    return text.length


cdef bint remote_true(Grpc* g, Literal name) noexcept nogil:
    cdef const Text* text = field_value(&g.remote.fields, name)
    return text != NULL and text_is_true(text)


cdef const char* read_pop(Grpc* g, Asked* a) noexcept nogil:
    """Of PopMessageRequestHeader; what is wrong, NULL: nothing."""
    cdef const Text* text
    cdef int64_t queue_id = -1, count = 1, mode = 0
    memset(a, 0, sizeof(Asked))
    a.group_length = remote_name(g, literal("consumerGroup"), &a.group)
    a.topic_length = remote_name(g, literal("topic"), &a.topic)
    a.attempt_length = remote_name(g, literal("attemptId"), &a.attempt_id)
    a.invisible_ms = 60_000
    a.poll_ms = 0
    if not 1 <= a.topic_length <= TOPIC_LENGTH_MAX:
        return "topic: expected a name of 1 to 127 bytes"
    if not 1 <= a.group_length < GROUP_BYTES_MAX:
        return "consumerGroup: expected a name of 1 to 255 bytes"
    if not remote_number(g, literal("queueId"), &queue_id) or queue_id > INT32_MAX:
        return "queueId: expected a number"
    if not remote_number(g, literal("maxMsgNums"), &count) or count < 0:
        return "maxMsgNums: expected a number, 0 or more"
    if count > REMOTE_BATCH_MAX:
        return "maxMsgNums: expected at most 32"
    if not remote_number(g, literal("invisibleTime"), &a.invisible_ms) or not (
            1 <= a.invisible_ms <= POP_INVISIBLE_MAX_MS):
        return "invisibleTime: expected 1 to 43200000 ms"
    if not remote_number(g, literal("pollTime"), &a.poll_ms):
        return "pollTime: expected a number"
    if not remote_number(g, literal("initMode"), &mode) or not 0 <= mode <= 1:
        return "initMode: expected 0 or 1"
    a.queue_id = <int32_t>max(queue_id, <int64_t>-1)
    a.one_queue = a.queue_id >= 0
    a.from_min = mode == 0
    a.order = remote_true(g, literal("order"))
    a.batch = <int32_t>max(count, <int64_t>1)
    a.poll_ms = min(max(a.poll_ms, <int64_t>0), <int64_t>REMOTE_POLL_MAX_MS)
    a.filter = <const uint8_t*>"*"
    a.filter_length = 1
    text = field_value(&g.remote.fields, literal("exp"))
    if text != NULL and text.length > 0:
        a.filter, a.filter_length, a.filter_escaped = text.start, text.length, text.escaped
        text = field_value(&g.remote.fields, literal("expType"))
        if text != NULL and text.length > 0 and not is_literal(text.start, text.length, "TAG"):
            a.filter_type = 2          # its group's subscription has it
    return NULL


cdef bint read_frame(Grpc* g, const uint8_t* frame, int32_t length, Header* header) noexcept nogil:
    cdef int32_t word = load_i32(frame)
    cdef int32_t header_length = word & FRAME_HEADER_LENGTH_MASK
    return FRAME_HEADER_WORD + header_length <= length and header_read_all(
        frame + FRAME_HEADER_WORD, header_length, word >> FRAME_CODEC_SHIFT == 1, header,
        &g.remote.fields) == HEADER_READ


# -- answers -----------------------------------------------------------------------------------------

cdef bint reply_open(Grpc* g, const RemoteAsker* asker, Reply* r, int32_t code, const char* remark,
                     int64_t room) noexcept nogil:
    """False: no answer is wanted, or there is no memory."""
    cdef Connection* c
    cdef ForwardHead* head
    if asker.oneway:
        return False
    c = link_of(g, asker.link)
    if c == NULL:
        return False
    head = <ForwardHead*>output_room(g.door.transport, c, sizeof(ForwardHead) + 1024 + room)
    if head == NULL:
        return False
    memset(head, 0, sizeof(ForwardHead))
    memcpy(&head.connection, &asker.connection, sizeof(uint64_t))
    output_used(g.door.transport, c, sizeof(ForwardHead))
    return reply_begin(g.door.transport, c, r, False, asker.opaque, code, remark, room)


cdef void reply_close(Grpc* g, Reply* r, int32_t body_length) noexcept nogil:
    reply_end(g.door.transport, r, body_length)


cdef void say_remote(Grpc* g, const RemoteAsker* asker, int32_t code, const char* remark) noexcept nogil:
    cdef Reply r
    if reply_open(g, asker, &r, code, remark, 0):
        r.plain = True
        reply_body(&r, 0)
        reply_close(g, &r, 0)


cdef RemoteAsker asker_of(const Call* call) noexcept nogil:
    cdef RemoteAsker asker
    asker.connection = <uint64_t>call.notes[NOTE_CONNECTION]
    asker.link = <int32_t>call.notes[NOTE_LINK]
    asker.opaque = call.id
    asker.oneway = call.refused
    return asker


cdef void remote_begin(Grpc* g, Pair* pair, const Asked* a) noexcept nogil:
    if g.remote.body.capacity > BODY_KEEP_BYTES:
        pb_close(&g.remote.body)
    g.remote.body.length = 0
    g.remote.body.lacks_memory = False
    g.remote.message_count = 0
    g.remote.pop_ms = 0
    g.remote.pair = pair
    g.remote.invisible_ms = a.invisible_ms
    g.remote.fifo = pair.fifo or a.order


cdef bint remote_message(Grpc* g, const uint8_t* record, const RecordView* view,
                         const RecordHead* head, const PopClaim* claim) noexcept nogil:
    """Its record, with the number of its deliveries before this one."""
    cdef Remote* r = &g.remote
    cdef RemoteMessage one
    cdef int32_t at = r.message_count
    cdef int64_t began = r.body.length
    if at == REMOTE_BATCH_MAX:
        return False
    pb_put_raw(&r.body, record, view.size)
    if r.body.lacks_memory:
        return False
    store_i32(r.body.start + began + (head.store_host + head.store_host_size
                                      + RECORD_RECONSUME_TIMES_AFTER_HOSTS - record),
              head.reconsume_times + claim.attempts - 1)
    r.pop_ms = claim.pop_ms
    one.queue_id, one.offset, one.attempts = view.queue_id, claim.offset, claim.attempts - 1
    while at > 0 and is_behind(&r.messages[at - 1], &one):                                # remote RM4
        r.messages[at] = r.messages[at - 1]
        at -= 1
    r.messages[at] = one
    r.message_count += 1
    return True


cdef inline bint is_behind(const RemoteMessage* one, const RemoteMessage* other) noexcept nogil:
    return one.queue_id > other.queue_id or (
        one.queue_id == other.queue_id and one.offset > other.offset)


cdef int64_t left_of(Grpc* g, Pair* pair) noexcept nogil:
    """Messages of the topic that the group has not got yet, or gets again."""
    cdef int32_t i, number
    cdef int64_t left = 0
    cdef const PopQueue* q
    for i in range(pair.queue_count):
        number = queue_find(g.shm, pair.topic, pair.topic_length, i, queue_hash(pair.topic_hash, i))
        q = pop_find(&g.pops, pair.group, pair.group_length, pair.topic, pair.topic_length, i)
        if number >= 0 and q != NULL:
            left += max(load_i64_acquire(&g.shm.queues[number].max_offset) - q.next, <int64_t>0)
            left += q.count - q.invisible
    return left


cdef uint8_t* put_part(uint8_t* at, int64_t value, char after) noexcept nogil:
    at += put_number(at, value)
    at[0] = after
    return at + 1


cdef int32_t put_infos(const Remote* r, int what, uint8_t* into) noexcept nogil:
    """startOffsetInfo (0), msgOffsetInfo (1), orderCountInfo (2), as stock's clients read them."""
    cdef uint8_t* at = into
    cdef int32_t i
    cdef const RemoteMessage* one
    cdef bint first
    for i in range(r.message_count):
        one = &r.messages[i]
        first = i == 0 or r.messages[i - 1].queue_id != one.queue_id
        if what == 1 and not first:
            (at - 1)[0] = c','
            at = put_part(at, one.offset, c';')
        elif what == 2:
            memcpy(at, "0 qo", 4)
            at = put_part(at + 4, one.queue_id, c'%')
            at = put_part(put_part(at, one.offset, c' '), one.attempts, c';')
        elif first:
            at = put_part(put_part(put_part(at, 0, c' '), one.queue_id, c' '), one.offset, c';')
    return <int32_t>(at - into) - (1 if at > into else 0)


cdef void put_pop_fields(Grpc* g, Reply* r, int64_t pop_ms, int64_t invisible_ms, int32_t revive_queue,
                         int64_t rest) noexcept nogil:
    reply_number(r, literal("invisibleTime"), invisible_ms)
    reply_number(r, literal("popTime"), pop_ms)
    reply_number(r, literal("restNum"), rest)
    reply_number(r, literal("reviveQid"), revive_queue)


cdef void say_pop(Grpc* g, const RemoteAsker* asker, int32_t code, const char* remark,
                  int64_t invisible_ms, bint fifo) noexcept nogil:
    """An answer to POP_MESSAGE, with the messages that were found."""
    cdef Remote* m = &g.remote
    cdef uint8_t infos[REMOTE_BATCH_MAX * OFFSET_ROOM]
    cdef int32_t what, length
    cdef Reply r
    cdef uint8_t* body
    if not reply_open(g, asker, &r, code, remark,
                      m.body.length + REMOTE_FIELDS_ROOM + 3 * REMOTE_BATCH_MAX * OFFSET_ROOM):
        return
    put_pop_fields(g, &r, m.pop_ms, invisible_ms, REVIVE_QUEUE_FIFO if fifo else 0, m.rest)
    for what in range(3 if fifo else 2):
        length = put_infos(m, what, infos)
        if what == 0:
            reply_text(&r, literal("startOffsetInfo"), infos, length)
        elif what == 1:
            reply_text(&r, literal("msgOffsetInfo"), infos, length)
        else:
            reply_text(&r, literal("orderCountInfo"), infos, length)
    body = reply_body(&r, <int32_t>m.body.length)
    if m.body.length > 0:
        memcpy(body, m.body.start, m.body.length)
    reply_close(g, &r, <int32_t>m.body.length)


cdef void say_peeked(Grpc* g, const RemoteAsker* asker) noexcept nogil:
    g.remote.rest = left_of(g, g.remote.pair) - g.remote.message_count
    if g.remote.message_count > 0:
        say_pop(g, asker, RESPONSE_SUCCESS, "FOUND", g.remote.invisible_ms, False)
    else:
        say_pop(g, asker, RESPONSE_PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", g.remote.invisible_ms, False)


cdef void remote_found(Grpc* g, const Call* call) noexcept nogil:
    cdef RemoteAsker asker = asker_of(call)
    g.remote.rest = left_of(g, g.remote.pair)
    say_pop(g, &asker, RESPONSE_SUCCESS, "FOUND", g.remote.invisible_ms, g.remote.fifo)


cdef int32_t code_of_status(int32_t status) noexcept nogil:
    if status == STATUS_MESSAGE_NOT_FOUND:
        return RESPONSE_POLLING_TIMEOUT
    if status == STATUS_TOO_MANY_REQUESTS:
        return RESPONSE_POLLING_FULL
    if status == STATUS_TOPIC_NOT_FOUND:
        return RESPONSE_TOPIC_NOT_EXIST
    if status == STATUS_CONSUMER_GROUP_NOT_FOUND:
        return RESPONSE_SUBSCRIPTION_GROUP_NOT_EXIST
    if status == STATUS_FORBIDDEN:
        return RESPONSE_NO_PERMISSION
    return RESPONSE_SYSTEM_ERROR


cdef void remote_refuse(Grpc* g, const Call* call, int32_t status, const char* text) noexcept nogil:
    cdef RemoteAsker asker = asker_of(call)
    cdef int32_t code = code_of_status(status)
    if code != RESPONSE_POLLING_TIMEOUT and code != RESPONSE_POLLING_FULL:
        say_remote(g, &asker, code, text)
        return
    if call.notes[NOTE_CODE] == REQUEST_NOTIFICATION:
        say_notified(g, &asker, False, code == RESPONSE_POLLING_FULL)
        return
    g.remote.body.length = g.remote.message_count = 0
    g.remote.pop_ms = g.remote.rest = 0
    say_pop(g, &asker, code, "NO_MESSAGE_IN_QUEUE", 0, False)


cdef void say_notified(Grpc* g, const RemoteAsker* asker, bint has, bint full) noexcept nogil:
    cdef Reply r
    if not reply_open(g, asker, &r, RESPONSE_SUCCESS, NULL, REMOTE_FIELDS_ROOM):
        return
    reply_text(&r, literal("hasMsg"), <const uint8_t*>"true" if has else <const uint8_t*>"false",
               4 if has else 5)
    reply_text(&r, literal("pollingFull"), <const uint8_t*>"true" if full else <const uint8_t*>"false",
               4 if full else 5)
    reply_body(&r, 0)
    reply_close(g, &r, 0)


# -- requests that wait ------------------------------------------------------------------------------

cdef inline Call** held_bucket(Grpc* g, uint64_t connection) noexcept nogil:
    return &g.remote.held[(connection * <uint64_t>0x9E3779B97F4A7C15) >> 52]


cdef Call* keep_call(Grpc* g, const Call* call) noexcept nogil:
    """A copy with its frame; NULL: too many, or no memory."""
    cdef Call** bucket = held_bucket(g, <uint64_t>call.notes[NOTE_CONNECTION])
    cdef Call* kept
    if g.remote.held_count == REMOTE_HELD_MAX:
        return NULL
    kept = <Call*>calloc(1, sizeof(Call))
    if kept == NULL:
        return NULL
    memcpy(kept, call, sizeof(Call))
    kept.input = <uint8_t*>malloc(call.input_length)
    if kept.input == NULL:
        free(kept)
        return NULL
    memcpy(kept.input, call.input, call.input_length)
    kept.before = NULL
    kept.after = bucket[0]
    if bucket[0] != NULL:
        bucket[0].before = kept
    bucket[0] = kept
    g.remote.held_count += 1
    return kept


cdef void remote_free(Grpc* g, Call* call) noexcept nogil:
    waiting_end(call)
    if call.before != NULL:
        call.before.after = call.after
    else:
        held_bucket(g, <uint64_t>call.notes[NOTE_CONNECTION])[0] = call.after
    if call.after != NULL:
        call.after.before = call.before
    g.remote.held_count -= 1
    free(call.input)
    free(call)


cdef void remote_closed(Grpc* g, uint64_t connection) noexcept nogil:
    cdef Call* call = held_bucket(g, connection)[0]
    cdef Call* after
    while call != NULL:
        after = call.after
        if <uint64_t>call.notes[NOTE_CONNECTION] == connection:
            remote_free(g, call)
        call = after
