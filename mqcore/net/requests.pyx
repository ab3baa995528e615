"""Cuts a connection's bytes into frames and hands each to who serves it (remoting.md 1.1, 2.4)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from mqcore.endian cimport load_i32
from mqcore.layout cimport FRAME_HEADER_WORD, FRAME_LENGTH_MAX, FRAME_LENGTH_SIZE
from mqcore.net.forward cimport forward_frame
from mqcore.net.memory cimport connection_doom, memory_give, memory_take
from mqcore.net.parked cimport PARK_NOT, PARK_REQUEST, PARK_SEND, PARK_UNREAD
from mqcore.net.pull cimport handle_pull
from mqcore.net.reply cimport reply_plain
from mqcore.net.send cimport handle_send
from mqcore.net.server cimport (
    CLOSE_CODEC,
    CLOSE_FRAME_LENGTH,
    CLOSE_HEADER,
    CLOSE_HEADER_LENGTH,
    CLOSE_MEMORY,
    FORWARD_BYTES_MAX,
    HANDLE_CLOSE,
    HANDLE_FORWARD,
    HANDLE_STALL,
    HANDLE_WAIT,
    HANDLED,
    Connection,
    Server,
    connection_close,
    connection_stall,
    connection_watch,
)
from mqcore.net.transaction cimport handle_end_transaction
from mqcore.net.work cimport FRAME_WORK, work_charge, work_is_over, work_later
from mqcore.wire.header cimport (
    CODE_END_TRANSACTION,
    CODE_LITE_PULL,
    CODE_PULL,
    CODE_SEND,
    CODE_SEND_BATCH,
    CODE_SEND_V2,
    HEADER_BROKEN,
    HEADER_READ,
    HEADER_UNUSUAL,
    Header,
    header_read,
)

cdef enum:
    RESPONSE_BIT = 1
    ONEWAY_BIT = 2
    CODE_COMMIT_OFFSET = 15
    CODE_SYSTEM_ERROR = 1
    INPUT_KEEP_BYTES = 16 << 10


cdef inline bint is_send(int32_t code) noexcept nogil:
    return code == CODE_SEND or code == CODE_SEND_V2 or code == CODE_SEND_BATCH


cdef inline bint is_pull(int32_t code) noexcept nogil:
    return code == CODE_PULL or code == CODE_LITE_PULL


cdef inline bint is_native(int32_t code) noexcept nogil:
    return is_send(code) or is_pull(code) or code == CODE_END_TRANSACTION


cdef inline bint counts_without_answer(const Header* header) noexcept nogil:
    """Whether it is for more than an answer; not all clients mark what they send one-way."""
    return (header.flag & ONEWAY_BIT != 0 or header.code == CODE_COMMIT_OFFSET
            or header.code == CODE_END_TRANSACTION)


cdef int handle_natively(Server* s, Connection* c, const Header* header, const uint8_t* body,
                         int32_t body_length, bint settled) noexcept nogil:
    if is_send(header.code):
        return handle_send(s, c, header, body, body_length, settled)
    if is_pull(header.code):
        return handle_pull(s, c, header, settled)
    return handle_end_transaction(s, c, header)


cdef int handle_frame(Server* s, Connection* c, const uint8_t* frame, int32_t length) noexcept nogil:
    cdef int32_t word = load_i32(frame)
    cdef int32_t header_length = word & 0xFFFFFF
    cdef int32_t codec = (word >> 24) & 0xFF
    cdef const uint8_t* body
    cdef int32_t body_length
    cdef Header header
    cdef int result
    if codec > 1:
        connection_close(s, c, CLOSE_CODEC, codec)
        return HANDLE_CLOSE
    if header_length > length - FRAME_HEADER_WORD:
        connection_close(s, c, CLOSE_HEADER_LENGTH, header_length)
        return HANDLE_CLOSE
    result = header_read(frame + FRAME_HEADER_WORD, header_length, codec == 1, &header)
    if result == HEADER_BROKEN or header_length == 0:
        connection_close(s, c, CLOSE_HEADER, header_length)
        return HANDLE_CLOSE
    if c.hung_up and (result == HEADER_UNUSUAL or not counts_without_answer(&header)):
        return HANDLED                                                           # N8
    if result == HEADER_UNUSUAL:
        return forward_frame(s, c, frame, length, header_length, &header, PARK_UNREAD,
                             length > FORWARD_BYTES_MAX)
    if not header.flag & RESPONSE_BIT:
        body = frame + FRAME_HEADER_WORD + header_length
        body_length = length - FRAME_HEADER_WORD - header_length
        if is_native(header.code):
            result = handle_natively(s, c, &header, body, body_length, False)
            if result != HANDLE_FORWARD:
                return result
            return forward_frame(s, c, frame, length, header_length, &header,
                                 PARK_SEND if is_send(header.code) else PARK_REQUEST, True)
    return forward_frame(s, c, frame, length, header_length, &header, PARK_NOT, False)


cdef void redo_request(Server* s, Connection* c, const uint8_t* header, int32_t header_length,
                       bint binary, const uint8_t* body, int32_t body_length) noexcept nogil:
    cdef Header read
    cdef int result = HANDLE_FORWARD
    if header_read(header, header_length, binary, &read) != HEADER_READ:
        return
    if is_native(read.code):
        result = handle_natively(s, c, &read, body, body_length, True)
    if result == HANDLED or read.flag & 2:
        return
    if result == HANDLE_STALL:
        reply_plain(s, c, binary, read.opaque, 2, "[OVERLOAD]the writer is behind, try again later")
    else:
        reply_plain(s, c, binary, read.opaque, CODE_SYSTEM_ERROR,
                    "the request cannot be served: its topic, group or queue changed meanwhile")


cdef bint keep(Server* s, Connection* c, const uint8_t* rest, int64_t length) noexcept nogil:
    """Keep the start of a frame in the connection's own buffer; False: no memory."""
    cdef uint8_t* bigger
    if length == 0:
        c.input_length = 0
        if c.input_capacity > INPUT_KEEP_BYTES:
            free(c.input)
            memory_give(s, c, c.input_capacity)
            c.input = NULL
            c.input_capacity = 0
        return True
    if rest >= c.input and rest < c.input + c.input_capacity:
        if rest != c.input:
            memmove(c.input, rest, length)
        c.input_length = <int32_t>length
        return True
    if length > c.input_capacity:
        if not memory_take(s, c, length - c.input_capacity):
            return False
        bigger = <uint8_t*>realloc(c.input, length)
        if bigger == NULL:
            memory_give(s, c, length - c.input_capacity)
            return False
        c.input = bigger
        c.input_capacity = <int32_t>length
    memcpy(c.input, rest, length)
    c.input_length = <int32_t>length
    return True


cdef int64_t cut_frames(Server* s, Connection* c, uint8_t* data, int64_t length) noexcept nogil:
    """Handle whole frames as far as the rules let it; where it ended, -1: the connection is gone."""
    cdef int64_t at = 0, began = s.work
    cdef int32_t frame_length
    cdef int result
    while length - at >= FRAME_LENGTH_SIZE:
        frame_length = load_i32(data + at)
        if frame_length < FRAME_HEADER_WORD or frame_length > FRAME_LENGTH_MAX:
            connection_close(s, c, CLOSE_FRAME_LENGTH, frame_length)
            return -1
        if length - at - FRAME_LENGTH_SIZE < frame_length:
            break
        if c.output_end - c.output_start >= s.out_high and c.long_place == 0:
            c.held_back = True                                           # N2
            break
        if at > 0 and work_is_over(s, c):                                # N9
            c.yielded = True
            work_later(s, c)
            break
        s.work += FRAME_WORK + (frame_length >> 2)
        result = handle_frame(s, c, data + at + FRAME_LENGTH_SIZE, frame_length)
        if result == HANDLE_CLOSE:
            return -1
        work_charge(s, c, began)
        began = s.work
        if c.doomed:
            break
        if result == HANDLE_STALL or result == HANDLE_WAIT:
            c.waits = result == HANDLE_WAIT
            connection_stall(s, c)
            break
        at += FRAME_LENGTH_SIZE + frame_length
    return at


cdef void handle_input(Server* s, Connection* c, uint8_t* data, int64_t length) noexcept nogil:
    """data: all bytes not handled yet, in the scratch buffer or in the connection's own."""
    cdef uint64_t before = s.handled
    cdef bint began = c.input_length == 0
    cdef int64_t at
    if c.doomed:
        return
    s.handled = c.id
    at = cut_frames(s, c, data, length)
    s.handled = before
    if at < 0:
        return
    if at > 0 or began:
        c.input_since_ms = s.steady_ms
    if not keep(s, c, data + at, length - at) and not c.doomed:
        connection_doom(s, c, CLOSE_MEMORY, length - at)
    if c.held_back:                    # it may have been read because memory was not short (N13)
        connection_watch(s, c)
