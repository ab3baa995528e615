"""Hands messages of calls to nghttp2."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove, strlen

from mqcore.endian cimport store_i32
from mqcore.net.nghttp2 cimport Http2Field, Http2Provider, Http2Source
from mqcore.net.grpc.streams cimport (
    GRPC_INVALID_ARGUMENT,
    GRPC_OK,
    GRPC_PERMISSION_DENIED,
    GRPC_RESOURCE_EXHAUSTED,
    GRPC_UNAUTHENTICATED,
    GRPC_UNAVAILABLE,
    GRPC_UNIMPLEMENTED,
    PREFIX,
)
from mqcore.net.grpc.session_memory cimport session_grow
from mqcore.net.transport.close_reasons cimport CLOSE_MEMORY
from mqcore.net.transport.memory cimport connection_doom
from mqcore.net.transport.slots cimport slots_add

cdef enum:
    END_FIELDS = 2
    ALL_FIELDS = 2 + END_FIELDS
    # nghttp2
    NV_NO_COPY = 2 | 4
    DATA_EOF = 1
    DATA_NO_END_STREAM = 2
    ERROR_DEFERRED = -508


cdef void session_pends(Session* s) noexcept nogil:
    slots_add(&s.door.pending, s.connection.slot)


cdef void field(Http2Field* f, const char* name, const char* value) noexcept nogil:
    f.name = <uint8_t*>name
    f.value = <uint8_t*>value
    f.name_length = strlen(name)
    f.value_length = strlen(value)
    f.flags = NV_NO_COPY


cdef int end_fields(const Call* call, Http2Field* fields) noexcept nogil:
    """How many they are: two at most."""
    field(&fields[0], "grpc-status", status_text(call.status))
    if call.text == NULL:
        return 1
    field(&fields[1], "grpc-message", call.text)
    return 2


cdef const char* status_text(int status) noexcept nogil:
    if status == GRPC_OK:
        return "0"
    if status == GRPC_INVALID_ARGUMENT:
        return "3"
    if status == GRPC_PERMISSION_DENIED:
        return "7"
    if status == GRPC_RESOURCE_EXHAUSTED:
        return "8"
    if status == GRPC_UNIMPLEMENTED:
        return "12"
    if status == GRPC_UNAVAILABLE:
        return "14"
    if status == GRPC_UNAUTHENTICATED:
        return "16"
    return "13"


cdef ssize_t read_output(void* http2, int32_t id, uint8_t* into, size_t room, uint32_t* flags,
                         Http2Source* source, void* user) noexcept nogil:
    cdef Call* call = <Call*>source.pointer
    cdef Http2Field fields[END_FIELDS]
    cdef int64_t size = min(<int64_t>room, call.output_end - call.output_start)
    if size == 0 and not call.done:
        call.rests = True
        return ERROR_DEFERRED
    memcpy(into, call.output + call.output_start, size)
    call.output_start += size
    if call.output_start == call.output_end:
        call.output_start = call.output_end = 0
        if call.done:
            flags[0] |= DATA_EOF | DATA_NO_END_STREAM
            call.session.door.library.submit_trailer(http2, id, fields, end_fields(call, fields))
    return size


cdef void answer_begins(Call* call) noexcept nogil:
    cdef Http2Field fields[END_FIELDS]
    cdef Http2Provider provider
    if call.answers:
        if call.rests:
            call.rests = False
            call.session.door.library.session_resume_data(call.session.http2, call.id)
        return
    call.answers = True
    field(&fields[0], ":status", "200")
    field(&fields[1], "content-type", "application/grpc")
    provider.source.pointer = call
    provider.read = <void*>read_output
    call.session.door.library.submit_response(call.session.http2, call.id, fields, 2, &provider)


cdef void call_say(Call* call, const uint8_t* message, int64_t length, bint last) noexcept nogil:
    cdef Session* s = call.session
    cdef int64_t needed = call.output_end - call.output_start + PREFIX + length
    if call.done:
        return
    if call.output_start > 0:
        memmove(call.output, call.output + call.output_start, call.output_end - call.output_start)
        call.output_end -= call.output_start
        call.output_start = 0
    if needed > call.output_capacity and not session_grow(s, &call.output, &call.output_capacity, needed, 0):
        connection_doom(s.door.transport, s.connection, CLOSE_MEMORY, needed)
        return
    call.output[call.output_end] = 0
    store_i32(call.output + call.output_end + 1, <int32_t>length)
    if length > 0:
        memcpy(call.output + call.output_end + PREFIX, message, length)
    call.output_end += PREFIX + length
    call.done = last
    answer_begins(call)
    session_pends(s)


cdef void call_end(Call* call, int status, const char* text) noexcept nogil:
    cdef Session* s = call.session
    cdef Http2Field fields[ALL_FIELDS]
    cdef int count
    if call.done:
        return
    call.done = True
    call.status = status
    call.text = text
    if call.answers:
        answer_begins(call)
    else:
        call.answers = True
        field(&fields[0], ":status", "200")
        field(&fields[1], "content-type", "application/grpc")
        count = end_fields(call, fields + 2)
        s.door.library.submit_response(s.http2, call.id, fields, 2 + count, NULL)
    session_pends(s)
