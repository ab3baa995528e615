"""
A small front beside RocketMQ's: length-prefixed binary frames that send and pull by the same native
functions, and ask the coordinator through the same door. It shows what a front has to do; it is for
tests, not for clients.

All numbers are big-endian. A request is  i32 length of what follows, u8 kind, i32 opaque, then

    SEND 1    u8 topic length, topic, i32 queue (-1: any), i64 born time, u16 properties length,
              properties as a record has them, body to the end
    PULL 2    u8 group length, group, u8 topic length, topic, i32 queue, i64 offset, i32 count,
              i32 ms to wait
    QUESTION 3 i32 code, fields, body to the end: what RocketMQ calls a command

An answer is  i32 length of what follows, u8 kind, i32 opaque, i32 code, and if there is more to say

    SAID 0    remark to the end
    SEND      i32 queue, i64 queue offset, i64 log position
    PULL      i64 next offset, i64 smallest, i64 largest offset, records
    QUESTION  i32 remark length, remark, fields, body to the end: what the coordinator answers,
              whatever was asked
    WORD 4    as QUESTION: what the coordinator says by itself; its code is that of a request

Fields are  i32 count, for each  u8 name length, name, i32 value length, value.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, strlen

from mqcore.endian cimport load_i32, load_i64, load_u16, store_i32, store_i64
from mqcore.net.remoting.command cimport (
    Command,
    Said,
    command_begin,
    command_close,
    command_field,
    said_read,
)
from mqcore.net.remoting.frames cimport FRAME_WORK, RESPONSE_BIT
from mqcore.net.requests cimport (
    HANDLED,
    HANDLE_CLOSE,
    HANDLE_WAIT,
    TOPIC_BYTES_MAX,
    Asker,
    Front,
    PullAnswer,
    PullRequest,
    SendAnswer,
    SendRequest,
)
from mqcore.net.serving.cold cimport cold_ask
from mqcore.net.serving.handler cimport RequestHandler, front_ask, front_command
from mqcore.net.serving.loop cimport KIND_OTHER, ServingLoop
from mqcore.net.serving.peer cimport peer_of
from mqcore.net.transport.close_reasons cimport CLOSE_ASKED
from mqcore.net.transport.connections cimport connection_close, connection_stall
from mqcore.net.transport.loop cimport transport_listen
from mqcore.net.transport.output cimport output_room, output_used
from mqcore.net.transport.transport cimport (
    INPUT_STALLED,
    INPUT_WAITS,
    LIFE_DOOMED,
    Connection,
    Transport,
)
from mqcore.net.transport.work cimport frame_may_begin, work_charge
from mqcore.wire.header cimport SignedFields, Text, text_copy

cdef enum:
    SAID = 0
    SEND = 1
    PULL = 2
    QUESTION = 3
    WORD = 4
    HEAD = 5                           # kind and opaque
    ANSWER = 13                        # length, head and code
    SENT_SIZE = 20
    RANGE_SIZE = 24
    FRAME_MAX = 1 << 20
    BROKEN = -1

cdef struct Speaker:
    Transport* transport
    RequestHandler* handler

cdef struct Reader:                    # of one frame; `at` stays behind `end` when it is too short
    const uint8_t* at
    const uint8_t* end


cdef const uint8_t* take(Reader* r, int64_t length) noexcept nogil:
    cdef const uint8_t* here = r.at
    if length < 0 or r.end - r.at < length:
        return NULL
    r.at += length
    return here


cdef bint take_i32(Reader* r, int32_t* value) noexcept nogil:
    cdef const uint8_t* here = take(r, 4)
    if here != NULL:
        value[0] = load_i32(here)
    return here != NULL


cdef bint take_i64(Reader* r, int64_t* value) noexcept nogil:
    cdef const uint8_t* here = take(r, 8)
    if here != NULL:
        value[0] = load_i64(here)
    return here != NULL


cdef bint take_name(Reader* r, uint8_t* into, int32_t most, int32_t* length) noexcept nogil:
    cdef const uint8_t* here = take(r, 1)
    if here == NULL or here[0] >= most:
        return False
    length[0] = here[0]
    here = take(r, length[0])
    if here != NULL:
        memcpy(into, here, length[0])
    return here != NULL


cdef inline bint passes(const Speaker* s) noexcept nogil:
    """Whether there is no access control."""
    return s.handler.remoting.fields == NULL


cdef int one_send(Speaker* s, Connection* c, Reader* r, Asker asker, int64_t bytes) noexcept nogil:
    cdef SendRequest send
    cdef const uint8_t* size
    send.asker = asker
    if not (take_name(r, send.topic, TOPIC_BYTES_MAX, &send.topic_length)
            and take_i32(r, &send.queue_id) and take_i64(r, &send.born_time_ms)):
        return BROKEN
    size = take(r, 2)
    if size == NULL:
        return BROKEN
    send.properties.length = load_u16(size)
    send.properties.escaped = False
    send.properties.start = take(r, send.properties.length)
    if send.properties.start == NULL:
        return BROKEN
    send.sys_flag = send.flag = send.reconsume_times = 0
    send.batch = False
    send.born_host = peer_of(c).host
    send.born_host_size = peer_of(c).host_size
    send.body = r.at
    send.body_length = <int32_t>(r.end - r.at)
    return front_ask(s.handler, c, &send, NULL, bytes, passes(s))


cdef int one_pull(Speaker* s, Connection* c, Reader* r, Asker asker, int64_t bytes) noexcept nogil:
    cdef PullRequest pull
    cdef int32_t wait_ms
    pull.asker = asker
    if not (take_name(r, pull.group, TOPIC_BYTES_MAX, &pull.group_length)
            and take_name(r, pull.topic, TOPIC_BYTES_MAX, &pull.topic_length)
            and take_i32(r, &pull.queue_id) and take_i64(r, &pull.offset)
            and take_i32(r, &pull.count_max) and take_i32(r, &wait_ms)):
        return BROKEN
    pull.wait_ms = wait_ms
    pull.commits = False
    pull.replays = False
    pull.brings_filter = True
    pull.filter_type.length = pull.filter.length = -1
    return front_ask(s.handler, c, NULL, &pull, bytes, passes(s))


cdef bint take_fields(Reader* r, Command* command) noexcept nogil:
    cdef const uint8_t* name
    cdef const uint8_t* value
    cdef int32_t count, length, i
    if not take_i32(r, &count):
        return False
    for i in range(count):
        name = take(r, 1)
        value = take(r, name[0]) if name != NULL else NULL
        if value == NULL or not take_i32(r, &length):
            return False
        value = take(r, length)
        if value == NULL:
            return False
        command_field(command, name + 1, name[0], value, length)
    return True


cdef int one_question(Speaker* s, Connection* c, Reader* r, Asker asker,
                      int64_t bytes) noexcept nogil:
    cdef Command command
    cdef int32_t code
    if not take_i32(r, &code):
        return BROKEN
    command_begin(&command, code, asker.opaque, 0)
    if not take_fields(r, &command):
        command_close(&command)
        return BROKEN
    return front_command(s.handler, c, &command, r.at, <int32_t>(r.end - r.at), bytes,
                         passes(s))


cdef int one_frame(Speaker* s, Connection* c, const uint8_t* frame, int32_t length) noexcept nogil:
    cdef Reader r
    cdef Asker asker
    asker.opaque = load_i32(frame + 1)
    asker.binary = asker.oneway = False
    r.at = frame + HEAD
    r.end = frame + length
    if frame[0] == SEND:
        return one_send(s, c, &r, asker, length)
    if frame[0] == PULL:
        return one_pull(s, c, &r, asker, length)
    if frame[0] == QUESTION:
        return one_question(s, c, &r, asker, length)
    return BROKEN


cdef int64_t bytes_came(void* self, Connection* c, uint8_t* data, int64_t length) noexcept nogil:
    cdef Speaker* s = <Speaker*>self
    cdef Transport* t = s.transport
    cdef int64_t at = 0, began = t.work
    cdef int32_t size
    cdef int result
    c.input_whole = 0
    while length - at >= 4:
        size = load_i32(data + at)
        if size < HEAD or size > FRAME_MAX:
            connection_close(t, c, CLOSE_ASKED, 0)
            return -1
        if length - at - 4 < size:
            c.input_whole = 4 + <int64_t>size
            break
        if not frame_may_begin(t, c, at == 0):
            break
        t.work += FRAME_WORK
        result = one_frame(s, c, data + at + 4, size)
        if result == BROKEN:
            connection_close(t, c, CLOSE_ASKED, 0)
            return -1
        if result == HANDLE_CLOSE:
            return -1
        work_charge(t, c, began)
        began = t.work
        if c.life == LIFE_DOOMED:
            break
        if result != HANDLED:
            connection_stall(t, c, INPUT_WAITS if result == HANDLE_WAIT else INPUT_STALLED)
            break
        at += 4 + size
    return at


cdef uint8_t* begin(Speaker* s, Connection* c, int kind, int32_t opaque, int32_t code,
                    int64_t room) noexcept nogil:
    """The place behind the head of an answer, with `room` bytes at least; NULL: no memory."""
    cdef uint8_t* at = output_room(s.transport, c, ANSWER + room)
    if at == NULL:
        return NULL
    at[4] = kind
    store_i32(at + 5, opaque)
    store_i32(at + 9, code)
    return at + ANSWER


cdef void finish(Speaker* s, Connection* c, uint8_t* begun, const uint8_t* end) noexcept nogil:
    """begun: what `begin` gave."""
    store_i32(begun - ANSWER, <int32_t>(end - begun) + ANSWER - 4)
    output_used(s.transport, c, end - begun + ANSWER)


cdef void say(void* self, Connection* c, const Asker* asker, int32_t code,
              const char* remark) noexcept nogil:
    cdef Speaker* s = <Speaker*>self
    cdef int64_t length = <int64_t>strlen(remark) if remark != NULL else 0
    cdef uint8_t* at = begin(s, c, SAID, asker.opaque, code, length)
    if at == NULL:
        return
    if length > 0:
        memcpy(at, remark, length)
    finish(s, c, at, at + length)


cdef void say_sent(void* self, Connection* c, const SendAnswer* answer) noexcept nogil:
    cdef Speaker* s = <Speaker*>self
    cdef uint8_t* at
    if not answer.stored:
        say(self, c, &answer.asker, answer.code, answer.remark)
        return
    at = begin(s, c, SEND, answer.asker.opaque, answer.code, SENT_SIZE)
    if at == NULL:
        return
    store_i32(at, answer.queue_id)
    store_i64(at + 4, answer.queue_offset)
    store_i64(at + 12, answer.log_positions[0])
    finish(s, c, at, at + SENT_SIZE)


cdef void say_pulled(void* self, Connection* c, const PullAnswer* answer) noexcept nogil:
    cdef Speaker* s = <Speaker*>self
    cdef uint8_t* start = begin(s, c, PULL, answer.asker.opaque, answer.code,
                                RANGE_SIZE + answer.bytes)
    cdef uint8_t* at
    cdef int32_t i
    if start == NULL:
        return
    at = start + RANGE_SIZE
    store_i64(start, answer.next_offset)
    store_i64(start + 8, answer.min_offset)
    store_i64(start + 16, answer.max_offset)
    for i in range(answer.message_count):
        memcpy(at, answer.records[i], answer.sizes[i])
        at += answer.sizes[i]
    finish(s, c, start, at)


cdef int64_t fields_room(const SignedFields* fields) noexcept nogil:
    cdef int64_t room = 4
    cdef int32_t i
    for i in range(fields.count):
        room += 1 + fields.fields[i].name.length + 4 + max(fields.fields[i].value.length, 0)
    return room


cdef uint8_t* put_text(uint8_t* at, const Text* text) noexcept nogil:
    """An i32 and the text without escapes, with which it may be shorter."""
    cdef int32_t length = text_copy(text, at + 4, text.length) if text.length > 0 else 0
    store_i32(at, max(length, 0))
    return at + 4 + max(length, 0)


cdef void say_frame(void* self, Connection* c, const uint8_t* frame, int64_t length) noexcept nogil:
    cdef Speaker* s = <Speaker*>self
    cdef Said said
    cdef uint8_t* start
    cdef uint8_t* at
    cdef int64_t room
    cdef int32_t i
    if not said_read(frame, length, &said) or said.fields.more:
        connection_close(s.transport, c, CLOSE_ASKED, 0)
        return
    room = 4 + max(said.remark.length, 0) + fields_room(&said.fields) + said.body_length
    start = begin(s, c, QUESTION if said.header.flag & RESPONSE_BIT else WORD, said.header.opaque,
                  said.header.code, room)
    if start == NULL:
        return
    at = put_text(start, &said.remark)
    store_i32(at, said.fields.count)
    at += 4
    for i in range(said.fields.count):
        at[0] = <uint8_t>said.fields.fields[i].name.length
        memcpy(at + 1, said.fields.fields[i].name.start, at[0])
        at = put_text(at + 1 + at[0], &said.fields.fields[i].value)
    memcpy(at, said.body, said.body_length)
    finish(s, c, start, at + said.body_length)


cdef class BinaryFront(ServingLoop):
    """A serving loop that has listeners for this front beside those of RocketMQ's."""
    cdef Speaker speaker

    def listen(self, listener) -> None:
        """Whoever connects to that socket speaks this front's frames."""
        self.speaker = Speaker(transport=&self.s.transport, handler=&self.s.handler)
        self.s.fronts[KIND_OTHER] = Front(self=&self.speaker, bytes_came=bytes_came,
                                          say_sent=say_sent, say_pulled=say_pulled, say=say,
                                          say_frame=say_frame, closing=NULL, turn_ends=NULL,
                                          waits=NULL)
        if not transport_listen(&self.s.transport, listener.fileno(), KIND_OTHER):
            raise OSError("epoll")
        self.listeners.append((listener, False))

    def read_ahead(self, bytes path) -> None:
        """Asks the thread for a file: a named pipe stops it until the pipe is opened (cold J2)."""
        if cold_ask(self.s.reader.cold_reader, path, -1, 0, 1) == 0:
            raise OSError("too many reads wait")

    @property
    def memory_bytes(self) -> int:
        """The memory of all connections (memory N11)."""
        return self.s.transport.memory_used

    @property
    def turns(self) -> int:
        """That were begun."""
        return self.s.transport.turn
