"""Sends (remoting.md 4.1, broker.md 2): the regular ones natively, every other one to the coordinator."""
from libc.errno cimport ENOSPC
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from mqcore.atomics cimport load_i32_acquire
from mqcore.endian cimport load_i32, load_u16
from mqcore.layout cimport (
    APPEND_RECORDS,
    BATCH_ITEM_BODY,
    BATCH_ITEM_BODY_LENGTH,
    BATCH_ITEM_FIXED_SIZE,
    BATCH_ITEM_FLAG,
    FIGURE_REFUSED,
    FIGURE_SENDS,
    HOST_V6_EXTRA,
    PROPERTIES_LENGTH_MAX,
    PUT_CREATE_FILE_FAILED,
    PUT_FLUSH_TIMEOUT,
    PUT_LIGHT_QUEUES_FULL,
    PUT_MESSAGE_ILLEGAL,
    PUT_OK,
    PUT_POOL_EXHAUSTED,
    PUT_QUEUE_TABLE_FULL,
    PUT_SERVICE_NOT_AVAILABLE,
    PUT_WRITER_RESTARTED,
    RECORD_FIXED_SIZE,
    REFUSAL_DISK_FULL,
    REFUSAL_FLUSH_FAILED,
    REFUSAL_NONE,
    REQUEST_BATCH,
    REQUEST_BINARY,
    REQUEST_ONEWAY,
    REQUEST_TRANSACTION,
    REQUEST_WAITS,
    SLOT_WRITER,
    SYS_FLAG_COMMIT,
    SYS_FLAG_MULTI_TAGS,
    SYS_FLAG_TRANSACTION_MASK,
    TOPIC_LENGTH_MAX,
    TOPIC_MULTI_TAG,
    TOPIC_SEND_ASKS,
    AppendHead,
    AppendResult,
)
from mqcore.names cimport is_topic_name
from mqcore.net.properties cimport (
    DETOUR_DELAY,
    DETOUR_HALF,
    DETOUR_NONE,
    PROPERTIES_ASK,
    REAL_PLACE_MAX,
    PropertyNotes,
    add_real_place,
    write_properties,
)
from mqcore.net.reply cimport (
    Reply,
    reply_begin,
    reply_body,
    reply_end,
    reply_number,
    reply_text,
    reply_value,
)
from mqcore.net.server cimport (
    ASKED_BUCKETS,
    HANDLE_FORWARD,
    HANDLE_STALL,
    HANDLE_WAIT,
    HANDLED,
    Connection,
    Server,
    connection_find,
    next_random,
)
from mqcore.net.transaction cimport answer_end_transaction
from mqcore.shm.ring cimport (
    ring_claim,
    ring_commit,
    ring_length_max,
    ring_next,
    ring_release,
    ring_wait_for_room,
)
from mqcore.shm.segment cimport doorbell_ring
from mqcore.shm.tables cimport TopicView, name_hash, queue_hash, topic_find
from mqcore.store.queue.multi_dispatch cimport is_light_name
from mqcore.store.record cimport RecordHead, record_begin, record_end
from mqcore.store.topic_names cimport (
    HALF_TOPIC,
    HALF_TOPIC_LENGTH,
    SCHEDULE_TOPIC,
    SCHEDULE_TOPIC_LENGTH,
)
from mqcore.wire.digits cimport put_message_id
from mqcore.wire.header cimport (
    CODE_SEND_BATCH,
    SEND_BATCH,
    SEND_BORN_TIME,
    SEND_FLAG,
    SEND_PROPERTIES,
    SEND_QUEUE_ID,
    SEND_RECONSUME_TIMES,
    SEND_SYS_FLAG,
    SEND_TOPIC,
    Header,
    Text,
    text_copy,
    text_i64,
    text_is_true,
)

cdef enum:
    ONEWAY_BIT = 2
    CODE_SYSTEM_ERROR = 1
    CODE_SYSTEM_BUSY = 2
    CODE_FLUSH_DISK_TIMEOUT = 10
    CODE_MESSAGE_ILLEGAL = 13
    CODE_SERVICE_NOT_AVAILABLE = 14

cdef const char* BAD_BATCH = ("the batch body is broken: an item's size, body length or properties "
                              "length does not fit what is there")

cdef struct SendFields:                # what a regular send says
    uint8_t topic[128]
    int32_t topic_length
    uint64_t topic_hash
    int32_t queue_id
    int32_t asked_queue_id             # what the answer says
    int32_t sys_flag
    int64_t born_time_ms
    int32_t flag
    int32_t reconsume_times
    bint batch


cdef int read_fields(Server* s, const Header* header, bint settled, SendFields* f) noexcept nogil:
    """HANDLED: regular; HANDLE_FORWARD: the coordinator knows the answer."""
    cdef TopicView topic
    cdef int64_t number
    f.topic_length = text_copy(&header.fields[SEND_TOPIC], f.topic, TOPIC_LENGTH_MAX)
    if f.topic_length < 1:
        return HANDLE_FORWARD
    if s.now_ms < s.accept_sends_from_ms and not settled:
        return HANDLE_FORWARD
    f.topic_hash = name_hash(f.topic, f.topic_length, 0)
    if not topic_find(s.shm, f.topic, f.topic_length, f.topic_hash, &topic):
        if not s.light_queues or not is_light_name(f.topic, f.topic_length) or not (
                is_topic_name(f.topic, f.topic_length)):
            return HANDLE_FORWARD
        topic.flags = 0                # a light topic needs no configuration (store.md 2.11)
        topic.write_queues = topic.read_queues = 1
    if topic.flags & TOPIC_SEND_ASKS and not settled:
        return HANDLE_FORWARD
    if not text_i64(&header.fields[SEND_QUEUE_ID], &number) or number >= max(topic.write_queues,
                                                                            topic.read_queues):
        return HANDLE_FORWARD
    if number < 0:
        if topic.write_queues < 1:
            return HANDLE_FORWARD
        number = next_random(s) % <unsigned int>topic.write_queues
    f.queue_id = f.asked_queue_id = <int32_t>number
    if not text_i64(&header.fields[SEND_SYS_FLAG], &number) or number != <int32_t>number:
        return HANDLE_FORWARD
    f.sys_flag = <int32_t>number
    if topic.flags & TOPIC_MULTI_TAG:
        f.sys_flag |= SYS_FLAG_MULTI_TAGS
    if not text_i64(&header.fields[SEND_BORN_TIME], &f.born_time_ms):
        return HANDLE_FORWARD
    if not text_i64(&header.fields[SEND_FLAG], &number) or number != <int32_t>number:
        return HANDLE_FORWARD
    f.flag = <int32_t>number
    f.reconsume_times = 0
    if header.fields[SEND_RECONSUME_TIMES].length >= 0:
        if not text_i64(&header.fields[SEND_RECONSUME_TIMES], &number) or number != <int32_t>number:
            return HANDLE_FORWARD
        f.reconsume_times = <int32_t>number
    f.batch = header.code == CODE_SEND_BATCH or text_is_true(&header.fields[SEND_BATCH])
    return HANDLED


cdef void answer_put(Server* s, Connection* c, const AppendResult* result,
                     const int64_t* positions) noexcept nogil:
    """The response of a send whose result is here (remoting.md 4.1.1)."""
    cdef bint stored = result.status == PUT_OK or result.status == PUT_FLUSH_TIMEOUT
    cdef int32_t id_length = 2 * s.store_host_size + 16
    cdef int64_t ids = <int64_t>(id_length + 1) * result.record_count if stored else 0
    cdef int32_t i
    cdef uint8_t* id
    cdef Reply r
    cdef const char* remark = NULL
    cdef int32_t code = put_code(s, result.status, &remark)
    if not reply_begin(s, c, &r, result.request_flags & REQUEST_BINARY, result.opaque, code, remark,
                       ids + s.region_length + 256):
        return
    if stored:
        reply_number(&r, "queueId", 7, result.queue_id)
    reply_text(&r, "TRACE_ON", 8, <const uint8_t*>"true" if s.trace_on else <const uint8_t*>"false",
               4 if s.trace_on else 5)
    reply_text(&r, "MSG_REGION", 10, s.region, s.region_length)
    if stored:
        id = reply_value(&r, "msgId", 5, <int32_t>ids - 1)
        for i in range(result.record_count):
            if i > 0:
                id[0] = 44
                id += 1
            put_message_id(id, s.store_host, s.store_host_size,
                           positions[i] if positions != NULL else result.log_position)
            id += id_length
        reply_number(&r, "queueOffset", 11, result.queue_offset)
    reply_body(&r, 0)
    reply_end(s, &r, 0)


cdef char[96] disk_full_remark         # one thread a process


cdef int32_t put_code(Server* s, int32_t status, const char** remark) noexcept nogil:
    if status == PUT_OK:
        return 0
    if status == PUT_FLUSH_TIMEOUT:
        return CODE_FLUSH_DISK_TIMEOUT
    s.slot.figures[FIGURE_REFUSED] += 1
    if status == PUT_MESSAGE_ILLEGAL:
        remark[0] = s.illegal
        return CODE_MESSAGE_ILLEGAL
    if status == PUT_SERVICE_NOT_AVAILABLE:
        if load_i32_acquire(&s.shm.log.refusal) == REFUSAL_FLUSH_FAILED:
            remark[0] = ("service not available now: a flush to disk has failed; the broker takes "
                         "no writes until it is restarted")
        elif load_i32_acquire(&s.shm.log.disk_full_percent):
            snprintf(disk_full_remark, sizeof(disk_full_remark), "service not available now: the disk "
                     "of the store is %d %% full", load_i32_acquire(&s.shm.log.disk_full_percent))
            remark[0] = disk_full_remark
        elif load_i32_acquire(&s.shm.log.unreadable):
            remark[0] = ("service not available now: what is stored cannot be made readable, the "
                         "dispatcher is behind")
        elif (load_i32_acquire(&s.shm.log.refusal) == REFUSAL_DISK_FULL
                or load_i32_acquire(&s.shm.log.queue_error) == ENOSPC):
            remark[0] = "service not available now: the disk of the store is full"
        elif load_i32_acquire(&s.shm.log.queue_error) != 0:
            remark[0] = "service not available now: consume queues or index cannot be written"
        else:
            remark[0] = "service not available now: a write to the store has failed"
        return CODE_SERVICE_NOT_AVAILABLE
    if status == PUT_WRITER_RESTARTED:
        remark[0] = "[WRITER_RESTARTED]broker busy: whether the message is stored is not known"
        return CODE_SYSTEM_BUSY
    if status == PUT_POOL_EXHAUSTED:
        remark[0] = "[REJECTREQUEST]broker busy: the transient pool has no room, the disk is behind"
        return CODE_SYSTEM_BUSY
    if status == PUT_QUEUE_TABLE_FULL:
        remark[0] = ("no room for another queue: raise processes.queue_count_max"
                     if s.shm.head.queue_count >= s.shm.head.queue_capacity
                     else "no room for another queue: /dev/shm is full")
    elif status == PUT_LIGHT_QUEUES_FULL:
        remark[0] = ("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]no more light queues than "
                     "store.light_queue_count_max")
    elif status == PUT_CREATE_FILE_FAILED:
        remark[0] = "create mapped file failed, server is busy or broken."
    else:
        remark[0] = "unknown error"
    return CODE_SYSTEM_ERROR


cdef int answer_now(Server* s, Connection* c, const Header* header, int status) noexcept nogil:
    """A send that is refused before it reaches the writer."""
    cdef AppendResult result
    if not header.flag & ONEWAY_BIT:
        result.status = status
        result.opaque = header.opaque
        result.request_flags = REQUEST_BINARY if header.binary else 0
        result.record_count = 0
        answer_put(s, c, &result, NULL)
    return HANDLED


cdef void fill_head(Server* s, Connection* c, const Header* header, const SendFields* f,
                    bint waits, AppendHead* head, int32_t count, int32_t bytes) noexcept nogil:
    head.connection = c.id
    head.opaque = header.opaque
    head.producer_incarnation = s.incarnation
    head.queue_hash = queue_hash(f.topic_hash, f.queue_id)
    head.queue_id = f.queue_id
    head.answer_queue_id = f.asked_queue_id
    head.record_count = count
    head.bytes_total = bytes
    head.request_flags = ((REQUEST_BINARY if header.binary else 0)
                          | (REQUEST_ONEWAY if header.flag & ONEWAY_BIT else 0)
                          | (REQUEST_WAITS if waits else 0) | (REQUEST_BATCH if f.batch else 0))
    head.transaction_type = <uint8_t>(f.sys_flag & SYS_FLAG_TRANSACTION_MASK)
    head.topic_length = <uint8_t>f.topic_length


cdef void fill_record(Server* s, Connection* c, const SendFields* f, RecordHead* record) noexcept nogil:
    record.queue_id = f.queue_id
    record.flag = f.flag
    record.sys_flag = f.sys_flag
    record.born_time_ms = f.born_time_ms
    record.born_host = c.host
    record.born_host_size = c.host_size
    record.store_host = s.store_host
    record.store_host_size = s.store_host_size
    record.reconsume_times = f.reconsume_times
    record.prepared_position = 0


cdef uint8_t* claim(Server* s, int32_t length) noexcept nogil:
    cdef uint8_t* place = ring_claim(&s.appends, length)
    if place == NULL:
        ring_wait_for_room(&s.appends)
        place = ring_claim(&s.appends, length)
    return place


cdef void commit(Server* s, AppendHead* head) noexcept nogil:
    ring_commit(&s.appends, APPEND_RECORDS, <int32_t>sizeof(AppendHead) + head.bytes_total)
    s.in_flight += 1
    s.slot.figures[FIGURE_SENDS] += head.record_count


cdef int detour_of(const SendFields* f, const PropertyNotes* notes) noexcept nogil:
    """Where a message waits before it may be seen (broker.md 4.2, 5.1): Detour."""
    cdef int32_t kind = f.sys_flag & SYS_FLAG_TRANSACTION_MASK
    if notes.half:
        return DETOUR_HALF
    if notes.delay_level > 0 and (kind == 0 or kind == SYS_FLAG_COMMIT):
        return DETOUR_DELAY
    return DETOUR_NONE


cdef void divert(Server* s, const SendFields* asked, int detour, int32_t delay_level,
                 SendFields* f) noexcept nogil:
    """The fields of the record that is stored instead of the one that was asked for."""
    f[0] = asked[0]
    if detour == DETOUR_DELAY:
        f.queue_id = min(delay_level, s.delay_level_count) - 1
        f.topic_length = SCHEDULE_TOPIC_LENGTH
        memcpy(f.topic, SCHEDULE_TOPIC, SCHEDULE_TOPIC_LENGTH)
    else:
        f.queue_id = 0
        f.sys_flag &= ~SYS_FLAG_TRANSACTION_MASK
        f.topic_length = HALF_TOPIC_LENGTH
        memcpy(f.topic, HALF_TOPIC, HALF_TOPIC_LENGTH)
    f.topic_hash = name_hash(f.topic, f.topic_length, 0)


cdef int send_one(Server* s, Connection* c, const Header* header, SendFields* asked,
                  const uint8_t* body, int32_t body_length) noexcept nogil:
    cdef int32_t most = (RECORD_FIXED_SIZE + 2 * HOST_V6_EXTRA + body_length + TOPIC_LENGTH_MAX
                         + max(header.fields[SEND_PROPERTIES].length, 0)
                         + s.cluster_property_length + 1)
    cdef uint8_t* place
    cdef uint8_t* at
    cdef uint8_t* properties
    cdef int32_t length
    cdef int detour
    cdef AppendHead* head
    cdef RecordHead record
    cdef PropertyNotes notes
    cdef SendFields elsewhere
    cdef SendFields* f = asked
    if body_length > s.body_max:
        return answer_now(s, c, header, PUT_MESSAGE_ILLEGAL)
    if <int64_t>sizeof(AppendHead) + most + REAL_PLACE_MAX > ring_length_max(&s.appends):
        return answer_now(s, c, header, PUT_MESSAGE_ILLEGAL)
    place = claim(s, <int32_t>sizeof(AppendHead) + most + REAL_PLACE_MAX)
    if place == NULL:
        return HANDLE_STALL
    at = place + sizeof(AppendHead)
    fill_record(s, c, f, &record)
    properties = record_begin(at, &record, body, body_length, f.topic, f.topic_length)
    length = write_properties(s, &header.fields[SEND_PROPERTIES], properties + 2, most, DETOUR_NONE,
                              &notes)
    detour = detour_of(f, &notes) if length >= 0 else DETOUR_NONE
    if length == PROPERTIES_ASK or (detour == DETOUR_HALF and s.transactions_refused):
        return HANDLE_FORWARD          # what was claimed is not committed: it never was
    if detour != DETOUR_NONE:
        divert(s, asked, detour, notes.delay_level, &elsewhere)
        f = &elsewhere
        fill_record(s, c, f, &record)
        properties = record_begin(at, &record, body, body_length, f.topic, f.topic_length)
        length = write_properties(s, &header.fields[SEND_PROPERTIES], properties + 2, most, detour,
                                  &notes)
        length = add_real_place(properties + 2, length, asked.topic, asked.topic_length,
                                asked.queue_id)
    if length < 0 or length > PROPERTIES_LENGTH_MAX:
        return answer_now(s, c, header, PUT_MESSAGE_ILLEGAL)
    head = <AppendHead*>place
    head.topic_start = <int32_t>(properties - f.topic_length - at)
    fill_head(s, c, header, f, notes.waits, head, 1, record_end(at, properties, length))
    commit(s, head)
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


cdef int send_batch(Server* s, Connection* c, const Header* header, SendFields* f,
                    const uint8_t* body, int32_t body_length) noexcept nogil:
    cdef int32_t count = batch_count(body, body_length)
    cdef int32_t envelope_length, item_length, properties_length, at = 0, done = 0
    cdef int64_t most
    cdef uint8_t envelope[PROPERTIES_LENGTH_MAX + 1024]
    cdef uint8_t* place
    cdef uint8_t* out
    cdef uint8_t* properties
    cdef RecordHead record
    cdef AppendHead* head
    cdef PropertyNotes notes
    if f.sys_flag & SYS_FLAG_TRANSACTION_MASK or body_length > s.body_max:
        return answer_now(s, c, header, PUT_MESSAGE_ILLEGAL)
    if count < 1:
        return refuse_batch(s, c, header)
    envelope_length = write_properties(s, &header.fields[SEND_PROPERTIES], envelope,
                                       PROPERTIES_LENGTH_MAX, DETOUR_NONE, &notes)
    if envelope_length == PROPERTIES_ASK or (envelope_length >= 0 and notes.delay_level > 0):
        return HANDLE_FORWARD          # to be refused; TRAN_MSG means nothing in a batch
    if envelope_length < 0:
        return answer_now(s, c, header, PUT_MESSAGE_ILLEGAL)
    most = <int64_t>sizeof(AppendHead) + body_length + <int64_t>count * (
        RECORD_FIXED_SIZE + 2 * HOST_V6_EXTRA - BATCH_ITEM_FIXED_SIZE + f.topic_length
        + envelope_length + 1)
    if most > ring_length_max(&s.appends):
        return answer_now(s, c, header, PUT_MESSAGE_ILLEGAL)
    place = claim(s, <int32_t>most)
    if place == NULL:
        return HANDLE_STALL
    head = <AppendHead*>place
    out = place + sizeof(AppendHead)
    fill_record(s, c, f, &record)
    while at < body_length:
        record.flag = load_i32(body + at + BATCH_ITEM_FLAG)
        item_length = load_i32(body + at + BATCH_ITEM_BODY_LENGTH)
        properties = record_begin(out + done, &record, body + at + BATCH_ITEM_BODY, item_length,
                                  f.topic, f.topic_length)
        if at == 0:
            head.topic_start = <int32_t>(properties - f.topic_length - out)
        properties_length = join_properties(
            properties + 2, body + at + BATCH_ITEM_BODY + item_length, envelope, envelope_length)
        if properties_length > PROPERTIES_LENGTH_MAX:
            return answer_now(s, c, header, PUT_MESSAGE_ILLEGAL)
        at += load_i32(body + at)
        done += record_end(out + done, properties, properties_length)
    fill_head(s, c, header, f, notes.waits, head, count, done)
    commit(s, head)
    return HANDLED


cdef int32_t join_properties(uint8_t* into, const uint8_t* item, const uint8_t* envelope,
                             int32_t envelope_length) noexcept nogil:
    """An item's own properties (with their length before them), then the batch's."""
    cdef int32_t length = load_u16(item)
    memcpy(into, item + 2, length)
    if length > 0 and into[length - 1] != 2:
        into[length] = 2
        length += 1
    memcpy(into + length, envelope, envelope_length)
    return length + envelope_length


cdef int refuse_batch(Server* s, Connection* c, const Header* header) noexcept nogil:
    cdef Reply r
    if header.flag & ONEWAY_BIT:
        return HANDLED
    if reply_begin(s, c, &r, header.binary, header.opaque, CODE_SYSTEM_ERROR, BAD_BATCH,
                   s.region_length + 128):
        reply_text(&r, "TRACE_ON", 8,
                   <const uint8_t*>"true" if s.trace_on else <const uint8_t*>"false",
                   4 if s.trace_on else 5)
        reply_text(&r, "MSG_REGION", 10, s.region, s.region_length)
        reply_body(&r, 0)
        reply_end(s, &r, 0)
    return HANDLED


cdef int handle_send(Server* s, Connection* c, const Header* header, const uint8_t* body,
                     int32_t body_length, bint settled) noexcept nogil:
    cdef SendFields f
    if read_fields(s, header, settled, &f) != HANDLED:
        return HANDLE_FORWARD
    if c.asked_count > 0 and not settled and (
            c.asked[f.topic_hash % ASKED_BUCKETS] > 0 or c.asked[ASKED_BUCKETS] > 0):
        return HANDLE_WAIT             # N7
    if (load_i32_acquire(&s.shm.log.refusal) != REFUSAL_NONE
            or load_i32_acquire(&s.shm.log.queue_error) != 0
            or load_i32_acquire(&s.shm.log.disk_full_percent)
            or load_i32_acquire(&s.shm.log.unreadable)):
        return answer_now(s, c, header, PUT_SERVICE_NOT_AVAILABLE)
    if f.batch:
        return send_batch(s, c, header, &f, body, body_length)
    return send_one(s, c, header, &f, body, body_length)


cdef void take_results(Server* s) noexcept nogil:
    cdef uint8_t* record
    cdef int32_t kind
    cdef AppendResult* result
    cdef Connection* c
    while ring_next(&s.results, &record, &kind) >= 0:
        result = <AppendResult*>record
        if result.producer_incarnation != s.incarnation:
            continue                   # asked for by a predecessor of this process
        s.in_flight -= 1
        if result.request_flags & REQUEST_ONEWAY:
            continue
        c = connection_find(s, result.connection)
        if c == NULL:
            continue
        if result.request_flags & REQUEST_TRANSACTION:
            answer_end_transaction(s, c, result)
        else:
            answer_put(s, c, result, <const int64_t*>(record + sizeof(AppendResult))
                       if result.record_count > 1 else NULL)
    if ring_release(&s.results):
        doorbell_ring(&s.shm.slots[SLOT_WRITER])
