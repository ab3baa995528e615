"""Reads SendMessageRequest into what serving stores, and writes its answer."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcpy, strlen

from mqcore.layout cimport (
    NAME_SEPARATOR,
    PROPERTIES_LENGTH_MAX,
    PROPERTY_SEPARATOR,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_PREPARED,
    TOPIC_LENGTH_MAX,
)
from mqcore.names cimport is_utf8
from mqcore.net.grpc.answers cimport call_say
from mqcore.net.grpc.authorization cimport may_publish
from mqcore.net.grpc.calls cimport put_status, read_name, read_seconds, say_status
from mqcore.net.grpc.messages cimport (
    ENCODING_GZIP,
    TYPE_DELAY,
    TYPE_FIFO,
    TYPE_NORMAL,
    TYPE_TRANSACTION,
    is_reserved,
)
from mqcore.net.grpc.methods cimport (
    STATUS_BODY_EMPTY,
    STATUS_BODY_TOO_LARGE,
    STATUS_CONFLICT_WITH_TYPE,
    STATUS_ILLEGAL_MESSAGE_GROUP,
    STATUS_ILLEGAL_MESSAGE_ID,
    STATUS_ILLEGAL_MESSAGE_KEY,
    STATUS_ILLEGAL_MESSAGE_TAG,
    STATUS_ILLEGAL_PROPERTY_KEY,
    STATUS_ILLEGAL_TOPIC,
    STATUS_BAD_REQUEST,
    STATUS_MESSAGE_CORRUPTED,
    STATUS_NOT_IMPLEMENTED,
    STATUS_OK,
    STATUS_PROPERTIES_TOO_LARGE,
    status_of,
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
from mqcore.net.requests cimport HANDLED, HANDLE_DENIED, SendRequest
from mqcore.net.serving.handler cimport front_ask
from mqcore.net.serving.peer cimport peer_of
from mqcore.net.transport.transport cimport wall_of_turn
from mqcore.shm.tables cimport (
    TOPIC_KIND_MASK,
    TOPIC_KIND_UNIT,
    TopicView,
    name_hash,
    topic_find,
)
from mqcore.store.record cimport java_hash
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX, put_number

cdef enum:
    GROUP_LENGTH_END = 64              # of a message's group, in bytes (grpc.md 1.5)
    USER_COUNT_MAX = 128
    USER_BYTES_MAX = 16 << 10
    RECOVERY_S_MAX = 3600
    KIND_TEXT_MAX = 128
    # Call.notes
    NOTE_ID_AT = 0                     # where its id lies in the call's input ...
    NOTE_ID_LENGTH = 1                 # ... and how long it is
    NOTE_TRANSACTION = 2

cdef struct Part:                      # of a message; length -1: it is not there
    const uint8_t* bytes
    int32_t length

cdef struct Message:
    PbReader whole
    Part topic
    Part body
    Part id
    Part tag
    Part group
    Part trace
    Part born_host
    int32_t key_count
    int32_t user_count
    int64_t user_bytes                 # of properties, tag and keys
    int32_t type
    int32_t encoding
    int32_t queue_id                   # -1: not said
    int32_t attempt
    int64_t born_ms                    # -1: not said
    int64_t deliver_ms
    int64_t recovery_s

cdef struct Properties:                # as a record has them
    uint8_t* at
    uint8_t* end
    bint full


cdef inline Part part_of(const PbReader* r) noexcept nogil:
    return Part(bytes=r.bytes, length=r.length)


cdef int64_t milliseconds(const PbReader* r) noexcept nogil:
    cdef int64_t nanos
    cdef int64_t seconds = min(max(read_seconds(r, &nanos), <int64_t>0), <int64_t>1 << 40)
    return seconds * 1000 + nanos // 1_000_000


cdef bint has_control(const uint8_t* bytes, int32_t length) noexcept nogil:
    cdef int32_t i
    for i in range(length):
        if bytes[i] < 0x20 or bytes[i] == 0x7F:
            return True
    return False


cdef bint is_blank(const Part* part) noexcept nogil:
    cdef int32_t i
    for i in range(part.length):
        if part.bytes[i] > c' ':
            return False
    return True


cdef bint read_system(Message* m, PbReader r) noexcept nogil:
    cdef int64_t nanos
    while pb_next(&r):
        if r.number == 1 and r.kind == PB_BYTES:
            m.tag = part_of(&r)
            m.user_bytes += r.length
        elif r.number == 2 and r.kind == PB_BYTES:
            m.key_count += 1
            m.user_bytes += r.length
        elif r.number == 3 and r.kind == PB_BYTES:
            m.id = part_of(&r)
        elif r.number == 5:
            m.encoding = <int32_t>r.value
        elif r.number == 6:
            m.type = <int32_t>r.value
        elif r.number == 7:
            m.born_ms = milliseconds(&r)
        elif r.number == 8 and r.kind == PB_BYTES:
            m.born_host = part_of(&r)
        elif r.number == 11:
            m.deliver_ms = milliseconds(&r)
        elif r.number == 13:
            m.queue_id = <int32_t>r.value
        elif r.number == 16:
            m.attempt = <int32_t>r.value
        elif r.number == 17 and r.kind == PB_BYTES:
            m.group = part_of(&r)
        elif r.number == 18 and r.kind == PB_BYTES:
            m.trace = part_of(&r)
        elif r.number == 19:
            m.recovery_s = read_seconds(&r, &nanos)
    return not r.broken


cdef void part_none(Part* part) noexcept nogil:
    part.bytes = NULL
    part.length = -1


cdef bint read_message(Message* m, PbReader r) noexcept nogil:
    cdef PbReader inner
    m.whole = r
    part_none(&m.topic)
    part_none(&m.body)
    part_none(&m.id)
    part_none(&m.tag)
    part_none(&m.group)
    part_none(&m.trace)
    part_none(&m.born_host)
    m.key_count = m.user_count = m.type = m.encoding = m.attempt = 0
    m.user_bytes = m.recovery_s = 0
    m.queue_id = -1
    m.born_ms = m.deliver_ms = -1
    while pb_next(&r):
        if r.kind != PB_BYTES:
            continue
        inner = pb_inside(&r)
        if r.number == 1:
            if not read_name(&r, &m.topic.bytes, &m.topic.length):
                return False
        elif r.number == 2:
            m.user_count += 1
            m.user_bytes += r.length
        elif r.number == 3:
            if not read_system(m, inner):
                return False
        elif r.number == 4:
            m.body = part_of(&r)
        if inner.broken and r.number != 4:
            return False
    return not r.broken


cdef bint take_entry(PbReader r, Part* key, Part* value) noexcept nogil:
    """Of a map."""
    key.bytes = value.bytes = r.at
    key.length = value.length = 0
    while pb_next(&r):
        if r.number == 1 and r.kind == PB_BYTES:
            key[0] = part_of(&r)
        elif r.number == 2 and r.kind == PB_BYTES:
            value[0] = part_of(&r)
    return not r.broken


# -- what is wrong (GS1) -----------------------------------------------------------------------------

cdef bint is_topic_text(const Part* topic) noexcept nogil:
    cdef int32_t i
    cdef uint8_t one
    if not 1 <= topic.length <= TOPIC_LENGTH_MAX:
        return False
    for i in range(topic.length):
        one = topic.bytes[i]
        if not (c'a' <= (one | 0x20) <= c'z' or c'0' <= one <= c'9' or one == c'%' or one == c'|'
                or one == c'_' or one == c'-'):
            return False
    return True


cdef int32_t wrong_properties(const Message* m, const char** text) noexcept nogil:
    cdef PbReader r = m.whole
    cdef Part key, value
    if m.user_count > USER_COUNT_MAX:
        text[0] = "more than 128 user properties"
        return STATUS_PROPERTIES_TOO_LARGE
    while pb_next(&r):
        if r.number != 2 or r.kind != PB_BYTES:
            continue
        if not take_entry(pb_inside(&r), &key, &value):
            text[0] = "a user property is broken"
            return STATUS_ILLEGAL_PROPERTY_KEY
        if is_reserved(key.bytes, key.length):
            text[0] = "the name of a user property is reserved"
            return STATUS_ILLEGAL_PROPERTY_KEY
        if key.length == 0 or has_control(key.bytes, key.length) or has_control(value.bytes, value.length):
            text[0] = "a user property has no name, or control characters in its name or value"
            return STATUS_ILLEGAL_PROPERTY_KEY
    return STATUS_OK


cdef int32_t wrong_keys(const Message* m, const char** text) noexcept nogil:
    cdef PbReader r = m.whole
    cdef PbReader inner
    cdef Part key
    while pb_next(&r):
        if r.number != 3 or r.kind != PB_BYTES:
            continue
        inner = pb_inside(&r)
        while pb_next(&inner):
            if inner.number == 2 and inner.kind == PB_BYTES:
                key = part_of(&inner)
                if is_blank(&key) or has_control(key.bytes, key.length):
                    text[0] = "a key is blank, or has control characters"
                    return STATUS_ILLEGAL_MESSAGE_KEY
    return STATUS_OK


cdef int32_t wrong_with(const Grpc* g, const Message* m, const char** text) noexcept nogil:
    cdef int32_t code
    if not is_topic_text(&m.topic):
        text[0] = "topic: expected 1 to 127 characters of letters, digits, %, |, _ and -"
        return STATUS_ILLEGAL_TOPIC
    if m.body.length <= 0:
        text[0] = "body: it is empty"
        return STATUS_BODY_EMPTY
    if m.body.length > g.body_max:
        text[0] = "body: it is longer than store.message_size_max_bytes"
        return STATUS_BODY_TOO_LARGE
    code = wrong_properties(m, text)
    if code != STATUS_OK:
        return code
    if m.tag.length > 0 and (is_blank(&m.tag) or has_control(m.tag.bytes, m.tag.length)
                             or memchr(m.tag.bytes, c'|', m.tag.length) != NULL):
        text[0] = "tag: it is blank, or has | or a control character"
        return STATUS_ILLEGAL_MESSAGE_TAG
    code = wrong_keys(m, text)
    if code != STATUS_OK:
        return code
    if m.user_bytes > USER_BYTES_MAX:
        text[0] = "user properties, tag and keys are longer than 16384 bytes"
        return STATUS_PROPERTIES_TOO_LARGE
    if m.id.length <= 0 or is_blank(&m.id) or has_control(m.id.bytes, m.id.length):
        text[0] = "message_id: it is blank, or has control characters"
        return STATUS_ILLEGAL_MESSAGE_ID
    if m.recovery_s > RECOVERY_S_MAX or m.recovery_s < 0:
        text[0] = "orphaned_transaction_recovery_duration: expected one hour at most"
        return STATUS_BAD_REQUEST
    if m.group.length >= 0 and (is_blank(&m.group) or m.group.length >= GROUP_LENGTH_END
                                or has_control(m.group.bytes, m.group.length)):
        text[0] = "message_group: it is blank, has control characters, or 64 bytes and more"
        return STATUS_ILLEGAL_MESSAGE_GROUP
    if not is_utf8(m.id.bytes, m.id.length) or (
            m.group.length > 0 and not is_utf8(m.group.bytes, m.group.length)):
        text[0] = "a text of the message is not UTF-8"
        return STATUS_MESSAGE_CORRUPTED
    return STATUS_OK


# -- properties --------------------------------------------------------------------------------------

cdef void put(Properties* p, const uint8_t* name, int32_t name_length, const uint8_t* value,
              int32_t length) noexcept nogil:
    if p.end - p.at < <int64_t>name_length + length + 2:
        p.full = True
        return
    memcpy(p.at, name, name_length)
    p.at += name_length
    p.at[0] = NAME_SEPARATOR
    memcpy(p.at + 1, value, length)
    p.at += 1 + length
    p.at[0] = PROPERTY_SEPARATOR
    p.at += 1


cdef void put_text(Properties* p, const char* name, const Part* value) noexcept nogil:
    if value.length > 0:
        put(p, <const uint8_t*>name, <int32_t>strlen(name), value.bytes, value.length)


cdef void put_i64(Properties* p, const char* name, int64_t value) noexcept nogil:
    cdef uint8_t digits[NUMBER_LENGTH_MAX]
    put(p, <const uint8_t*>name, <int32_t>strlen(name), digits, put_number(digits, value))


cdef void put_keys(Properties* p, const Message* m) noexcept nogil:
    """KEYS, parted by blanks."""
    cdef PbReader r = m.whole
    cdef PbReader inner
    cdef uint8_t* begun = p.at
    if m.key_count == 0:
        return
    put(p, <const uint8_t*>"KEYS", 4, NULL, 0)
    while pb_next(&r):
        if r.number != 3 or r.kind != PB_BYTES:
            continue
        inner = pb_inside(&r)
        while pb_next(&inner) and not p.full:
            if inner.number != 2 or inner.kind != PB_BYTES:
                continue
            if p.end - p.at < inner.length + 1:
                p.full = True
                break
            p.at -= 1                  # the separator that is there
            if p.at - begun > 5:
                p.at[0] = c' '
                p.at += 1
            memcpy(p.at, inner.bytes, inner.length)
            p.at += inner.length
            p.at[0] = PROPERTY_SEPARATOR
            p.at += 1


cdef void write_properties_of(Grpc* g, Connection* c, const Message* m, int64_t born_ms,
                              Properties* p) noexcept nogil:
    cdef PbReader r = m.whole
    cdef Part key, value, yes
    while pb_next(&r):
        if r.number == 2 and r.kind == PB_BYTES and take_entry(pb_inside(&r), &key, &value):
            put(p, key.bytes, key.length, value.bytes, value.length)
    put_text(p, "TAGS", &m.tag)
    put_keys(p, m)
    put_text(p, "UNIQ_KEY", &m.id)
    if m.type == TYPE_TRANSACTION:
        yes = Part(bytes=<const uint8_t*>"true", length=4)
        put_text(p, "TRAN_MSG", &yes)
        if m.recovery_s > 0:
            put_i64(p, "CHECK_IMMUNITY_TIME_IN_SECONDS", m.recovery_s)
    if m.deliver_ms >= 0:
        put_i64(p, "TIMER_DELIVER_MS", m.deliver_ms)
    put_i64(p, "RECONSUME_TIME", m.attempt)
    put_text(p, "PGROUP", &m.topic)
    put_text(p, "__SHARDINGKEY", &m.group)
    put_text(p, "TRACE_CONTEXT", &m.trace)
    put_text(p, "__BORNHOST", &m.born_host)
    put_i64(p, "BORN_TIMESTAMP", born_ms)


# -- queues of groups (GS2) --------------------------------------------------------------------------

cdef int32_t consistent_hash(int32_t input, int32_t buckets) noexcept nogil:
    """Lamping and Veach's jump hash, as Guava has it."""
    cdef int64_t state = input
    cdef int32_t candidate = 0
    cdef int64_t following
    while True:
        state = <int64_t>(<uint64_t>2862933555777941757 * <uint64_t>state + 1)
        following = <int64_t>((candidate + 1) / (
            <double>(<int32_t>(<uint64_t>state >> 33) + 1) / <double>(<int64_t>1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = <int32_t>following


cdef int32_t queue_of(const TopicView* topic, const Message* m) noexcept nogil:
    if m.group.length <= 0 or topic.write_queues < 1:
        return -1
    return consistent_hash(java_hash(m.group.bytes, m.group.length, 0), topic.write_queues)


# -- kinds of topics ---------------------------------------------------------------------------------

cdef int32_t kind_of(const Message* m) noexcept nogil:
    """As its properties will say it, whatever message_type says."""
    if m.type == TYPE_TRANSACTION:
        return TYPE_TRANSACTION
    if m.deliver_ms >= 0:
        return TYPE_DELAY
    return TYPE_FIFO if m.group.length > 0 else TYPE_NORMAL


cdef const char* kind_name(int32_t kind) noexcept nogil:
    if kind == TYPE_TRANSACTION:
        return "TRANSACTION"
    if kind == TYPE_DELAY:
        return "DELAY"
    return "FIFO" if kind == TYPE_FIFO else "NORMAL"


cdef bint refuses_kind(Grpc* g, Call* call, const TopicView* topic, const Message* m) noexcept nogil:
    """Whether the topic says another kind of messages than this one's (grpc.md 2.9)."""
    cdef char text[KIND_TEXT_MAX]
    cdef int32_t kind = (topic.flags & TOPIC_KIND_MASK) // TOPIC_KIND_UNIT
    if kind == 0 or kind == kind_of(m):
        return False
    snprintf(text, KIND_TEXT_MAX, "TopicMessageType validate failed, the expected type is %s, but "
             "actual type is %s", kind_name(kind), kind_name(kind_of(m)))
    say_status(g, call, STATUS_CONFLICT_WITH_TYPE, text)
    return True


# -- the call ----------------------------------------------------------------------------------------

cdef int serve_send_message(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                            int64_t length) noexcept nogil:
    cdef PbReader r
    cdef Message m
    cdef Properties p
    cdef SendRequest send
    cdef TopicView topic
    cdef const char* text = NULL
    cdef int32_t count = 0, code
    pb_open(&r, message, length)
    while pb_next(&r):
        if r.number == 1 and r.kind == PB_BYTES:
            count += 1
            if not read_message(&m, pb_inside(&r)):
                r.broken = True
    if r.broken or count == 0:
        say_status(g, call, STATUS_MESSAGE_CORRUPTED, "no message, or a broken one")
        return HANDLED
    if count > 1:
        say_status(g, call, STATUS_NOT_IMPLEMENTED, "several messages in one request: clients of this "
                   "protocol send one")
        return HANDLED
    code = wrong_with(g, &m, &text)
    if code != STATUS_OK:
        say_status(g, call, code, text)
        return HANDLED
    if not may_publish(g, c, m.topic.bytes, m.topic.length):
        return HANDLE_DENIED
    topic.write_queues = topic.flags = 0                     # of one that is not there yet
    topic_find(g.shm, m.topic.bytes, m.topic.length, name_hash(m.topic.bytes, m.topic.length, 0),
               &topic)
    if refuses_kind(g, call, &topic, &m):
        return HANDLED
    send.born_time_ms = m.born_ms if m.born_ms >= 0 else wall_of_turn(g.door.transport)
    p.at = g.properties
    p.end = g.properties + PROPERTIES_LENGTH_MAX
    p.full = False
    write_properties_of(g, c, &m, send.born_time_ms, &p)
    if p.full:
        say_status(g, call, STATUS_PROPERTIES_TOO_LARGE, "the message's properties are longer than 32767 bytes")
        return HANDLED
    call.notes[NOTE_ID_AT] = m.id.bytes - call.input
    call.notes[NOTE_ID_LENGTH] = m.id.length
    call.notes[NOTE_TRANSACTION] = m.type == TYPE_TRANSACTION
    send.asker.opaque = call.id
    send.asker.binary = send.asker.oneway = False
    memcpy(send.topic, m.topic.bytes, m.topic.length)
    send.topic_length = m.topic.length
    send.queue_id = queue_of(&topic, &m)
    send.sys_flag = ((SYS_FLAG_COMPRESSED if m.encoding == ENCODING_GZIP else 0)
                     | (SYS_FLAG_PREPARED if m.type == TYPE_TRANSACTION else 0))
    send.flag = send.reconsume_times = 0
    send.batch = False
    send.born_host = peer_of(c).host
    send.born_host_size = peer_of(c).host_size
    send.properties.start = g.properties
    send.properties.length = <int32_t>(p.at - g.properties)
    send.properties.escaped = False
    send.body = m.body.bytes
    send.body_length = m.body.length
    return front_ask(g.handler, c, &send, NULL, length, True)


cdef void put_hex(uint8_t* at, int64_t value) noexcept nogil:
    cdef const char* digits = "0123456789ABCDEF"
    cdef int i
    for i in range(16):
        at[i] = digits[<uint64_t>value >> (60 - 4 * i) & 15]


cdef bint take_hex(const uint8_t* at, int64_t* value) noexcept nogil:
    cdef uint64_t result = 0
    cdef int i
    for i in range(16):
        if c'0' <= at[i] <= c'9':
            result = result << 4 | <uint64_t>(at[i] - c'0')
        elif c'A' <= at[i] <= c'F':
            result = result << 4 | <uint64_t>(at[i] - c'A' + 10)
        else:
            return False
    value[0] = <int64_t>result
    return value[0] >= 0


cdef void put_place(uint8_t* into, int64_t log_position, int64_t half_offset) noexcept nogil:
    put_hex(into, log_position)
    put_hex(into + 16, half_offset)


cdef bint transaction_place(const uint8_t* text, int32_t length, int64_t* log_position,
                            int64_t* half_offset) noexcept nogil:
    return (length == TRANSACTION_ID_LENGTH and take_hex(text, log_position)
            and take_hex(text + 16, half_offset))


cdef void answer_send(Grpc* g, Call* call, const SendAnswer* answer) noexcept nogil:
    cdef int32_t code = status_of(answer.code)
    cdef const uint8_t* id = call.input + call.notes[NOTE_ID_AT]
    cdef int32_t id_length = <int32_t>call.notes[NOTE_ID_LENGTH]
    cdef uint8_t transaction[TRANSACTION_ID_LENGTH]
    cdef const char* text = answer.remark
    cdef int64_t entry
    if not answer.stored:
        say_status(g, call, code, answer.remark)
        return
    if text == NULL:
        text = "OK"
    g.out.length = 0
    put_status(g, 1, code, <const uint8_t*>text, <int64_t>strlen(text))
    entry = pb_begin(&g.out, 2)
    put_status(g, 1, code, <const uint8_t*>text, <int64_t>strlen(text))
    pb_put_bytes(&g.out, 2, id, id_length)
    if call.notes[NOTE_TRANSACTION]:
        put_place(transaction, answer.log_positions[0], answer.queue_offset)
        pb_put_bytes(&g.out, 3, transaction, TRANSACTION_ID_LENGTH)
    else:
        pb_put_bytes(&g.out, 3, id, id_length)
    pb_put_number(&g.out, 4, answer.queue_offset)
    if answer.recall_handle_length:
        pb_put_bytes(&g.out, 5, answer.recall_handle, answer.recall_handle_length)
    pb_end(&g.out, entry)
    call_say(call, g.out.start, g.out.length, True)
