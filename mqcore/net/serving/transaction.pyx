"""Ends transactions (transaction.pxd has its rules)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from mqcore.layout cimport (
    HOST_V6_EXTRA,
    PROPERTIES_LENGTH_MAX,
    RECORD_FIXED_SIZE,
    REQUEST_AFTER_PREVIOUS,
    REQUEST_BINARY,
    REQUEST_ONEWAY,
    REQUEST_TRANSACTION,
    REQUEST_WAITS,
    SYS_FLAG_COMMIT,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
    TOPIC_LENGTH_MAX,
    AppendHead,
    RingRecord,
)
from mqcore.net.remoting.access cimport access_may_publish
from mqcore.net.requests cimport (
    HANDLED,
    HANDLE_DENIED,
    HANDLE_FORWARD,
    HANDLE_STALL,
    HANDLE_WAIT,
)
from mqcore.net.serving.appends cimport append_for
from mqcore.net.serving.peer cimport say
from mqcore.net.serving.properties cimport (
    TIMER_WORDS_MAX,
    AskedTime,
    add_time,
    time_asked,
    time_begin,
    time_due,
)
from mqcore.net.transport.transport cimport wall_of_turn
from mqcore.shm.segment cimport Shm
from mqcore.shm.store_clock cimport store_clock_at, store_clock_look
from mqcore.shm.tables cimport TopicView, name_hash, topic_find
from mqcore.store.log.append_end cimport (
    append_bytes_max,
    append_claim,
    append_has_room,
    append_records,
    append_to,
)
from mqcore.store.log.named cimport NAMED_FALSE, NAMED_LATER, NAMED_NOTHING, named_record
from mqcore.store.queue.place cimport queue_id_of_late
from mqcore.store.record cimport (
    PropertyItem,
    RecordHead,
    RecordView,
    item_is,
    property_next,
    property_number,
    record_begin,
    record_end,
    record_head,
)
from mqcore.store.topic_names cimport (
    OP_TOPIC,
    OP_TOPIC_LENGTH,
    TIMER_TOPIC,
    TIMER_TOPIC_LENGTH,
    is_half_topic,
)
from mqcore.text cimport SMALL_LETTER, literal_length, put_literal
from mqcore.wire.codes cimport RESPONSE_SLAVE_NOT_AVAILABLE, RESPONSE_SYSTEM_ERROR
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX, put_number

cdef extern from *:
    """
    #define MQ_OP_PROPERTIES "WAIT\\x01" "true\\x02" "TAGS\\x01" "d"
    """
    const char* OP_PROPERTIES "MQ_OP_PROPERTIES"                 # as stock writes them

cdef const char* LEFT_OVER_REMARK = "not set any response code"   # stock's, where it sets none

cdef struct HalfMessage:
    RecordView record
    const uint8_t* bytes
    PropertyItem real_topic
    int32_t real_queue_id
    bint waits
    AskedTime time


cdef int refuse(Connection* c, const EndRequest* request, const char* remark) noexcept nogil:
    say(c, &request.asker, RESPONSE_SYSTEM_ERROR, remark)
    return HANDLED


cdef int find_half(Ends* s, int64_t position, HalfMessage* half,
                   const char** trouble) noexcept nogil:
    """The half message at a log position: NamedResult, and what is wrong with it, or NULL."""
    cdef int found = named_record(&s.named, position, &half.record, &half.bytes)
    trouble[0] = NULL
    if found == NAMED_NOTHING or found == NAMED_FALSE:
        trouble[0] = "there is no message at commitLogOffset"
    elif not is_half_topic(half.record.topic, half.record.topic_length) or half.record.queue_id:
        trouble[0] = "the message at commitLogOffset is no half message"
    return found


cdef const char* check_half(Ends* s, const EndRequest* request, HalfMessage* half) noexcept nogil:
    """Whether it is the one that the request means, and says where it belongs (broker.md 5.2)."""
    cdef const uint8_t* at = half.record.properties
    cdef const uint8_t* end = at + half.record.properties_length
    cdef PropertyItem item
    cdef int64_t number = -1
    cdef bint group_agrees = False
    half.real_topic.value_length = 0
    half.waits = True
    time_begin(&half.time)
    while property_next(&at, end, &item):
        if item_is(&item, "PGROUP"):
            group_agrees = item.value_length == request.group_length and memcmp(
                item.value, request.group, request.group_length) == 0
        elif item_is(&item, "REAL_TOPIC"):
            half.real_topic = item
        elif item_is(&item, "REAL_QID"):
            if not property_number(&item, &number):
                number = -1
        elif item_is(&item, "WAIT"):
            half.waits = not (item.value_length == literal_length("false")
                              and (item.value[0] | SMALL_LETTER) == c'f')
        else:
            time_asked(&half.time, &item)
    if not group_agrees:
        return "producerGroup is not the group of the half message"
    if half.record.queue_offset != request.half_offset:
        return "tranStateTableOffset is not the queue offset of the half message"
    half.real_queue_id = queue_id_of_late(
        s.appends.to_writer.shm, half.real_topic.value, half.real_topic.value_length,
        <int32_t>number if number == <int32_t>number else -1)
    if half.real_queue_id < 0:
        return "the half message does not say where it belongs"
    return NULL


cdef void fill_end_head(Connection* c, const EndRequest* request, AppendHead* head,
                    const uint8_t* topic, int32_t topic_length, int32_t queue_id) noexcept nogil:
    head.connection = c.id
    head.opaque = request.asker.opaque
    append_to(head, name_hash(topic, topic_length, 0), topic_length, queue_id)


cdef int64_t final_due(Ends* s, const HalfMessage* half) noexcept nogil:
    """When the message is to be delivered; 0: now. No number, or a time too far ahead: now."""
    cdef int64_t store_ms, due_ms
    cdef TopicView topic
    cdef Shm* shm = s.appends.to_writer.shm
    if s.timer_max_ms == 0 or not (half.time.wrong or half.time.delay_s > 0 or half.time.delay_ms > 0
                                   or half.time.deliver_ms > 0):
        return 0
    store_clock_look(shm.clock, &s.clock)
    store_ms = store_clock_at(&s.clock, s.appends.transport.steady_ms)
    due_ms = time_due(&half.time, store_ms)
    if due_ms - store_ms > s.timer_max_ms or not topic_find(
            shm, <const uint8_t*>TIMER_TOPIC, TIMER_TOPIC_LENGTH,
            name_hash(<const uint8_t*>TIMER_TOPIC, TIMER_TOPIC_LENGTH, 0), &topic):
        return 0
    return max(due_ms, <int64_t>0)


cdef void append_final(Ends* s, Connection* c, const EndRequest* request,
                       const HalfMessage* half) noexcept nogil:
    """The message for consumers; its properties still tell of the transaction (broker.md 5.2)."""
    cdef const RecordView* from_half = &half.record
    cdef AppendHead* head = append_claim(&s.appends.to_writer, final_size(half))
    cdef uint8_t* at = append_records(head)
    cdef uint8_t* properties
    cdef const uint8_t* topic = half.real_topic.value
    cdef int32_t topic_length = half.real_topic.value_length, length = from_half.properties_length
    cdef int64_t due_ms = final_due(s, half)
    cdef RecordHead record
    record_head(from_half, half.bytes, &record)
    record.queue_id = half.real_queue_id
    record.sys_flag = (from_half.sys_flag & ~SYS_FLAG_TRANSACTION_MASK) | SYS_FLAG_COMMIT
    record.prepared_position = from_half.log_position
    if due_ms > 0 and length + TIMER_WORDS_MAX <= PROPERTIES_LENGTH_MAX:
        topic, topic_length, record.queue_id = <const uint8_t*>TIMER_TOPIC, TIMER_TOPIC_LENGTH, 0
    properties = record_begin(at, &record, from_half.body, from_half.body_length, topic, topic_length)
    memcpy(properties + 2, from_half.properties, length)
    if topic != half.real_topic.value:         # its real place stands in the half's properties
        length = add_time(properties + 2, length, due_ms)
    fill_end_head(c, request, head, topic, topic_length, record.queue_id)
    head.topic_start = <int32_t>(properties - topic_length - at)
    head.bytes_total = record_end(at, properties, length)
    head.transaction_type = SYS_FLAG_COMMIT
    head.request_flags = (REQUEST_TRANSACTION | (REQUEST_BINARY if request.asker.binary else 0)
                          | (REQUEST_ONEWAY if request.asker.oneway else 0)
                          | (REQUEST_WAITS if half.waits else 0))
    append_for(s.appends, head)


cdef void append_op(Ends* s, Connection* c, const EndRequest* request, const HalfMessage* half,
                    bint after_final) noexcept nogil:
    """The record that says which half message is settled (broker.md 5.3); nobody waits for it."""
    cdef AppendHead* head = append_claim(&s.appends.to_writer, op_size())
    cdef uint8_t* at = append_records(head)
    cdef uint8_t* properties
    cdef uint8_t body[NUMBER_LENGTH_MAX]
    cdef int32_t body_length = put_number(body, half.record.queue_offset)
    cdef RecordHead record
    memset(&record, 0, sizeof(RecordHead))
    record.queue_id = half.record.queue_id
    record.born_time_ms = wall_of_turn(s.appends.transport)
    record.born_host = &s.appends.identity.store_host[0]
    record.store_host = record.born_host
    record.born_host_size = record.store_host_size = s.appends.identity.store_host_size
    properties = record_begin(at, &record, body, body_length, <const uint8_t*>OP_TOPIC,
                              OP_TOPIC_LENGTH)
    put_literal(properties + 2, OP_PROPERTIES)
    fill_end_head(c, request, head, <const uint8_t*>OP_TOPIC, OP_TOPIC_LENGTH, half.record.queue_id)
    head.topic_start = <int32_t>(properties - OP_TOPIC_LENGTH - at)
    head.bytes_total = record_end(at, properties, literal_length(OP_PROPERTIES))
    head.request_flags = REQUEST_ONEWAY | (REQUEST_AFTER_PREVIOUS if after_final else 0)
    append_for(s.appends, head)


cdef inline int32_t op_size() noexcept nogil:
    return (RECORD_FIXED_SIZE + 2 * HOST_V6_EXTRA + NUMBER_LENGTH_MAX + OP_TOPIC_LENGTH
            + literal_length(OP_PROPERTIES))


cdef inline int32_t final_size(const HalfMessage* half) noexcept nogil:
    return half.record.size + TOPIC_LENGTH_MAX + TIMER_WORDS_MAX


cdef inline int32_t both_size(const HalfMessage* half) noexcept nogil:
    """Of the final record and the op record, with a head between them."""
    return (final_size(half) + <int32_t>sizeof(AppendHead) + op_size()
            + 2 * <int32_t>sizeof(RingRecord))


cdef int serve_end(Ends* s, Connection* c, const EndRequest* request) noexcept nogil:
    cdef HalfMessage half
    cdef const char* trouble
    if s.appends.slave:                                      # ha.md 5
        say(c, &request.asker, RESPONSE_SLAVE_NOT_AVAILABLE, LEFT_OVER_REMARK)
        return HANDLED
    if request.decision == 0:
        return HANDLED                                       # unknown: to be asked again later
    if request.decision != SYS_FLAG_COMMIT and request.decision != SYS_FLAG_ROLLBACK:
        return HANDLE_FORWARD                                # refused
    if find_half(s, request.log_position, &half, &trouble) == NAMED_LATER:
        s.appends.transport.wakeful = True       # looked at again in the next turn, without a sleep
        return HANDLE_WAIT
    if trouble == NULL:
        trouble = check_half(s, request, &half)
    if trouble != NULL:
        return refuse(c, request, trouble)
    if request.account != NULL and not access_may_publish(
            s.guard, request.account, half.real_topic.value, half.real_topic.value_length):
        s.denied = half.real_topic.value
        s.denied_length = half.real_topic.value_length
        return HANDLE_DENIED
    if both_size(&half) > append_bytes_max(&s.appends.to_writer):  # of a store with larger messages
        return refuse(c, request, "the half message is longer than this broker's messages may be")
    if not append_has_room(&s.appends.to_writer, both_size(&half)):
        return HANDLE_STALL
    if request.decision == SYS_FLAG_COMMIT:
        append_final(s, c, request, &half)
        append_op(s, c, request, &half, True)
        return HANDLED
    append_op(s, c, request, &half, False)
    say(c, &request.asker, 0, LEFT_OVER_REMARK)
    return HANDLED
