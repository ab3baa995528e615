"""Takes messages back before their time of delivery."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport TOPIC_LENGTH_MAX
from mqcore.net.grpc.answers cimport call_say
from mqcore.net.grpc.asking cimport ask_with
from mqcore.net.grpc.authorization cimport may_publish
from mqcore.net.grpc.calls cimport put_status, read_name, say_status
from mqcore.net.grpc.methods cimport STATUS_ILLEGAL_TOPIC, STATUS_INTERNAL_SERVER_ERROR, STATUS_OK
from mqcore.net.grpc.protobuf cimport PB_BYTES, PbReader, pb_next, pb_open, pb_put_bytes
from mqcore.net.remoting.command cimport Command, command_begin
from mqcore.net.requests cimport HANDLED, HANDLE_DENIED
from mqcore.net.serving.handler cimport front_command
from mqcore.net.serving.recall_handles cimport HANDLE_MAX
from mqcore.text cimport literal
from mqcore.wire.codes cimport REQUEST_RECALL_MESSAGE
from mqcore.wire.header cimport Text, field_value, text_copy

cdef enum:
    ID_MAX = 512                       # bytes of a message id


cdef int serve_recall(Grpc* g, Connection* c, Call* call, const uint8_t* message,
                      int64_t length) noexcept nogil:
    cdef PbReader r
    cdef Command command
    cdef const uint8_t* topic = message
    cdef const uint8_t* handle = message
    cdef int32_t topic_length = 0, handle_length = 0
    pb_open(&r, message, length)
    while pb_next(&r):
        if r.number == 1:
            read_name(&r, &topic, &topic_length)
        elif r.number == 2 and r.kind == PB_BYTES:
            handle, handle_length = r.bytes, r.length
    if r.broken or not 1 <= handle_length <= HANDLE_MAX:
        say_status(g, call, STATUS_INTERNAL_SERVER_ERROR, "recall_handle: it is none")
        return HANDLED
    if not 1 <= topic_length <= TOPIC_LENGTH_MAX:
        say_status(g, call, STATUS_ILLEGAL_TOPIC, "topic: expected 1 to 127 bytes")
        return HANDLED
    if not may_publish(g, c, topic, topic_length):
        return HANDLE_DENIED
    command_begin(&command, REQUEST_RECALL_MESSAGE, call.id, 0)
    ask_with(&command, literal("topic"), topic, topic_length)
    ask_with(&command, literal("recallHandle"), handle, handle_length)
    return front_command(g.handler, c, &command, NULL, 0, length, True)


cdef void recall_told(Grpc* g, Call* call, const Said* said) noexcept nogil:
    cdef uint8_t id[ID_MAX]
    cdef const Text* text = field_value(&said.fields, literal("msgId"))
    cdef int32_t length = max(text_copy(text, id, ID_MAX), 0) if text != NULL else 0
    g.out.length = 0
    put_status(g, 1, STATUS_OK, <const uint8_t*>"OK", 2)
    pb_put_bytes(&g.out, 2, id, length)
    call_say(call, g.out.start, g.out.length, True)
