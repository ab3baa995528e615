"""Sends (broker.md 2): the regular ones natively, every other one is the coordinator's."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mqcore.atomics cimport load_i32_acquire
from mqcore.endian cimport load_i32, load_u16
from mqcore.layout cimport (
    BATCH_ITEM_BODY,
    BATCH_ITEM_BODY_LENGTH,
    BATCH_ITEM_FIXED_SIZE,
    BATCH_ITEM_FLAG,
    HOST_V6_EXTRA,
    PROPERTIES_LENGTH_MAX,
    PROPERTY_SEPARATOR,
    PUT_MESSAGE_ILLEGAL,
    PUT_SERVICE_NOT_AVAILABLE,
    RECORD_FIXED_SIZE,
    REQUEST_BATCH,
    REQUEST_BINARY,
    REQUEST_ONEWAY,
    REQUEST_TIMED,
    REQUEST_WAITS,
    SYS_FLAG_COMMIT,
    SYS_FLAG_MULTI_TAGS,
    SYS_FLAG_TRANSACTION_MASK,
    TOPIC_LENGTH_MAX,
    TOPIC_MULTI_TAG,
    TOPIC_SEND_ASKS,
    AppendHead,
)
from mqcore.names cimport is_topic_name
from mqcore.net.requests cimport (
    HANDLED,
    HANDLE_FORWARD,
    HANDLE_STALL,
    HANDLE_WAIT,
    SendAnswer,
)
from mqcore.net.serving.appends cimport append_for, put_code
from mqcore.net.serving.limits cimport limits_refuse_send, limits_sent
from mqcore.net.serving.peer cimport (
    ASKED_BUCKETS,
    OF_ACCOUNT,
    OF_ADDRESS,
    WHOSE_COUNT,
    ParkShare,
    parked_of,
    peer_of,
)
from mqcore.net.serving.properties cimport (
    DETOUR_DELAY,
    DETOUR_HALF,
    DETOUR_NONE,
    DETOUR_TIMER,
    PROPERTIES_ASK,
    REAL_PLACE_MAX,
    TIMER_WORDS_MAX,
    PropertyNotes,
    add_real_place,
    add_time,
    asks_for_time,
    time_due,
    write_properties,
)
from mqcore.net.serving.recall_handles cimport TIMED_KEY_MAX, TimedSend, timed_send_add
from mqcore.net.transport.transport cimport wall_of_turn
from mqcore.shm.segment cimport log_refuses
from mqcore.shm.store_clock cimport store_clock_at, store_clock_look
from mqcore.shm.tables cimport TopicView, name_hash, topic_find
from mqcore.store.log.append_end cimport append_bytes_max, append_claim, append_records, append_to
from mqcore.store.record cimport RecordHead, record_begin, record_end, record_redirect
from mqcore.store.topic_names cimport (
    HALF_TOPIC,
    HALF_TOPIC_LENGTH,
    SCHEDULE_TOPIC,
    SCHEDULE_TOPIC_LENGTH,
    TIMER_TOPIC,
    TIMER_TOPIC_LENGTH,
    is_light_name,
    is_retry_topic,
)
from mqcore.wire.codes cimport RESPONSE_MESSAGE_ILLEGAL, RESPONSE_SYSTEM_BUSY, RESPONSE_SYSTEM_ERROR

cdef const char* BAD_BATCH = ("the batch body is broken: an item's size, body length or properties "
                              "length does not fit what is there")

cdef const char* TIMED_BATCH = (
    "a message of the batch has TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS: messages with a time of "
    "delivery are sent one by one (broker.timer_messages)")

cdef const char* SENDS_TOO_FAST[WHOSE_COUNT]
SENDS_TOO_FAST[OF_ADDRESS] = (
    "[FLOW_CONTROL]your address sends more messages a second than limits.address_messages_per_s")
SENDS_TOO_FAST[OF_ACCOUNT] = (
    "[FLOW_CONTROL]your account sends more messages a second than limits.account_messages_per_s")

cdef struct Target:                    # where it is stored
    const uint8_t* topic
    int32_t topic_length
    uint64_t topic_hash
    int32_t queue_id
    int32_t answer_queue_id            # what the answer says
    int32_t sys_flag


cdef uint32_t next_random(Sends* s) noexcept nogil:
    s.random = s.random * <uint64_t>6364136223846793005 + <uint64_t>1442695040888963407
    return <uint32_t>(s.random >> 33)


cdef int find_target(Sends* s, const SendRequest* request, bint decided,
                     Target* target) noexcept nogil:
    """HANDLED: regular; HANDLE_FORWARD: the coordinator knows the answer."""
    cdef TopicView topic
    cdef int32_t queue_id = request.queue_id
    if request.topic_length < 1:
        return HANDLE_FORWARD
    if s.accept_from_ms and not decided and wall_of_turn(s.appends.transport) < s.accept_from_ms:
        return HANDLE_FORWARD
    target.topic = &request.topic[0]
    target.topic_length = request.topic_length
    target.topic_hash = name_hash(target.topic, target.topic_length, 0)
    if not topic_find(s.shm, target.topic, target.topic_length, target.topic_hash, &topic):
        if not s.light_queues or not is_light_name(target.topic, target.topic_length) or not (
                is_topic_name(target.topic, target.topic_length)):
            return HANDLE_FORWARD
        topic.flags = 0                # a light topic needs no configuration (store.md 2.11)
        topic.write_queues = topic.read_queues = 1
    if topic.flags & TOPIC_SEND_ASKS and not decided:
        return HANDLE_FORWARD
    if queue_id >= max(topic.write_queues, topic.read_queues):
        return HANDLE_FORWARD
    if queue_id < 0:
        if topic.write_queues < 1:
            return HANDLE_FORWARD
        queue_id = next_random(s) % <unsigned int>topic.write_queues
    target.queue_id = target.answer_queue_id = queue_id
    target.sys_flag = request.sys_flag
    if topic.flags & TOPIC_MULTI_TAG:
        target.sys_flag |= SYS_FLAG_MULTI_TAGS
    return HANDLED


cdef void say_refused(Connection* c, const SendRequest* request, int32_t code,
                      const char* remark) noexcept nogil:
    cdef SendAnswer answer
    if request.asker.oneway:
        return
    answer.asker = request.asker
    answer.code = code
    answer.remark = remark
    answer.stored = False
    peer_of(c).front.say_sent(peer_of(c).front.self, c, &answer)


cdef int answer_now(Sends* s, Connection* c, const SendRequest* request, int status) noexcept nogil:
    """A send that is refused before it reaches the writer."""
    cdef const char* remark = NULL
    cdef int32_t code
    if not request.asker.oneway:
        code = put_code(s.appends, status, &remark)
        say_refused(c, request, code, remark)
    return HANDLED


cdef void fill_head(Sends* s, Connection* c, const SendRequest* request, const Target* target,
                    bint waits, AppendHead* head, int32_t bytes) noexcept nogil:
    head.connection = c.id
    head.opaque = request.asker.opaque
    append_to(head, target.topic_hash, target.topic_length, target.queue_id)
    head.answer_queue_id = target.answer_queue_id
    head.bytes_total = bytes
    head.request_flags = ((REQUEST_BINARY if request.asker.binary else 0)
                          | (REQUEST_ONEWAY if request.asker.oneway else 0)
                          | (REQUEST_WAITS if waits else 0)
                          | (REQUEST_BATCH if request.batch else 0))
    head.transaction_type = <uint8_t>(target.sys_flag & SYS_FLAG_TRANSACTION_MASK)


cdef void fill_record(Sends* s, const SendRequest* request, const Target* target,
                      RecordHead* record) noexcept nogil:
    record.queue_id = target.queue_id
    record.flag = request.flag
    record.sys_flag = target.sys_flag
    record.born_time_ms = request.born_time_ms
    record.born_host = request.born_host
    record.born_host_size = request.born_host_size
    record.store_host = &s.identity.store_host[0]
    record.store_host_size = s.identity.store_host_size
    record.reconsume_times = request.reconsume_times
    record.prepared_position = 0


cdef int detour_of(const Target* target, const PropertyNotes* notes, int64_t due_ms) noexcept nogil:
    """Where a message waits before it may be seen (broker.md 4.2, 5.1): Detour."""
    cdef int32_t kind = target.sys_flag & SYS_FLAG_TRANSACTION_MASK
    if notes.half:
        return DETOUR_HALF
    if kind == 0 or kind == SYS_FLAG_COMMIT:
        return DETOUR_DELAY if notes.delay_level > 0 else DETOUR_TIMER if due_ms > 0 else DETOUR_NONE
    return DETOUR_NONE


cdef int64_t due_of(Sends* s, const SendRequest* request, const Target* asked,
                    const PropertyNotes* notes, bint* asks) noexcept nogil:
    """
    When a message that asks for a time is due, 0: now. asks: the coordinator is to say why it is
    refused, or to make the topic in which it waits.
    """
    cdef int64_t store_ms, due_ms
    cdef TopicView topic
    asks[0] = s.timers_refused
    if s.timers_refused or s.timer_max_ms == 0 or notes.delay_level > 0 or (
            request.reconsume_times > 0 and is_retry_topic(asked.topic, asked.topic_length)):
        return 0                       # what is consumed again has waited before
    store_clock_look(s.shm.clock, &s.clock)
    store_ms = store_clock_at(&s.clock, s.appends.transport.steady_ms)
    due_ms = time_due(&notes.time, store_ms)
    asks[0] = due_ms < 0 or due_ms - store_ms > s.timer_max_ms or (due_ms > 0 and not topic_find(
        s.shm, <const uint8_t*>TIMER_TOPIC, TIMER_TOPIC_LENGTH,
        name_hash(<const uint8_t*>TIMER_TOPIC, TIMER_TOPIC_LENGTH, 0), &topic))
    return max(due_ms, <int64_t>0)


cdef void divert(Sends* s, const Target* asked, int detour, int32_t delay_level,
                 Target* target) noexcept nogil:
    """Where the record is stored instead of where it was asked for."""
    target[0] = asked[0]
    if detour == DETOUR_DELAY:
        target.queue_id = min(delay_level, s.delay_level_count) - 1
        target.topic_length = SCHEDULE_TOPIC_LENGTH
        target.topic = <const uint8_t*>SCHEDULE_TOPIC
    elif detour == DETOUR_TIMER:
        target.queue_id = 0
        target.topic_length = TIMER_TOPIC_LENGTH
        target.topic = <const uint8_t*>TIMER_TOPIC
    else:
        target.queue_id = 0
        target.sys_flag &= ~SYS_FLAG_TRANSACTION_MASK
        target.topic_length = HALF_TOPIC_LENGTH
        target.topic = <const uint8_t*>HALF_TOPIC
    target.topic_hash = name_hash(target.topic, target.topic_length, 0)


cdef void note_timed(Sends* s, Connection* c, const SendRequest* request, const Target* asked,
                     const PropertyNotes* notes, int64_t due_ms, AppendHead* head) noexcept nogil:
    """For its recall handle."""
    cdef TimedSend* sent
    if not 0 < notes.unique.value_length <= TIMED_KEY_MAX or s.identity.broker_name_length == 0:
        return
    sent = timed_send_add(&s.appends.timed)
    if sent == NULL:
        return
    head.request_flags |= REQUEST_TIMED
    sent.connection, sent.opaque, sent.due_ms = c.id, request.asker.opaque, due_ms
    sent.topic_length, sent.key_length = asked.topic_length, notes.unique.value_length
    memcpy(sent.topic, asked.topic, asked.topic_length)
    memcpy(sent.key, notes.unique.value, notes.unique.value_length)


cdef int send_one(Sends* s, Connection* c, const SendRequest* request, const Target* asked,
                  bint decided) noexcept nogil:
    cdef const uint8_t* body = request.body
    cdef int32_t body_length = request.body_length
    cdef int32_t most = (RECORD_FIXED_SIZE + 2 * HOST_V6_EXTRA + body_length + TOPIC_LENGTH_MAX
                         + max(request.properties.length, 0)
                         + s.identity.cluster_property_length + 1)
    cdef uint8_t* at
    cdef uint8_t* properties
    cdef int32_t length
    cdef int detour
    cdef int64_t due_ms = 0
    cdef bint asks = False
    cdef AppendHead* head
    cdef RecordHead record
    cdef PropertyNotes notes
    cdef Target elsewhere
    cdef const Target* target = asked
    if body_length > s.identity.body_max:
        return answer_now(s, c, request, PUT_MESSAGE_ILLEGAL)
    if <int64_t>most + REAL_PLACE_MAX + TIMER_WORDS_MAX > append_bytes_max(&s.appends.to_writer):
        return answer_now(s, c, request, PUT_MESSAGE_ILLEGAL)
    head = append_claim(&s.appends.to_writer, most + REAL_PLACE_MAX + TIMER_WORDS_MAX)
    if head == NULL:
        return HANDLE_STALL
    at = append_records(head)
    fill_record(s, request, target, &record)
    properties = record_begin(at, &record, body, body_length, target.topic, target.topic_length)
    length = write_properties(s.identity, s.delay_level_count, &request.properties, properties + 2,
                              most, DETOUR_NONE, &notes)
    if length >= 0 and notes.timed:
        due_ms = due_of(s, request, asked, &notes, &asks)
    detour = detour_of(target, &notes, due_ms) if length >= 0 else DETOUR_NONE
    if length == PROPERTIES_ASK or (detour == DETOUR_HALF and s.transactions_refused) or (
            asks and not decided):
        return HANDLE_FORWARD          # what was claimed is not committed: it never was
    if detour != DETOUR_NONE:
        divert(s, asked, detour, notes.delay_level, &elsewhere)
        target = &elsewhere
        fill_record(s, request, target, &record)
        properties = record_redirect(at, properties, asked.topic_length, &record, target.topic,
                                     target.topic_length)
        length = write_properties(s.identity, s.delay_level_count, &request.properties,
                                  properties + 2, most, detour, &notes)
        if detour == DETOUR_TIMER and length >= 0:
            length = add_time(properties + 2, length, due_ms)
        length = add_real_place(properties + 2, length, asked.topic, asked.topic_length,
                                asked.queue_id)
    if length < 0 or length > PROPERTIES_LENGTH_MAX:
        return answer_now(s, c, request, PUT_MESSAGE_ILLEGAL)
    head.topic_start = <int32_t>(properties - target.topic_length - at)
    fill_head(s, c, request, target, notes.waits, head, record_end(at, properties, length))
    if detour == DETOUR_TIMER and not request.asker.oneway:
        note_timed(s, c, request, asked, &notes, due_ms, head)
    append_for(s.appends, head)
    limits_sent(s.limits, c, 1, not request.asker.oneway)
    return HANDLED


cdef int32_t batch_count(const uint8_t* body, int32_t length) noexcept nogil:
    """Items of a batch body, -1: broken (store.md 2.10)."""
    cdef int32_t at = 0, size, count = 0, item_body, properties
    while at < length:
        if length - at < BATCH_ITEM_FIXED_SIZE:
            return -1
        size = load_i32(body + at)
        item_body = load_i32(body + at + BATCH_ITEM_BODY_LENGTH)
        if size < BATCH_ITEM_FIXED_SIZE or size > length - at or item_body < 0 or (
                item_body > size - BATCH_ITEM_FIXED_SIZE):
            return -1
        properties = load_u16(body + at + BATCH_ITEM_BODY + item_body)
        if BATCH_ITEM_FIXED_SIZE + item_body + properties != size or (
                properties > PROPERTIES_LENGTH_MAX):
            return -1
        at += size
        count += 1
    return count


cdef int32_t join_properties(uint8_t* into, const uint8_t* item, const uint8_t* envelope,
                             int32_t envelope_length) noexcept nogil:
    """An item's own properties (with their length before them), then the batch's."""
    cdef int32_t length = load_u16(item)
    memcpy(into, item + 2, length)
    if length > 0 and into[length - 1] != PROPERTY_SEPARATOR:
        into[length] = PROPERTY_SEPARATOR
        length += 1
    memcpy(into + length, envelope, envelope_length)
    return length + envelope_length


cdef inline bint takes_no_time(const Sends* s) noexcept nogil:
    """Whether a batch with a time of delivery is refused: 4.9 delivers it at once."""
    return s.timers_refused or s.timer_max_ms > 0


cdef int send_batch(Sends* s, Connection* c, const SendRequest* request,
                    const Target* target) noexcept nogil:
    cdef const uint8_t* body = request.body
    cdef int32_t body_length = request.body_length
    cdef int32_t count = batch_count(body, body_length)
    cdef int32_t envelope_length, item_length, properties_length, at = 0, done = 0
    cdef int64_t most
    cdef uint8_t envelope[PROPERTIES_LENGTH_MAX + 1024]
    cdef uint8_t* out
    cdef uint8_t* properties
    cdef RecordHead record
    cdef AppendHead* head
    cdef PropertyNotes notes
    if target.sys_flag & SYS_FLAG_TRANSACTION_MASK or body_length > s.identity.body_max:
        return answer_now(s, c, request, PUT_MESSAGE_ILLEGAL)
    if count < 1:
        say_refused(c, request, RESPONSE_SYSTEM_ERROR, BAD_BATCH)
        return HANDLED
    envelope_length = write_properties(s.identity, s.delay_level_count, &request.properties, envelope,
                                       PROPERTIES_LENGTH_MAX, DETOUR_NONE, &notes)
    if envelope_length == PROPERTIES_ASK or (envelope_length >= 0 and (
            notes.delay_level > 0 or (notes.timed and takes_no_time(s)))):
        return HANDLE_FORWARD          # to be refused; TRAN_MSG means nothing in a batch
    if envelope_length < 0:
        return answer_now(s, c, request, PUT_MESSAGE_ILLEGAL)
    most = body_length + <int64_t>count * (
        RECORD_FIXED_SIZE + 2 * HOST_V6_EXTRA - BATCH_ITEM_FIXED_SIZE + target.topic_length
        + envelope_length + 1)
    if most > append_bytes_max(&s.appends.to_writer):
        return answer_now(s, c, request, PUT_MESSAGE_ILLEGAL)
    head = append_claim(&s.appends.to_writer, <int32_t>most)
    if head == NULL:
        return HANDLE_STALL
    out = append_records(head)
    fill_record(s, request, target, &record)
    while at < body_length:
        record.flag = load_i32(body + at + BATCH_ITEM_FLAG)
        item_length = load_i32(body + at + BATCH_ITEM_BODY_LENGTH)
        properties = record_begin(out + done, &record, body + at + BATCH_ITEM_BODY, item_length,
                                  target.topic, target.topic_length)
        if at == 0:
            head.topic_start = <int32_t>(properties - target.topic_length - out)
        if takes_no_time(s) and asks_for_time(
                body + at + BATCH_ITEM_BODY + item_length + 2,
                load_u16(body + at + BATCH_ITEM_BODY + item_length)):
            say_refused(c, request, RESPONSE_MESSAGE_ILLEGAL, TIMED_BATCH)
            return HANDLED
        properties_length = join_properties(
            properties + 2, body + at + BATCH_ITEM_BODY + item_length, envelope, envelope_length)
        if properties_length > PROPERTIES_LENGTH_MAX:
            return answer_now(s, c, request, PUT_MESSAGE_ILLEGAL)
        at += load_i32(body + at)
        done += record_end(out + done, properties, properties_length)
    head.record_count = count
    fill_head(s, c, request, target, notes.waits, head, done)
    append_for(s.appends, head)
    limits_sent(s.limits, c, count, not request.asker.oneway)
    return HANDLED


cdef int serve_send(Sends* s, Connection* c, const SendRequest* request, bint decided) noexcept nogil:
    cdef Target target
    cdef const ParkShare* parked = parked_of(c)
    cdef int limit = limits_refuse_send(s.limits, c) if s.limits.on and not decided else -1
    if limit >= 0:
        say_refused(c, request, RESPONSE_SYSTEM_BUSY, SENDS_TOO_FAST[limit])
        return HANDLED
    if s.appends.slave:
        return answer_now(s, c, request, PUT_SERVICE_NOT_AVAILABLE)
    if find_target(s, request, decided, &target) != HANDLED:
        return HANDLE_FORWARD
    if parked.asked_count > 0 and not decided and (
            parked.asked[target.topic_hash % ASKED_BUCKETS] > 0 or parked.asked[ASKED_BUCKETS] > 0):
        return HANDLE_WAIT             # N7
    if log_refuses(s.shm.log) or load_i32_acquire(&s.shm.log.queue_error) != 0:
        return answer_now(s, c, request, PUT_SERVICE_NOT_AVAILABLE)
    if request.batch:
        return send_batch(s, c, request, &target)
    return send_one(s, c, request, &target, decided)
