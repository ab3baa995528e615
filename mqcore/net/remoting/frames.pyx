"""Cuts a connection's bytes into frames (remoting.md 1.1, 2.4)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    FRAME_CODEC_SHIFT,
    FRAME_HEADER_LENGTH_MASK,
    FRAME_HEADER_WORD,
    FRAME_LENGTH_MAX,
    FRAME_LENGTH_SIZE,
)
from mqcore.net.requests cimport (
    HANDLED,
    HANDLE_CLOSE,
    HANDLE_FORWARD,
    HANDLE_STALL,
    HANDLE_WAIT,
)
from mqcore.net.transport.connections cimport connection_close, connection_stall
from mqcore.net.transport.transport cimport (
    FRONT_WORDS,
    INPUT_STALLED,
    INPUT_WAITS,
    LIFE_DOOMED,
    LIFE_HUNG_UP,
    connection_find,
)
from mqcore.net.transport.work cimport frame_may_begin, work_charge
from mqcore.wire.codes cimport REQUEST_END_TRANSACTION, REQUEST_UPDATE_CONSUMER_OFFSET
from mqcore.wire.header cimport HEADER_BROKEN, HEADER_UNUSUAL, header_read_all

assert sizeof(AccessShare) <= FRONT_WORDS * sizeof(uint64_t)


cdef inline bint counts_without_answer(const Header* header) noexcept nogil:
    """Whether it is for more than an answer; not all clients mark what they send one-way."""
    return (header.flag & ONEWAY_BIT != 0 or header.code == REQUEST_UPDATE_CONSUMER_OFFSET
            or header.code == REQUEST_END_TRANSACTION)


cdef inline int admit(Remoting* r, Connection* c, Request* request) noexcept nogil:
    """
    The one door to whatever serves: each request passes here, once, before anything is done for it.
    Who may ask for what is decided here (access AR3). The coordinator checks the access of
    `unusual` headers, which this parser cannot read. Requests that it gives back are not checked again.
    """
    cdef uint64_t id = c.id
    cdef int result
    request.passed = r.fields == NULL
    request.account = NULL
    if r.fields != NULL:
        if r.holds_back(r.top, c):
            return HANDLE_WAIT
        result = r.check(r.guard, c, request)
        if result == HANDLED and connection_find(r.transport, id) != NULL:
            r.refused(r.top, c, request)
        if result != HANDLE_FORWARD:
            return result
    return r.serve(r.top, c, request)


cdef int handle_frame(Remoting* r, Connection* c, const uint8_t* frame, int32_t length) noexcept nogil:
    cdef int32_t word = load_i32(frame)
    cdef int32_t header_length = word & FRAME_HEADER_LENGTH_MASK
    cdef int32_t codec = (word >> FRAME_CODEC_SHIFT) & 0xFF
    cdef Request request
    cdef int result
    if codec > 1:
        connection_close(r.transport, c, CLOSE_CODEC, codec)
        return HANDLE_CLOSE
    if header_length > length - FRAME_HEADER_WORD:
        connection_close(r.transport, c, CLOSE_HEADER_LENGTH, header_length)
        return HANDLE_CLOSE
    result = header_read_all(frame + FRAME_HEADER_WORD, header_length, codec == 1, &request.header,
                             r.fields)
    if result == HEADER_BROKEN or header_length == 0:
        connection_close(r.transport, c, CLOSE_HEADER, header_length)
        return HANDLE_CLOSE
    request.unusual = result == HEADER_UNUSUAL or (r.fields != NULL and r.fields.more)
    if c.life == LIFE_HUNG_UP and (request.unusual or not counts_without_answer(&request.header)):
        return HANDLED                                                           # transport N8
    request.frame = frame
    request.length = length
    request.header_length = header_length
    request.body = frame + FRAME_HEADER_WORD + header_length
    request.body_length = length - FRAME_HEADER_WORD - header_length
    return admit(r, c, &request)


cdef int64_t cut_frames(void* remoting, Connection* c, uint8_t* data, int64_t length) noexcept nogil:
    cdef Remoting* r = <Remoting*>remoting
    cdef Transport* t = r.transport
    cdef int64_t at = 0, began = t.work
    cdef int32_t frame_length
    cdef int result
    c.input_whole = 0
    while length - at >= FRAME_LENGTH_SIZE:
        frame_length = load_i32(data + at)
        if frame_length < FRAME_HEADER_WORD or frame_length > FRAME_LENGTH_MAX:
            connection_close(t, c, CLOSE_FRAME_LENGTH, frame_length)
            return -1
        if length - at - FRAME_LENGTH_SIZE < frame_length:
            c.input_whole = FRAME_LENGTH_SIZE + <int64_t>frame_length
            break
        if not frame_may_begin(t, c, at == 0):
            break
        t.work += FRAME_WORK + (frame_length >> 2)
        result = handle_frame(r, c, data + at + FRAME_LENGTH_SIZE, frame_length)
        if result == HANDLE_CLOSE:
            return -1
        work_charge(t, c, began)
        began = t.work
        if c.life == LIFE_DOOMED:
            break
        if result == HANDLE_STALL or result == HANDLE_WAIT:
            connection_stall(t, c, INPUT_WAITS if result == HANDLE_WAIT else INPUT_STALLED)
            break
        access_of(c).proved = False
        at += FRAME_LENGTH_SIZE + frame_length
    return at
