"""Pulls messages."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, strlen

from mqcore.net.grpc.answers cimport call_say
from mqcore.net.grpc.asking cimport said_number, said_remark
from mqcore.net.grpc.authorization cimport may_consume
from mqcore.net.grpc.calls cimport (
    REMARK_MAX,
    put_status,
    read_duration,
    read_filter,
    read_message_queue,
    read_name,
    say_status,
    say_status_bytes,
    wait_most,
)
from mqcore.net.grpc.messages cimport Delivery, put_message
from mqcore.net.grpc.methods cimport (
    STATUS_BAD_REQUEST,
    STATUS_ILLEGAL_CONSUMER_GROUP,
    STATUS_ILLEGAL_FILTER_EXPRESSION,
    STATUS_ILLEGAL_OFFSET,
    STATUS_ILLEGAL_TOPIC,
    STATUS_MESSAGE_NOT_FOUND,
    STATUS_OK,
    status_of,
)
from mqcore.net.grpc.protobuf cimport (
    PB_BYTES,
    PbReader,
    pb_inside,
    pb_next,
    pb_open,
    pb_put_number,
)
from mqcore.net.requests cimport (
    GROUP_BYTES_MAX,
    HANDLED,
    HANDLE_DENIED,
    TOPIC_BYTES_MAX,
    PullRequest,
)
from mqcore.net.serving.handler cimport front_ask
from mqcore.store.record cimport PARSE_RECORD, RecordHead, RecordView, record_head, record_parse
from mqcore.text cimport Literal, literal
from mqcore.wire.codes cimport (
    RESPONSE_PULL_NOT_FOUND,
    RESPONSE_PULL_OFFSET_MOVED,
    RESPONSE_PULL_RETRY_IMMEDIATELY,
)

cdef enum:
    PULL_BATCH_MAX = 32
    FILTER_MAX = 16 << 10              # bytes of an expression
    SQL_TYPE = 2                       # a FilterType


cdef bint read_pull_message(PullRequest* pull, PbReader r, int64_t* poll_ms) noexcept nogil:
    """A name that is too long is cut; its length is not."""
    cdef const uint8_t* group = <const uint8_t*>""
    cdef const uint8_t* topic = group
    cdef int32_t kind = 0
    cdef Literal sql = literal("SQL92")
    pull.group_length = pull.topic_length = pull.queue_id = 0
    pull.offset = pull.count_max = 0
    pull.filter_type.length = pull.filter.length = -1
    pull.filter_type.escaped = pull.filter.escaped = False
    poll_ms[0] = 0
    while pb_next(&r):
        if r.number == 1:
            read_name(&r, &group, &pull.group_length)
        elif r.number == 2:
            read_message_queue(&r, &topic, &pull.topic_length, &pull.queue_id)
        elif r.number == 3:
            pull.offset = <int64_t>r.value
        elif r.number == 4:
            pull.count_max = <int32_t>r.value
        elif r.number == 5:
            read_filter(&r, &kind, &pull.filter.start, &pull.filter.length)
        elif r.number == 6:
            poll_ms[0] = read_duration(&r)
    memcpy(pull.group, group, min(pull.group_length, <int32_t>GROUP_BYTES_MAX))
    memcpy(pull.topic, topic, min(pull.topic_length, <int32_t>TOPIC_BYTES_MAX))
    if kind == SQL_TYPE:
        pull.filter_type.start = <const uint8_t*>sql.text
        pull.filter_type.length = sql.length
    return not r.broken


cdef int serve_pull_message(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                            int64_t length) noexcept nogil:
    cdef PullRequest pull
    cdef PbReader r
    cdef int64_t poll_ms
    pb_open(&r, message, length)
    if not read_pull_message(&pull, r, &poll_ms):
        say_status(g, call, STATUS_BAD_REQUEST, "the request is broken")
    elif not 1 <= pull.topic_length < TOPIC_BYTES_MAX:
        say_status(g, call, STATUS_ILLEGAL_TOPIC, "message_queue.topic: expected 1 to 127 bytes")
    elif not 1 <= pull.group_length < GROUP_BYTES_MAX:
        say_status(g, call, STATUS_ILLEGAL_CONSUMER_GROUP, "group: expected 1 to 255 bytes")
    elif pull.offset < 0:
        say_status(g, call, STATUS_ILLEGAL_OFFSET, "offset: expected 0 or more")
    elif pull.count_max < 0 or poll_ms < 0 or pull.queue_id < 0:
        say_status(g, call, STATUS_BAD_REQUEST,
                   "message_queue.id, batch_size, long_polling_timeout: expected 0 or more")
    elif pull.filter.length > FILTER_MAX:
        say_status(g, call, STATUS_ILLEGAL_FILTER_EXPRESSION, "filter_expression: expected at most 16384 bytes")
    elif not may_consume(g, c, pull.group, pull.group_length, pull.topic, pull.topic_length):
        return HANDLE_DENIED
    else:
        pull.asker.opaque = call.id
        pull.asker.binary = pull.asker.oneway = False
        pull.count_max = min(max(pull.count_max, 1), PULL_BATCH_MAX)
        pull.replays = False
        pull.wait_ms = min(poll_ms, wait_most(call))
        pull.commits = False
        pull.commit_offset = 0
        pull.brings_filter = True
        pull.version = 0
        return front_ask(g.handler, c, NULL, &pull, length, True)
    return HANDLED


cdef void say_pulled_message(Grpc* g, Call* call, const uint8_t* record, int32_t size) noexcept nogil:
    cdef RecordView view
    cdef RecordHead head
    cdef Delivery delivery
    if record_parse(record, size, &view) != PARSE_RECORD:
        return                         # the reader has checked it
    record_head(&view, record, &head)
    delivery.handle = NULL
    delivery.attempt = head.reconsume_times + 1
    g.out.length = 0
    put_message(&g.out, 2, record, &view, &delivery)
    call_say(call, g.out.start, g.out.length, False)


cdef int32_t pull_status(int32_t code) noexcept nogil:
    if code == RESPONSE_PULL_NOT_FOUND or code == RESPONSE_PULL_RETRY_IMMEDIATELY:
        return STATUS_MESSAGE_NOT_FOUND
    return STATUS_ILLEGAL_OFFSET if code == RESPONSE_PULL_OFFSET_MOVED else status_of(code)


cdef void end_pull(Grpc* g, Call* call, int64_t next_offset) noexcept nogil:
    """GL1"""
    g.out.length = 0
    pb_put_number(&g.out, 3, next_offset)
    call_say(call, g.out.start, g.out.length, True)


cdef void answer_pull_message(Grpc* g, Call* call, const PullAnswer* answer) noexcept nogil:
    cdef int32_t i, code = pull_status(answer.code)
    cdef const char* text = answer.remark
    if text == NULL:
        text = "OK" if code == STATUS_OK else "no new message"
    g.out.length = 0
    put_status(g, 1, code, <const uint8_t*>text, <int64_t>strlen(text))
    call_say(call, g.out.start, g.out.length, False)
    for i in range(answer.message_count):
        say_pulled_message(g, call, answer.records[i], answer.sizes[i])
    end_pull(g, call, answer.next_offset)


cdef void pull_told(Grpc* g, Call* call, const Said* said) noexcept nogil:
    cdef uint8_t remark[REMARK_MAX]
    cdef int32_t code = pull_status(said.header.code)
    cdef int32_t length = said_remark(said, remark)
    cdef int64_t next_offset
    if not said_number(said, literal("nextBeginOffset"), &next_offset):
        say_status_bytes(g, call, code, remark, length)
        return
    g.out.length = 0
    put_status(g, 1, code, remark, length)
    call_say(call, g.out.start, g.out.length, False)
    end_pull(g, call, next_offset)
