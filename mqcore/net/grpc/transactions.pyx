"""Ends of transactions, and questions about them."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from mqcore.layout cimport SYS_FLAG_COMMIT, SYS_FLAG_ROLLBACK
from mqcore.net.grpc.answers cimport call_say
from mqcore.net.grpc.asking cimport said_number
from mqcore.net.grpc.authorization cimport deny_topic
from mqcore.net.grpc.calls cimport read_name, say_status
from mqcore.net.grpc.messages cimport Delivery, put_message
from mqcore.net.grpc.methods cimport (
    STATUS_INTERNAL_SERVER_ERROR,
    STATUS_INVALID_TRANSACTION_ID,
    STATUS_OK,
)
from mqcore.net.grpc.protobuf cimport (
    PB_BYTES,
    PbReader,
    pb_begin,
    pb_end,
    pb_next,
    pb_open,
    pb_put_bytes,
)
from mqcore.net.grpc.sends cimport TRANSACTION_ID_LENGTH, put_place, transaction_place
from mqcore.net.requests cimport GROUP_BYTES_MAX, HANDLED, HANDLE_DENIED, EndRequest
from mqcore.net.serving.handler cimport front_end
from mqcore.store.record cimport PARSE_RECORD, RecordView, record_parse
from mqcore.text cimport literal

cdef enum:
    COMMIT = 1
    ROLLBACK = 2


cdef int serve_end_transaction(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                               int64_t length) noexcept nogil:
    cdef PbReader r
    cdef EndRequest end
    cdef int result
    cdef const uint8_t* topic = message
    cdef const uint8_t* transaction = message
    cdef int32_t topic_length = 0, transaction_length = 0, resolution = 0
    cdef int64_t position, offset
    pb_open(&r, message, length)
    while pb_next(&r):
        if r.number == 1:
            read_name(&r, &topic, &topic_length)
        elif r.number == 3 and r.kind == PB_BYTES:
            transaction, transaction_length = r.bytes, r.length
        elif r.number == 4:
            resolution = <int32_t>r.value
    if r.broken or transaction_length == 0:
        say_status(g, call, STATUS_INVALID_TRANSACTION_ID, "transaction_id: it is missing")
        return HANDLED
    if not transaction_place(transaction, transaction_length, &position, &offset):
        say_status(g, call, STATUS_INTERNAL_SERVER_ERROR,
                   "transaction_id: no half message of this broker has it")
        return HANDLED
    if resolution != COMMIT and resolution != ROLLBACK:
        say_status(g, call, STATUS_OK, "OK")         # not known yet: it is asked about later
        return HANDLED
    if topic_length >= GROUP_BYTES_MAX:
        say_status(g, call, STATUS_INTERNAL_SERVER_ERROR, "topic: expected at most 127 bytes")
        return HANDLED
    end.asker.opaque = call.id
    end.asker.binary = end.asker.oneway = False
    memcpy(end.group, topic, topic_length)         # as the half message has it
    end.group_length = topic_length
    end.decision = SYS_FLAG_COMMIT if resolution == COMMIT else SYS_FLAG_ROLLBACK
    end.half_offset = offset
    end.log_position = position
    end.account = g.account
    result = front_end(g.handler, c, &end, length)
    if result == HANDLE_DENIED:
        deny_topic(g, c, g.handler.ends.denied, g.handler.ends.denied_length)
    return result


cdef void ask_producer(Grpc* g, Call* telemetry, const Said* said) noexcept nogil:
    cdef RecordView view
    cdef Delivery delivery
    cdef int64_t position, offset, begun
    cdef uint8_t transaction[TRANSACTION_ID_LENGTH]
    if not said_number(said, literal("commitLogOffset"), &position) or not said_number(
            said, literal("tranStateTableOffset"), &offset) or record_parse(
            said.body, said.body_length, &view) != PARSE_RECORD:
        return                         # the next round asks once more
    put_place(transaction, position, offset)
    delivery.handle = NULL
    delivery.attempt = 0
    g.out.length = 0
    begun = pb_begin(&g.out, 5)
    put_message(&g.out, 1, said.body, &view, &delivery)
    pb_put_bytes(&g.out, 2, transaction, TRANSACTION_ID_LENGTH)
    pb_end(&g.out, begun)
    call_say(telemetry, g.out.start, g.out.length, False)
