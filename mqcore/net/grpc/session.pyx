"""HTTP/2 connections and their calls."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove, strlen

from mqcore.endian cimport load_i32
from mqcore.net.grpc.answers cimport call_end, session_pends
from mqcore.net.nghttp2 cimport Http2Head, Http2Memory, Http2Setting, Nghttp2
from mqcore.net.grpc.session_memory cimport session_grow, session_memory
from mqcore.net.grpc.streams cimport (
    CALLS_MAX,
    CLIENT_ID_MAX,
    CREDENTIALS_MAX,
    DATE_MAX,
    GRPC_INTERNAL,
    GRPC_OK,
    GRPC_RESOURCE_EXHAUSTED,
    GRPC_UNIMPLEMENTED,
    NAME_MAX,
    PREFIX,
    Credentials,
)
from mqcore.net.requests cimport HANDLED, HANDLE_CLOSE, HANDLE_WAIT
from mqcore.net.transport.close_reasons cimport CLOSE_HTTP2, CLOSE_MEMORY, CLOSE_PEER
from mqcore.net.transport.connections cimport connection_close, connection_stall
from mqcore.net.transport.memory cimport connection_doom, memory_give, memory_take
from mqcore.net.transport.output cimport output_room, output_used
from mqcore.net.transport.slots cimport slots_add, slots_open, slots_remove, slots_take
from mqcore.net.transport.transport cimport (
    INPUT_STALLED,
    INPUT_WAITS,
    LIFE_DOOMED,
    LIFE_OPEN,
    Transport,
    connection_find,
    takes_output,
)
from mqcore.net.transport.work cimport frame_may_begin, work_charge

cdef enum:
    FEED_BYTES = 16 << 10              # HT4
    FRAME_WORK = 700
    FIELD_WORK = 100
    FIELDS_BYTES_MAX = 16 << 10        # HT6
    FIELD_COST = 32                    # of each, beside its bytes (RFC 9113, 6.5.2)
    IDLE_FRAMES_MAX = 10_000           # HT5
    IDLE_FRAMES_A_CALL = 8
    UNKNOWN_BYTES_MAX = 256 << 10
    FRAME_HEAD = 9                     # bytes
    CALL_WINDOW_BYTES = 1 << 20             # of a call
    CONNECTION_WINDOW_BYTES = 8 << 20
    SETTINGS = 3                       # that are said
    # HTTP/2 (RFC 9113)
    FRAME_DATA = 0
    FRAME_HEADERS = 1
    FLAG_END_STREAM = 1
    SETTINGS_MAX_CONCURRENT_STREAMS = 3
    SETTINGS_INITIAL_WINDOW_SIZE = 4
    SETTINGS_MAX_HEADER_LIST_SIZE = 6
    ENHANCE_YOUR_CALM = 11
    NO_ERROR = 0
    # nghttp2
    ERROR_CALLBACK_FAILURE = -902
    ERROR_TEMPORAL = -521              # the stream is reset, the connection stays

cdef const char* PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


# -- calls -------------------------------------------------------------------------------------------

cdef Call* begin_call(Session* s, int32_t id) noexcept nogil:
    cdef Call* call
    if not memory_take(s.door.transport, s.connection, sizeof(Call)):
        return NULL
    call = <Call*>calloc(1, sizeof(Call))
    if call == NULL:
        memory_give(s.door.transport, s.connection, sizeof(Call))
        return NULL
    call.id = id
    call.session = s
    call.timeout_ms = -1
    call.since_us = s.door.transport.steady_us
    call.after = s.calls
    if s.calls != NULL:
        s.calls.before = call
    s.calls = call
    s.call_count += 1
    return call


cdef void unlist(Call* call) noexcept nogil:
    cdef Session* s = call.session
    cdef Call* one = s.whole_first
    if not call.listed:
        return
    call.listed = False
    if one == call:
        s.whole_first = call.later
        if s.whole_last == call:
            s.whole_last = NULL
        return
    while one.later != call:
        one = one.later
    one.later = call.later
    if s.whole_last == call:
        s.whole_last = one


cdef void end_call(Call* call) noexcept nogil:
    cdef Session* s = call.session
    s.door.gone(s.door.top, call)
    unlist(call)
    if call.before != NULL:
        call.before.after = call.after
    else:
        s.calls = call.after
    if call.after != NULL:
        call.after.before = call.before
    s.call_count -= 1
    memory_give(s.door.transport, s.connection, <int64_t>sizeof(Call) + call.input_capacity
                + call.output_capacity + (sizeof(Credentials) if call.credentials != NULL else 0))
    free(call.credentials)
    free(call.input)
    free(call.output)
    free(call)


cdef inline Call* call_of(Session* s, int32_t id) noexcept nogil:
    return <Call*>s.door.library.session_get_stream_user_data(s.http2, id)


cdef void list_whole(Call* call) noexcept nogil:
    cdef Session* s = call.session
    if call.listed:
        return
    call.listed = True
    call.later = NULL
    if s.whole_last != NULL:
        s.whole_last.later = call
    else:
        s.whole_first = call
    s.whole_last = call


# -- what nghttp2 calls ------------------------------------------------------------------------------

cdef int on_begin_frame(void* http2, const Http2Head* head, void* user) noexcept nogil:
    cdef Session* s = <Session*>user
    s.door.transport.work += FRAME_WORK
    s.unknown_bytes -= FRAME_HEAD + <int64_t>head.length
    if head.type != FRAME_HEADERS and (head.type != FRAME_DATA or head.length == 0):
        s.idle_frames += 1                                               # HT5
        if s.idle_frames > IDLE_FRAMES_MAX:
            return ERROR_CALLBACK_FAILURE
    return 0


cdef int on_begin_headers(void* http2, const Http2Head* head, void* user) noexcept nogil:
    cdef Session* s = <Session*>user
    cdef Call* call
    if head.type != FRAME_HEADERS or call_of(s, head.stream_id) != NULL:
        return 0                       # trailers
    call = begin_call(s, head.stream_id)
    if call == NULL:
        return ERROR_TEMPORAL
    s.idle_frames = max(s.idle_frames - IDLE_FRAMES_A_CALL, <int64_t>0)
    s.door.library.session_set_stream_user_data(http2, head.stream_id, call)
    return 0


cdef inline bint named(const uint8_t* name, size_t length, const char* text) noexcept nogil:
    return length == strlen(text) and memcmp(name, text, length) == 0


cdef int64_t timeout_of(const uint8_t* value, size_t length) noexcept nogil:
    """grpc-timeout in ms, rounded down; -1: it is none."""
    cdef int64_t number = 0
    cdef size_t i
    if not 2 <= length <= 9:
        return -1
    for i in range(length - 1):
        if not c'0' <= value[i] <= c'9':
            return -1
        number = number * 10 + value[i] - c'0'
    if value[length - 1] == c'H':
        return number * 3_600_000
    if value[length - 1] == c'M':
        return number * 60_000
    if value[length - 1] == c'S':
        return number * 1000
    if value[length - 1] == c'm':
        return number
    if value[length - 1] == c'u':
        return number // 1000
    if value[length - 1] == c'n':
        return number // 1_000_000
    return -1


cdef void take_credentials(Session* s, Call* call, bint date, const uint8_t* value,
                           size_t length) noexcept nogil:
    cdef Credentials* own = call.credentials
    if own == NULL:
        if not memory_take(s.door.transport, s.connection, sizeof(Credentials)):
            return
        own = call.credentials = <Credentials*>calloc(1, sizeof(Credentials))
        if own == NULL:
            memory_give(s.door.transport, s.connection, sizeof(Credentials))
            return
    if date:
        own.date_length = <int32_t>min(length, <size_t>(DATE_MAX + 1))
        memcpy(own.date, value, min(length, <size_t>DATE_MAX))
    else:
        own.length = <int32_t>min(length, <size_t>(CREDENTIALS_MAX + 1))
        memcpy(own.authorization, value, min(length, <size_t>CREDENTIALS_MAX))


cdef void take_field(Session* s, Call* call, const uint8_t* name, size_t name_length,
                     const uint8_t* value, size_t length) noexcept nogil:
    if named(name, name_length, ":path"):
        call.method = s.door.method_of(value, length)
    elif named(name, name_length, "grpc-timeout"):
        call.timeout_ms = timeout_of(value, length)
    elif named(name, name_length, "x-mq-client-id"):
        call.client_id_length = <int32_t>min(length, <size_t>(CLIENT_ID_MAX + 1))
        memcpy(call.client_id, value, call.client_id_length)
    elif named(name, name_length, "x-mq-language"):
        call.language_length = <int32_t>min(length, <size_t>NAME_MAX)
        memcpy(call.language, value, call.language_length)
    elif s.door.keeps_credentials and named(name, name_length, "authorization"):
        take_credentials(s, call, False, value, length)
    elif s.door.keeps_credentials and named(name, name_length, "x-mq-date-time"):
        take_credentials(s, call, True, value, length)


cdef int on_header(void* http2, const Http2Head* head, const uint8_t* name, size_t name_length,
                   const uint8_t* value, size_t length, uint8_t flags, void* user) noexcept nogil:
    cdef Session* s = <Session*>user
    cdef Call* call = call_of(s, head.stream_id)
    cdef int64_t bytes = <int64_t>(name_length + length) + FIELD_COST
    s.door.transport.work += FIELD_WORK + (bytes >> 2)
    if call == NULL:
        return 0
    call.fields_bytes += <int32_t>min(bytes, <int64_t>FIELDS_BYTES_MAX)
    if call.fields_bytes > FIELDS_BYTES_MAX:                             # HT6
        return ERROR_TEMPORAL
    take_field(s, call, name, name_length, value, length)
    return 0


cdef int on_chunk(void* http2, uint8_t flags, int32_t id, const uint8_t* data, size_t length,
                  void* user) noexcept nogil:
    cdef Session* s = <Session*>user
    cdef Call* call = call_of(s, id)
    cdef int64_t needed
    s.door.transport.work += <int64_t>length >> 2
    if call == NULL or call.refused:
        return 0
    needed = call.input_length + <int64_t>length
    if needed > s.door.message_max:                                      # HT6
        call.refused = True
        call_end(call, GRPC_RESOURCE_EXHAUSTED, "the request is longer than the largest message")
        return 0
    if needed > call.input_capacity and not session_grow(s, &call.input, &call.input_capacity, needed,
                                                 whole_length(call)):
        call.refused = True
        call_end(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the request")
        return 0
    memcpy(call.input + call.input_length, data, length)
    call.input_length = needed
    if s.door.streams(call.method) and has_message(call):
        list_whole(call)
    return 0


cdef inline int64_t whole_length(const Call* call) noexcept nogil:
    """Of its first message with the prefix; 0: not known yet."""
    if call.input_length < PREFIX:
        return 0
    return PREFIX + <int64_t><uint32_t>load_i32(call.input + 1)


cdef inline bint has_message(const Call* call) noexcept nogil:
    return call.input_length >= PREFIX and call.input_length >= whole_length(call)


cdef int on_frame(void* http2, const Http2Head* head, void* user) noexcept nogil:
    cdef Session* s = <Session*>user
    cdef Call* call
    if not head.flags & FLAG_END_STREAM or head.type > FRAME_HEADERS:
        return 0
    call = call_of(s, head.stream_id)
    if call != NULL:
        call.ended = True
        if not call.refused:
            list_whole(call)
    return 0


cdef int on_close(void* http2, int32_t id, uint32_t code, void* user) noexcept nogil:
    cdef Call* call = call_of(<Session*>user, id)
    if call != NULL:
        (<Session*>user).door.library.session_set_stream_user_data(http2, id, NULL)
        end_call(call)
    return 0


# -- sessions ----------------------------------------------------------------------------------------

cdef bint door_open(Door* door, int32_t connection_max) noexcept nogil:
    cdef const Nghttp2* library = door.library
    if not slots_open(&door.pending, connection_max) or library.session_callbacks_new(
            &door.callbacks) != 0 or library.option_new(&door.option) != 0:
        return False
    library.session_callbacks_set_on_begin_frame_callback(door.callbacks, <void*>on_begin_frame)
    library.session_callbacks_set_on_begin_headers_callback(door.callbacks, <void*>on_begin_headers)
    library.session_callbacks_set_on_header_callback(door.callbacks, <void*>on_header)
    library.session_callbacks_set_on_frame_recv_callback(door.callbacks, <void*>on_frame)
    library.session_callbacks_set_on_data_chunk_recv_callback(door.callbacks, <void*>on_chunk)
    library.session_callbacks_set_on_stream_close_callback(door.callbacks, <void*>on_close)
    library.option_set_no_closed_streams(door.option, 1)
    return True


cdef Session* session_of(const Connection* c) noexcept nogil:
    return <Session*>c.of_front[0]


cdef Call* session_call(const Connection* c, int32_t id) noexcept nogil:
    return call_of(session_of(c), id) if session_of(c) != NULL else NULL


cdef Session* session_begin(Door* door, Connection* c) noexcept nogil:
    cdef Session* s
    cdef Http2Memory memory
    cdef Http2Setting settings[SETTINGS]
    if not memory_take(door.transport, c, sizeof(Session)):
        return NULL
    s = <Session*>calloc(1, sizeof(Session))
    if s == NULL:
        memory_give(door.transport, c, sizeof(Session))
        return NULL
    s.connection = c
    s.door = door
    s.unknown_bytes = -<int64_t>strlen(PREFACE)
    s.pop_client = -1
    session_memory(s, &memory)
    if door.library.session_server_new3(&s.http2, door.callbacks, s, door.option, &memory) != 0:
        memory_give(door.transport, c, sizeof(Session))
        free(s)
        return NULL
    c.of_front[0] = <uint64_t>s
    settings[0].id, settings[0].value = SETTINGS_MAX_CONCURRENT_STREAMS, CALLS_MAX
    settings[1].id, settings[1].value = SETTINGS_INITIAL_WINDOW_SIZE, CALL_WINDOW_BYTES
    settings[2].id, settings[2].value = SETTINGS_MAX_HEADER_LIST_SIZE, FIELDS_BYTES_MAX
    door.library.submit_settings(s.http2, 0, settings, SETTINGS)
    door.library.session_set_local_window_size(s.http2, 0, 0, CONNECTION_WINDOW_BYTES)
    session_pends(s)
    return s


cdef void session_end(Connection* c) noexcept nogil:
    cdef Session* s = session_of(c)
    if s == NULL:
        return
    slots_remove(&s.door.pending, c.slot)
    while s.calls != NULL:
        end_call(s.calls)
    s.door.library.session_del(s.http2)
    c.of_front[0] = 0
    memory_give(s.door.transport, c, sizeof(Session))
    free(s)


cdef void session_goodbye(Connection* c) noexcept nogil:
    cdef Session* s = session_of(c)
    if s != NULL:
        s.door.library.session_terminate_session(s.http2, NO_ERROR)
        session_pends(s)


cdef int serve_message(Session* s, Call* call) noexcept nogil:
    """The first message of its input; Handled."""
    cdef int64_t whole = whole_length(call)
    cdef int result
    if call.method == 0:
        call_end(call, GRPC_UNIMPLEMENTED, "the service has no such method")
        return HANDLED
    if call.input_length < PREFIX or call.input_length < whole or (
            call.input_length > whole and not s.door.streams(call.method)):
        call_end(call, GRPC_INTERNAL, "the request is no message with its length before it")
        return HANDLED
    if call.input[0] != 0:
        call_end(call, GRPC_UNIMPLEMENTED, "the message is compressed: no compression is known here")
        return HANDLED
    return s.door.serve(s.door.top, s.connection, call, call.input + PREFIX, whole - PREFIX)


cdef void message_served(Session* s, Call* call) noexcept nogil:
    """Its bytes are not needed any more."""
    cdef int64_t whole = whole_length(call)
    unlist(call)
    if not s.door.streams(call.method):
        return                         # they go with the call, which is answered from them
    if call.input_length >= whole and whole > 0:
        memmove(call.input, call.input + whole, call.input_length - whole)
        call.input_length -= whole
    if has_message(call):
        list_whole(call)
    elif call.ended:
        if call.input_length:
            call_end(call, GRPC_INTERNAL, "the last message is not whole")
        elif call.unanswered == 0:
            call_end(call, GRPC_OK, NULL)


cdef void call_answered(Call* call) noexcept nogil:
    call.unanswered -= 1
    if call.ended and not call.listed and call.unanswered == 0:
        call_end(call, GRPC_OK, NULL)


cdef int serve_whole(Session* s) noexcept nogil:
    """HT1, HT2. Handled; behind HANDLE_CLOSE there is no session any more."""
    cdef Connection* c = s.connection
    cdef Transport* t = s.door.transport
    cdef uint64_t id = c.id
    cdef Call* call
    cdef int32_t number
    cdef int result
    while s.whole_first != NULL and c.life != LIFE_DOOMED:
        call = s.whole_first
        number = call.id
        if s.door.streams(call.method) and not has_message(call):
            message_served(s, call)    # only its end has come
            continue
        result = serve_message(s, call)
        if connection_find(t, id) == NULL:
            return HANDLE_CLOSE
        if result != HANDLED:
            return result
        call = call_of(s, number)
        if call != NULL:
            message_served(s, call)
    return HANDLED


cdef bint is_preface(const uint8_t* data, int64_t length) noexcept nogil:
    return memcmp(data, PREFACE, min(length, <int64_t>strlen(PREFACE))) == 0


cdef int64_t session_bytes(Door* door, Connection* c, uint8_t* data,
                           int64_t length) noexcept nogil:
    cdef Transport* t = door.transport
    cdef Session* s = session_of(c)
    cdef uint64_t id = c.id
    cdef int64_t at = 0, began = t.work
    cdef ssize_t taken
    cdef int result
    c.input_whole = 0
    if s == NULL:
        if length > 0 and not is_preface(data, length):
            connection_close(t, c, CLOSE_HTTP2, 0)
            return -1
        s = session_begin(door, c)
        if s == NULL:
            connection_close(t, c, CLOSE_MEMORY, sizeof(Session))
            return -1
    result = serve_whole(s)
    while result == HANDLED and at < length and c.life != LIFE_DOOMED:
        if not frame_may_begin(t, c, at == 0):
            return at
        taken = door.library.session_mem_recv(s.http2, data + at, min(length - at,
                                                                      <int64_t>FEED_BYTES))
        if taken < 0:
            end_broken(s, CLOSE_HTTP2)
            return -1
        at += taken
        s.unknown_bytes += taken
        t.work += taken >> 1
        if s.unknown_bytes > UNKNOWN_BYTES_MAX:
            s.idle_frames = IDLE_FRAMES_MAX + 1
            end_broken(s, CLOSE_HTTP2)
            return -1
        session_pends(s)
        result = serve_whole(s)
        if result == HANDLE_CLOSE:
            return -1
        work_charge(t, c, began)
        began = t.work
        if not door.library.session_want_read(s.http2):
            end_broken(s, CLOSE_PEER)              # it has said goodbye
            return -1
    if result == HANDLE_CLOSE:
        return -1
    if result != HANDLED and c.life != LIFE_DOOMED:
        connection_stall(t, c, INPUT_WAITS if result == HANDLE_WAIT else INPUT_STALLED)
    return at


cdef void end_broken(Session* s, int reason) noexcept nogil:
    """It is told why, if it reads; then the connection is closed."""
    cdef Connection* c = s.connection
    if s.idle_frames > IDLE_FRAMES_MAX:
        s.door.library.session_terminate_session(s.http2, ENHANCE_YOUR_CALM)
    pump(s)
    connection_doom(s.door.transport, c, reason, 0)


# -- output ------------------------------------------------------------------------------------------

cdef void pump(Session* s) noexcept nogil:
    """HT7"""
    cdef Transport* t = s.door.transport
    cdef Connection* c = s.connection
    cdef const uint8_t* frames
    cdef uint8_t* place
    cdef ssize_t size
    while c.life == LIFE_OPEN and takes_output(t, c):
        size = s.door.library.session_mem_send(s.http2, &frames)
        if size < 0:
            connection_doom(t, c, CLOSE_MEMORY, 0)
            return
        if size == 0:
            return
        place = output_room(t, c, size)
        if place == NULL:
            return
        memcpy(place, frames, size)
        output_used(t, c, size)
    if c.life == LIFE_OPEN and s.door.library.session_want_write(s.http2):
        slots_add(&s.door.pending, c.slot)


cdef void door_pump(Door* door) noexcept nogil:
    cdef int32_t i, slot
    for i in range(door.pending.count):
        slot = slots_take(&door.pending)
        if door.transport.connections[slot] != NULL:
            pump(session_of(door.transport.connections[slot]))
