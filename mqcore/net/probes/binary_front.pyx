"""
A small front beside RocketMQ's: length-prefixed binary frames that send and pull by the same native
functions. It shows what a front has to do; it is for tests, not for clients.

All numbers are big-endian. A request is  i32 length of what follows, u8 kind, i32 opaque, then

    SEND 1    u8 topic length, topic, i32 queue (-1: any), i64 born time, u16 properties length,
              properties as a record has them, body to the end
    PULL 2    u8 group length, group, u8 topic length, topic, i32 queue, i64 offset, i32 count,
              i32 ms to wait

An answer is  i32 length of what follows, u8 kind, i32 opaque, i32 code, and if there is more to say

    SEND      i32 queue, i64 queue offset, i64 log position
    PULL      i64 next offset, i64 smallest, i64 largest offset, records
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from mqcore.endian cimport load_i32, load_i64, load_u16, store_i32, store_i64
from mqcore.net.requests cimport (
    HANDLED,
    HANDLE_FORWARD,
    HANDLE_WAIT,
    TOPIC_BYTES_MAX,
    Asker,
    Front,
    PullAnswer,
    PullRequest,
    SendAnswer,
    SendRequest,
)
from mqcore.net.serving.loop cimport KIND_OTHER, ServingLoop
from mqcore.net.serving.peer cimport peer_of
from mqcore.net.serving.pull cimport Pulls, serve_pull
from mqcore.net.serving.send cimport Sends, serve_send
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
from mqcore.wire.codes cimport RESPONSE_SYSTEM_ERROR

cdef enum:
    SEND = 1
    PULL = 2
    HEAD = 5                           # kind and opaque
    FRAME_MAX = 1 << 20
    FRAME_WORK = 500
    BROKEN = -1

cdef struct Speaker:
    Transport* transport
    Sends* sends
    Pulls* pulls

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


cdef int one_send(Speaker* s, Connection* c, Reader* r, Asker asker) noexcept nogil:
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
    return serve_send(s.sends, c, &send, False)


cdef int one_pull(Speaker* s, Connection* c, Reader* r, Asker asker) noexcept nogil:
    cdef PullRequest pull
    cdef int32_t wait_ms
    pull.asker = asker
    pull.asker.binary = True           # an answer says which of the two it is of
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
    return serve_pull(s.pulls, c, &pull, False)


cdef int one_frame(Speaker* s, Connection* c, const uint8_t* frame, int32_t length) noexcept nogil:
    cdef Reader r
    cdef Asker asker
    cdef int result = BROKEN
    asker.opaque = load_i32(frame + 1)
    asker.binary = asker.oneway = False
    r.at = frame + HEAD
    r.end = frame + length
    if frame[0] == SEND:
        result = one_send(s, c, &r, asker)
    elif frame[0] == PULL:
        result = one_pull(s, c, &r, asker)
        asker.binary = True
    if result == HANDLE_FORWARD:       # whom a front asks then is its own business; this one nobody
        say(s, c, &asker, RESPONSE_SYSTEM_ERROR, NULL)
        return HANDLED
    return result


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
        work_charge(t, c, began)
        began = t.work
        if c.life == LIFE_DOOMED:
            break
        if result != HANDLED:
            connection_stall(t, c, INPUT_WAITS if result == HANDLE_WAIT else INPUT_STALLED)
            break
        at += 4 + size
    return at


cdef uint8_t* begin(Speaker* s, Connection* c, const Asker* asker, int32_t code,
                    int64_t room) noexcept nogil:
    """The place behind the head of an answer with `room` bytes more; NULL: no memory."""
    cdef uint8_t* at = output_room(s.transport, c, 4 + HEAD + 4 + room)
    if at == NULL:
        return NULL
    store_i32(at, <int32_t>(HEAD + 4 + room))
    at[4] = PULL if asker.binary else SEND
    store_i32(at + 5, asker.opaque)
    store_i32(at + 9, code)
    output_used(s.transport, c, 4 + HEAD + 4 + room)
    return at + 13


cdef void say(void* self, Connection* c, const Asker* asker, int32_t code,
              const char* remark) noexcept nogil:
    begin(<Speaker*>self, c, asker, code, 0)


cdef void say_sent(void* self, Connection* c, const SendAnswer* answer) noexcept nogil:
    cdef uint8_t* at = begin(<Speaker*>self, c, &answer.asker, answer.code,
                             20 if answer.stored else 0)
    if at != NULL and answer.stored:
        store_i32(at, answer.queue_id)
        store_i64(at + 4, answer.queue_offset)
        store_i64(at + 12, answer.log_positions[0])


cdef void say_pulled(void* self, Connection* c, const PullAnswer* answer) noexcept nogil:
    cdef uint8_t* at = begin(<Speaker*>self, c, &answer.asker, answer.code, 24 + answer.bytes)
    cdef int32_t i
    if at == NULL:
        return
    store_i64(at, answer.next_offset)
    store_i64(at + 8, answer.min_offset)
    store_i64(at + 16, answer.max_offset)
    at += 24
    for i in range(answer.message_count):
        memcpy(at, answer.records[i], answer.sizes[i])
        at += answer.sizes[i]


cdef class BinaryFront(ServingLoop):
    """A serving loop that has listeners for this front beside those of RocketMQ's."""
    cdef Speaker speaker

    def listen(self, listener) -> None:
        """Whoever connects to that socket speaks this front's frames."""
        self.speaker = Speaker(transport=&self.s.transport, sends=&self.s.sends,
                               pulls=&self.s.pulls)
        self.s.fronts[KIND_OTHER] = Front(self=&self.speaker, bytes_came=bytes_came,
                                          say_sent=say_sent, say_pulled=say_pulled, say=say)
        if not transport_listen(&self.s.transport, listener.fileno(), KIND_OTHER):
            raise OSError("epoll")
        self.listeners.append((listener, False))
