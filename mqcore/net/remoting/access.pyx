"""Checks signatures and permissions (RocketMQ 4.9.8: PlainPermissionManager, PlainAccessValidator)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove, memset

from mqcore.endian cimport load_i32, load_u32, load_u64
from mqcore.hmac_sha1 cimport (
    SHA1_SIZE,
    SIGNATURE_LENGTH,
    Hmac,
    Sha1State,
    hmac_add,
    hmac_begin,
    hmac_end,
    hmac_whole,
    sha1_init,
    signature_store,
)
from mqcore.layout cimport (
    ADDRESS_V6_SIZE,
    FIGURE_ACCESS_REFUSED,
    FRAME_CODEC_SHIFT,
    FRAME_HEADER_LENGTH_MASK,
    FRAME_HEADER_WORD,
    SLOT_SERVING,
)
from mqcore.net.remoting.frames cimport ONEWAY_BIT, RESPONSE_BIT, AccessShare, access_of
from mqcore.net.remoting.headers cimport is_pop
from mqcore.net.remoting.reply cimport reply_plain
from mqcore.net.requests cimport HANDLED, HANDLE_FORWARD, HANDLE_WAIT
from mqcore.shm.access cimport (
    ACCESS_DENY,
    ACCESS_NAME_BYTES_MAX,
    ACCESS_PUB,
    ACCESS_SUB,
    AccessTable,
    access_account,
    access_close,
    access_is_on,
    access_is_white,
    access_look,
    access_open,
    access_permission,
)
from mqcore.shm.segment cimport Segment
from mqcore.text cimport (
    Literal,
    is_literal,
    literal,
    literal_length,
    put_literal,
    put_short,
    starts_with,
)
from mqcore.store.topic_names cimport holds_others
from mqcore.wire.codes cimport (
    REQUEST_BATCH_ACK_MESSAGE,
    REQUEST_END_TRANSACTION,
    REQUEST_GET_POP_STATE,
    REQUEST_LITE_PULL_MESSAGE,
    REQUEST_PULL_MESSAGE,
    REQUEST_SEND_BATCH_MESSAGE,
    REQUEST_SEND_MESSAGE,
    REQUEST_SEND_MESSAGE_V2,
    RESPONSE_MESSAGE_ILLEGAL,
    RESPONSE_SYSTEM_ERROR,
)
from mqcore.wire.header cimport (
    HEADER_BROKEN,
    HEADER_READ,
    HEADER_UNUSUAL,
    PULL_GROUP,
    PULL_TOPIC,
    SEND_PRODUCER_GROUP,
    SEND_TOPIC,
    SignedField,
    Text,
    field_value,
    header_read_all,
    text_copy,
)

sha1_init()

cdef extern from *:
    """
    #define MQ_ACL_PREFIX "org.apache.rocketmq.acl.common.AclException: "
    #define MQ_ACL_RETRY "%RETRY%"
    #define MQ_ACL_TRACE "RMQ_SYS_TRACE_TOPIC"
    """
    const char* REMARK_PREFIX "MQ_ACL_PREFIX"
    const char* RETRY "MQ_ACL_RETRY"
    const char* TRACE_TOPIC "MQ_ACL_TRACE"

cdef enum:
    BODY_BYTES_FREE = 1 << 19          # signed whatever the longest message is
    SIGNATURE_BYTES_MAX = 6 * SIGNATURE_LENGTH     # each of them may be an escape
    VALUE_BYTES = 1024                 # of a longer value that holds escapes, at a time
    CHECK_WORK = 300                   # beside a unit for a byte that is signed


# -- refusals ----------------------------------------------------------------------------------------

cdef inline uint8_t* put_plain(uint8_t* at, const uint8_t* text, int32_t length,
                               int32_t length_max) noexcept nogil:
    """A peer's text in a remark (reply_begin): what could end it, or is no ASCII, is a question mark."""
    cdef int32_t i
    for i in range(min(length, length_max)):
        at[i] = text[i] if 0x20 <= text[i] < 0x7F and text[i] != c'"' and text[i] != c'\\' else c'?'
    return at + max(min(length, length_max), 0)


cdef void keep_refusal(AccessGuard* g, const Connection* c, const Request* request, int32_t reason,
                       const uint8_t* name, int32_t length) noexcept nogil:
    cdef const Text* key = field_value(&g.fields, literal("AccessKey"))
    cdef Text none
    none.start = NULL
    none.length = 0
    if key == NULL or request.unusual:
        key = &none
    access_note_refusal(g, c, request.header.code, reason, key.start, key.length, name, length)


cdef void access_note_refusal(AccessGuard* g, const Connection* c, int32_t code, int32_t reason,
                              const uint8_t* key, int32_t key_length, const uint8_t* name,
                              int32_t length) noexcept nogil:
    cdef AccessRefusal* kept
    g.transport.slot.figures[FIGURE_ACCESS_REFUSED] += 1
    if g.refusal_count == REFUSALS_MAX:
        g.refusals_lost += 1
        return
    kept = &g.refusals[g.refusal_count]
    g.refusal_count += 1
    kept.reason = reason
    kept.code = code
    memcpy(kept.address, c.address, ADDRESS_V6_SIZE)
    kept.address_is_v6 = c.address_is_v6
    kept.port = c.port
    kept.key_length = <int32_t>(put_plain(kept.key, key, key_length, REFUSAL_KEY_MAX) - kept.key)
    kept.name_length = 0
    if reason == ACCESS_TOPIC or reason == ACCESS_GROUP:       # else it is the key
        kept.name_length = <int32_t>(
            put_plain(kept.name, name, length, REFUSAL_NAME_MAX) - kept.name)


cdef int access_refuse(AccessGuard* g, Connection* c, const Request* request, int32_t reason,
                       const uint8_t* name, int32_t length) noexcept nogil:
    cdef uint8_t* at = put_literal(g.remark, REMARK_PREFIX)
    keep_refusal(g, c, request, reason, name, length)
    if request.header.flag & ONEWAY_BIT:
        return HANDLED
    if reason == ACCESS_NO_KEY:
        at = put_literal(at, "No accessKey is configured")
    elif reason == ACCESS_UNKNOWN_KEY:
        at = put_literal(at, "No acl config for ")
    elif reason == ACCESS_SIGNATURE:
        at = put_literal(at, "Check signature failed for accessKey=")
    elif reason == ACCESS_FIELDS:
        at = put_literal(at, "A field before AccessKey, accessKey=")
    elif reason == ACCESS_TOPIC:
        at = put_literal(at, "No default permission for topic:")
    else:
        at = put_literal(at, "No default permission for group:")
    at = put_plain(at, name, length, REFUSAL_NAME_MAX)
    at[0] = 0
    reply_plain(g.transport, c, request.header.binary, request.header.opaque, RESPONSE_SYSTEM_ERROR,
                <const char*>g.remark)
    return HANDLED


# -- signatures --------------------------------------------------------------------------------------

cdef void add_escaped(Hmac* hmac, const Text* value) noexcept nogil:
    """In pieces that end between two escapes; a pair of them stays together."""
    cdef uint8_t plain[VALUE_BYTES]
    cdef Text piece = value[0]
    cdef const uint8_t* end = value.start + value.length
    cdef const uint8_t* at = value.start
    cdef int32_t step, length
    while piece.start < end:
        at = piece.start
        while at < end and at - piece.start < VALUE_BYTES - 12:
            step = 1
            if at[0] == c'\\' and end - at >= 2:
                step = 2
                if at[1] == c'u':
                    step = 12 if (end - at >= 12 and at[6] == c'\\' and at[7] == c'u'
                                  and is_high_half(at + 2)) else 6
            at += min(step, end - at)
        piece.length = <int32_t>(at - piece.start)
        length = text_copy(&piece, plain, VALUE_BYTES)
        if length > 0:
            hmac_add(hmac, plain, length)
        piece.start = at


cdef inline bint is_high_half(const uint8_t* digits) noexcept nogil:
    return (digits[0] == c'd' or digits[0] == c'D') and (
        c'8' <= digits[1] <= c'9' or digits[1] == c'a' or digits[1] == c'b' or digits[1] == c'A'
        or digits[1] == c'B')


cdef struct Gathered:
    Hmac hmac
    uint8_t* text                      # what was not added yet
    int32_t length
    bint begun                         # some was


cdef void gathered_flush(Gathered* g) noexcept nogil:
    hmac_add(&g.hmac, g.text, g.length)
    g.length = 0
    g.begun = True


cdef inline bint gathered_has_room(Gathered* g, int32_t length) noexcept nogil:
    """Whether so much may be in one piece; what is there is added if it is in the way."""
    if length > SIGNED_TEXT_MAX - g.length:
        gathered_flush(g)
    return length <= SIGNED_TEXT_MAX


cdef inline void gather(Gathered* g, const uint8_t* bytes, int32_t length) noexcept nogil:
    if gathered_has_room(g, length):
        put_short(g.text + g.length, bytes, length)
        g.length += length
    else:
        hmac_add(&g.hmac, bytes, length)


cdef inline void gather_value(Gathered* g, const Text* value) noexcept nogil:
    cdef int32_t length
    if value.length < 0:
        gather(g, <const uint8_t*>"null", literal_length("null"))
    elif not value.escaped:
        gather(g, value.start, value.length)
    elif gathered_has_room(g, value.length):
        length = text_copy(value, g.text + g.length, SIGNED_TEXT_MAX - g.length)
        g.length += max(length, 0)
    else:
        add_escaped(&g.hmac, value)


cdef inline bint is_same(const uint8_t* expected, const uint8_t* given) noexcept nogil:
    """Two signatures, in the same time wherever they differ."""
    return (load_u64(expected) ^ load_u64(given) | load_u64(expected + 8) ^ load_u64(given + 8)
            | load_u64(expected + 16) ^ load_u64(given + 16)
            | load_u32(expected + 24) ^ load_u32(given + 24)) == 0


cdef bint is_signed_by(AccessGuard* g, const AccessAccount* account, const Request* request,
                       const Text* signature) noexcept nogil:
    cdef Gathered all
    cdef uint8_t digest[SHA1_SIZE]
    cdef uint8_t expected[SIGNATURE_LENGTH]
    cdef uint8_t given[SIGNATURE_BYTES_MAX]
    cdef const SignedField* one
    cdef int32_t i
    if signature == NULL or text_copy(signature, given, SIGNATURE_BYTES_MAX) != SIGNATURE_LENGTH:
        return False
    hmac_begin(&all.hmac, <const Sha1State*>account.inner)
    all.text = g.text
    all.length = 0
    all.begun = False
    for i in range(g.fields.count):
        one = &g.fields.fields[g.fields.sorted[i]]
        if not is_literal(one.name.start, one.name.length, "Signature") and (
                not is_literal(one.name.start, one.name.length, "_UNIQUE_KEY_QUERY")):
            gather_value(&all, &one.value)
    gather(&all, request.body, request.body_length)
    if all.begun:
        gathered_flush(&all)
        hmac_end(&all.hmac, <const Sha1State*>account.outer, digest)
    else:
        hmac_whole(<const Sha1State*>account.inner, <const Sha1State*>account.outer, all.text,
                   all.length, digest)
    signature_store(expected, digest)
    return is_same(expected, given)


cdef bint is_key_first(const AccessGuard* g, bint layout_may_be) noexcept nogil:
    """AR6. There is an access key."""
    cdef const SignedField* first = &g.fields.fields[g.fields.sorted[0]]
    if layout_may_be and is_literal(first.name.start, first.name.length, "#Layout"):
        first = &g.fields.fields[g.fields.sorted[1]]
    return is_literal(first.name.start, first.name.length, "AccessKey")


# -- permissions -------------------------------------------------------------------------------------

cdef bint access_may(const AccessTable* table, const AccessAccount* account, bint retry_of,
                     const uint8_t* name, int32_t length, int needed) noexcept nogil:
    cdef bint is_group = retry_of or starts_with(name, length, RETRY)
    cdef int owned = 0
    if account.admin and not account.has_permissions:
        return True
    if length <= ACCESS_NAME_BYTES_MAX:
        owned = access_permission(table, account, <const uint8_t*>RETRY,
                                  literal_length(RETRY) if retry_of else 0, name, length)
    if owned == 0 and (retry_of or table.stock_permissions or not holds_others(name, length)):
        owned = account.group_default if is_group else account.topic_default
    return owned & ACCESS_DENY == 0 and owned & needed != 0


cdef bint access_may_publish(const AccessGuard* g, const AccessAccount* account, const uint8_t* topic,
                             int32_t length) noexcept nogil:
    return access_may(g.access.table, account, False, topic, length, ACCESS_PUB)


cdef inline int32_t name_of(const Text* text, uint8_t* into) noexcept nogil:
    """Its bytes, all that fit; 0: there is none."""
    cdef int32_t length
    if text.length < 0:
        return 0
    length = text_copy(text, into, ACCESS_NAME_BYTES_MAX)
    if length >= 0:
        return length
    length = min(text.length, <int32_t>ACCESS_NAME_BYTES_MAX)
    memcpy(into, text.start, length)
    return length


cdef int refuse_topic(AccessGuard* g, Connection* c, const Request* request, const uint8_t* topic,
                      int32_t length) noexcept nogil:
    cdef int32_t prefix = literal_length(RETRY)
    if starts_with(topic, length, RETRY):
        return access_refuse(g, c, request, ACCESS_GROUP, topic + prefix, length - prefix)
    return access_refuse(g, c, request, ACCESS_TOPIC, topic, length)


cdef int check_send(AccessGuard* g, Connection* c, const Request* request) noexcept nogil:
    cdef const AccessTable* table = g.access.table
    cdef const Text* fields = &request.header.fields[0]
    cdef uint8_t topic[ACCESS_NAME_BYTES_MAX]
    cdef uint8_t group[ACCESS_NAME_BYTES_MAX]
    cdef const Text* group_text
    cdef int32_t group_length
    cdef int32_t length = name_of(&fields[SEND_TOPIC], topic)
    if table.stock_permissions and (request.header.code == REQUEST_SEND_BATCH_MESSAGE or length == 0):
        return HANDLE_FORWARD
    if is_literal(topic, length, TRACE_TOPIC):
        return HANDLE_FORWARD
    if not starts_with(topic, length, RETRY):
        if access_may(table, request.account, False, topic, length, ACCESS_PUB):
            return HANDLE_FORWARD
        return access_refuse(g, c, request, ACCESS_TOPIC, topic, length)
    # a client that sends back by itself what its consumers could not handle
    if not table.stock_permissions and not access_may(table, request.account, False, topic, length,
                                               ACCESS_SUB):
        return refuse_topic(g, c, request, topic, length)
    # of the older form stock asks for a field that no client sends
    group_text = (field_value(&g.fields, literal("group")) if request.header.code == REQUEST_SEND_MESSAGE
                  else &fields[SEND_PRODUCER_GROUP])
    if group_text == NULL or group_text.length < 0:
        return HANDLE_FORWARD
    group_length = name_of(group_text, group)      # one without a name needs a permission, too
    if access_may(table, request.account, True, group, group_length, ACCESS_SUB):
        return HANDLE_FORWARD
    return access_refuse(g, c, request, ACCESS_GROUP, group, group_length)


cdef int check_pull(AccessGuard* g, Connection* c, const Request* request) noexcept nogil:
    cdef const AccessTable* table = g.access.table
    cdef const Text* fields = &request.header.fields[0]
    cdef uint8_t name[ACCESS_NAME_BYTES_MAX]
    cdef int32_t length
    if table.stock_permissions and request.header.code == REQUEST_LITE_PULL_MESSAGE:
        return HANDLE_FORWARD
    length = name_of(&fields[PULL_TOPIC], name)
    if not (length == 0 and table.stock_permissions) and not access_may(
            table, request.account, False, name, length, ACCESS_SUB):
        return refuse_topic(g, c, request, name, length)
    length = name_of(&fields[PULL_GROUP], name)
    if not (length == 0 and table.stock_permissions) and not access_may(
            table, request.account, True, name, length, ACCESS_SUB):
        return access_refuse(g, c, request, ACCESS_GROUP, name, length)
    return HANDLE_FORWARD


cdef int check_pop(AccessGuard* g, Connection* c, const Request* request) noexcept nogil:
    """A request with its names in the body is for administrators: acks of a proxy, the list of all."""
    cdef const AccessTable* table = g.access.table
    cdef const Text* topic_text = field_value(&g.fields, literal("topic"))
    cdef const Text* group_text = field_value(&g.fields, literal("consumerGroup"))
    cdef uint8_t topic[ACCESS_NAME_BYTES_MAX]
    cdef uint8_t group[ACCESS_NAME_BYTES_MAX]
    cdef int32_t length = name_of(topic_text, topic) if topic_text != NULL else 0
    cdef int32_t group_length = name_of(group_text, group) if group_text != NULL else 0
    cdef int32_t prefix = literal_length(RETRY) + group_length + 1
    if request.account.admin:
        return HANDLE_FORWARD
    if request.header.code == REQUEST_GET_POP_STATE or (
            request.header.code == REQUEST_BATCH_ACK_MESSAGE):
        return refuse_topic(g, c, request, topic, 0)
    if not access_may(table, request.account, True, group, group_length, ACCESS_SUB):
        return access_refuse(g, c, request, ACCESS_GROUP, group, group_length)
    if (starts_with(topic, length, RETRY) and length > prefix and memcmp(
            topic + literal_length(RETRY), group, group_length) == 0
            and (topic[prefix - 1] == c'_' or topic[prefix - 1] == c'+')):
        memmove(topic, topic + prefix, length - prefix)      # the group's, of that topic
        length -= prefix
    if not access_may(table, request.account, False, topic, length, ACCESS_SUB):
        return refuse_topic(g, c, request, topic, length)
    return HANDLE_FORWARD


# -- the check ---------------------------------------------------------------------------------------

cdef inline bint is_decided_here(const Request* request) noexcept nogil:
    cdef int32_t code = request.header.code
    return (code == REQUEST_SEND_MESSAGE_V2 or code == REQUEST_SEND_MESSAGE
            or code == REQUEST_SEND_BATCH_MESSAGE or code == REQUEST_PULL_MESSAGE
            or code == REQUEST_LITE_PULL_MESSAGE or code == REQUEST_END_TRANSACTION or is_pop(code))


cdef bint access_white(AccessGuard* g, const Connection* c, AccessShare* own) noexcept nogil:
    if own.sequence != g.access.sequence:
        own.sequence = g.access.sequence
        own.white = access_is_white(g.access.table, 0, g.access.table.address_count, c.address,
                                    c.address_is_v6)
    return own.white


cdef int access_check(AccessGuard* g, Connection* c, Request* request) noexcept nogil:
    cdef const AccessTable* table
    cdef const AccessAccount* account
    cdef const Text* key
    cdef uint8_t name[ACCESS_NAME_BYTES_MAX]
    cdef int32_t length
    cdef bint decided
    request.account = NULL
    request.passed = not access_is_on(&g.access)
    if request.passed or (not request.unusual and request.header.flag & RESPONSE_BIT):
        return HANDLE_FORWARD
    if not access_look(&g.access):
        return HANDLE_WAIT                 # the coordinator has not shown the rules yet
    table = g.access.table
    request.passed = access_white(g, c, access_of(c))
    if request.passed or request.unusual or c.begun:
        return HANDLE_FORWARD
    decided = is_decided_here(request)
    key = field_value(&g.fields, literal("AccessKey"))
    length = name_of(key, name) if key != NULL else 0
    if length == 0:
        return access_refuse(g, c, request, ACCESS_NO_KEY, name, 0)
    account = access_account(table, name, length)
    if account == NULL:
        return access_refuse(g, c, request, ACCESS_UNKNOWN_KEY, name, length)
    if account.address_count and access_is_white(
            table, account.address_first, account.address_count, c.address, c.address_is_v6):
        request.passed = decided
        return HANDLE_FORWARD
    if request.body_length > max(g.identity.body_max, <int32_t>BODY_BYTES_FREE):         # AR5
        if not request.header.flag & ONEWAY_BIT:
            reply_plain(g.transport, c, request.header.binary, request.header.opaque,
                        RESPONSE_MESSAGE_ILLEGAL, <const char*>g.identity.illegal)
        return HANDLED
    if not access_of(c).proved:
        g.transport.work += CHECK_WORK + request.length
        if not is_key_first(g, not decided):
            return access_refuse(g, c, request, ACCESS_FIELDS, name, length)
        if not is_signed_by(g, account, request, field_value(&g.fields, literal("Signature"))):
            return access_refuse(g, c, request, ACCESS_SIGNATURE, name, length)
        access_of(c).proved = True
    request.passed = decided
    request.account = account
    if not decided:
        return HANDLE_FORWARD
    if request.header.code == REQUEST_END_TRANSACTION:
        if table.stock_permissions:
            request.account = NULL
        return HANDLE_FORWARD              # what it publishes to is known when it is served
    if (request.header.code == REQUEST_PULL_MESSAGE
            or request.header.code == REQUEST_LITE_PULL_MESSAGE):
        return check_pull(g, c, request)
    if is_pop(request.header.code):
        return check_pop(g, c, request)
    return check_send(g, c, request)


cdef class AccessProbe:
    """The check alone, over the rules that a segment shows; for tests."""
    cdef Segment segment
    cdef AccessGuard* guard
    cdef Transport transport
    cdef Identity identity

    def __init__(self, Segment segment not None, int body_max=4 << 20):
        self.segment = segment
        self.identity.body_max = body_max
        self.guard = <AccessGuard*>calloc(1, sizeof(AccessGuard))
        if self.guard == NULL:
            raise MemoryError
        self.transport.slot = &segment.shm.slots[SLOT_SERVING]
        self.guard.transport = &self.transport
        self.guard.identity = &self.identity
        access_open(&self.guard.access, &segment.shm)

    def __dealloc__(self):
        if self.guard != NULL:
            access_close(&self.guard.access)
        free(self.guard)

    def judge(self, bytes frame, bytes address) -> tuple[str, int]:
        """
        What becomes of a frame without its length word, from an address of 4 or 16 bytes: "passed",
        "asked" (of the coordinator), "waits" or "refused", and why (AccessReason, else 0); 0 with
        "refused": its body is too long.
        """
        cdef Connection c
        cdef Request request
        cdef const uint8_t* start = frame
        cdef int32_t word = load_i32(start)
        cdef int result
        memset(&c, 0, sizeof(c))
        memcpy(c.address, <const char*>address, len(address))
        c.address_is_v6 = len(address) == ADDRESS_V6_SIZE
        request.header_length = word & FRAME_HEADER_LENGTH_MASK
        result = header_read_all(start + FRAME_HEADER_WORD, request.header_length, word >> FRAME_CODEC_SHIFT == 1,
                                 &request.header, &self.guard.fields)
        if result == HEADER_BROKEN:
            raise ValueError("a header that nobody can read")
        request.unusual = result == HEADER_UNUSUAL or self.guard.fields.more
        request.header.flag |= ONEWAY_BIT              # nobody is there to be answered
        request.length = <int32_t>len(frame)
        request.body = start + FRAME_HEADER_WORD + request.header_length
        request.body_length = request.length - FRAME_HEADER_WORD - request.header_length
        self.guard.refusal_count = 0
        result = access_check(self.guard, &c, &request)
        if result == HANDLE_FORWARD:
            return "passed" if request.passed else "asked", 0
        if result == HANDLE_WAIT:
            return "waits", 0
        return "refused", self.guard.refusals[0].reason if self.guard.refusal_count else 0

    def judge_many(self, bytes frame, int64_t count) -> int:
        """Read and judge a frame `count` times; how often it passed. For benchmarks."""
        cdef Connection c
        cdef Request request
        cdef const uint8_t* start = frame
        cdef int32_t word = load_i32(start)
        cdef int64_t passed = 0, i
        memset(&c, 0, sizeof(c))
        request.header_length = word & FRAME_HEADER_LENGTH_MASK
        request.length = <int32_t>len(frame)
        request.body = start + FRAME_HEADER_WORD + request.header_length
        request.body_length = request.length - FRAME_HEADER_WORD - request.header_length
        with nogil:
            for i in range(count):
                request.unusual = header_read_all(
                    start + FRAME_HEADER_WORD, request.header_length, word >> FRAME_CODEC_SHIFT == 1,
                    &request.header, &self.guard.fields) != HEADER_READ
                request.header.flag |= ONEWAY_BIT
                access_of(&c).proved = False
                passed += access_check(self.guard, &c, &request) == HANDLE_FORWARD
        return passed
