"""Commands for the coordinator (broker/requests/grpc.py)."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.grpc.calls cimport REMARK_MAX
from mqcore.net.grpc.methods cimport METHOD_TELEMETRY
from mqcore.net.remoting.command cimport command_begin, command_field
from mqcore.net.serving.handler cimport front_command
from mqcore.text cimport literal
from mqcore.wire.codes cimport REQUEST_GRPC_CALL, REQUEST_GRPC_SETTINGS
from mqcore.wire.header cimport Text, field_value, text_copy, text_i64
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX, put_number


cdef void ask_with(Command* m, Literal name, const uint8_t* text, int32_t length) noexcept nogil:
    command_field(m, <const uint8_t*>name.text, name.length, text, length)


cdef void ask_with_number(Command* m, Literal name, int64_t value) noexcept nogil:
    cdef uint8_t digits[NUMBER_LENGTH_MAX]
    ask_with(m, name, digits, put_number(digits, value))


cdef bint said_number(const Said* said, Literal name, int64_t* number) noexcept nogil:
    cdef const Text* text = field_value(&said.fields, name)
    return text != NULL and text_i64(text, number)


cdef int32_t said_remark(const Said* said, uint8_t* into) noexcept nogil:
    return max(text_copy(&said.remark, into, REMARK_MAX), 0) if said.remark.length > 0 else 0


cdef int ask(Grpc* g, Connection* c, Call* call, const uint8_t* message,
             int64_t length) noexcept nogil:
    """The coordinator answers."""
    cdef Command command
    command_begin(&command, REQUEST_GRPC_SETTINGS if call.method == METHOD_TELEMETRY
                  else REQUEST_GRPC_CALL, call.id, 0)
    ask_with_number(&command, literal("method"), call.method)
    ask_with(&command, literal("clientId"), call.client_id, call.client_id_length)
    ask_with(&command, literal("language"), call.language, call.language_length)
    if g.account != NULL:
        ask_with(&command, literal("AccessKey"), g.access_key, g.access_key_length)
    return front_command(g.handler, c, &command, message, <int32_t>length, length, g.account == NULL)
