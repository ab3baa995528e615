"""Brings bytes from the wire to where frames are cut."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from mqcore.layout cimport FIGURE_BYTES_IN
from mqcore.net.transport.close_reasons cimport CLOSE_MEMORY, CLOSE_PEER
from mqcore.net.transport.connections cimport (
    connection_close,
    connection_wait_for_above,
    connection_watch,
)
from mqcore.net.transport.memory cimport connection_doom, memory_give, memory_take
from mqcore.net.transport.tls cimport CALL_WORK_MIN
from mqcore.net.transport.transport cimport (
    INPUT_HELD_BACK,
    INPUT_OPEN,
    INPUT_STALLED,
    INPUT_WAITS,
    INPUT_YIELDED,
    LIFE_DOOMED,
    LIFE_HUNG_UP,
    READ_BYTES,
    WIRE_GONE,
    WIRE_TLS,
    connection_find,
)
from mqcore.net.transport.wire_end cimport wire_read
from mqcore.net.transport.work cimport work_charge, work_is_over, work_defer, work_left

cdef enum:
    KEPT_COPY_MAX = 16 << 10           # a longer start of a frame stays where it is
    INPUT_KEEP_BYTES = 16 << 10
    TLS_READ_WORK = 500


cdef bint keep_rest(Transport* t, Connection* c, const uint8_t* rest, int64_t length) noexcept nogil:
    """Keep the start of a frame in the connection's own buffer; False: no memory."""
    cdef uint8_t* bigger
    if length == 0:
        c.input_length = 0
        if c.input_capacity > INPUT_KEEP_BYTES:
            free(c.input)
            memory_give(t, c, c.input_capacity)
            c.input = NULL
            c.input_capacity = 0
        return True
    if rest >= c.input and rest < c.input + c.input_capacity:
        if rest != c.input:
            memmove(c.input, rest, length)
        c.input_length = <int32_t>length
        return True
    if length > c.input_capacity:
        if not memory_take(t, c, length - c.input_capacity):
            return False
        bigger = <uint8_t*>realloc(c.input, length)
        if bigger == NULL:
            memory_give(t, c, length - c.input_capacity)
            return False
        c.input = bigger
        c.input_capacity = <int32_t>length
    memcpy(c.input, rest, length)
    c.input_length = <int32_t>length
    return True


cdef void handle_input(Transport* t, Connection* c, uint8_t* data, int64_t length) noexcept nogil:
    """data: all bytes not handled yet, in the scratch buffer or in the connection's own."""
    cdef uint64_t before = t.handled
    cdef bint began = c.input_length == 0
    cdef int64_t at
    if c.life == LIFE_DOOMED:
        return
    c.input_state = INPUT_OPEN
    t.handled = c.id
    at = t.above.bytes_came(t.above.top, c, data, length)
    t.handled = before
    if at < 0:
        return
    c.heard |= at > 0
    if at > 0 or began:
        c.input_since_ms = t.steady_ms
    if not keep_rest(t, c, data + at, length - at) and c.life != LIFE_DOOMED:
        connection_doom(t, c, CLOSE_MEMORY, length - at)
    # it may have been read because memory was not short (memory N13)
    if c.input_state == INPUT_HELD_BACK:
        connection_watch(t, c)


cdef int64_t receive(Transport* t, Connection* c, uint8_t* into, int64_t room) noexcept nogil:
    """One read; 0: nothing came, or the connection is closed now."""
    cdef int64_t began = t.work
    cdef int64_t got
    c.tls.work_max = max(work_left(t, c), <int64_t>CALL_WORK_MIN)        # tls TL8
    got = wire_read(t, c, into, room)
    if c.wire == WIRE_TLS and got != WIRE_GONE:
        t.work += TLS_READ_WORK + (max(got, 0) >> 2)
        work_charge(t, c, began)
        if c.tls.again and work_is_over(t, c):                           # tls TL8
            work_defer(t, c)
    if got > 0:
        c.active_ms = t.steady_ms
        t.slot.figures[FIGURE_BYTES_IN] += got
        return got
    if got == WIRE_GONE:
        if c.owed == 0 or c.begun:
            connection_close(t, c, c.wire_reason, c.wire_detail)
        else:
            connection_wait_for_above(t, c)
    return 0


cdef int64_t read_more(Transport* t, Connection* c) noexcept nogil:
    """A frame larger than one read: it grows in the connection's own buffer (transport N1)."""
    cdef int64_t capacity = c.input_capacity
    cdef int64_t wanted, got
    cdef uint8_t* bigger
    if capacity - c.input_length < READ_BYTES and capacity < c.input_whole:
        # with its end comes little of what follows
        wanted = min(max(2 * capacity, <int64_t>c.input_length + READ_BYTES), c.input_whole)
        if not memory_take(t, c, wanted - capacity):
            return 0
        bigger = <uint8_t*>realloc(c.input, wanted)
        if bigger == NULL:
            memory_give(t, c, wanted - capacity)
            connection_close(t, c, CLOSE_MEMORY, wanted)
            return 0
        c.input = bigger
        c.input_capacity = <int32_t>wanted
    got = receive(t, c, c.input + c.input_length,
                  min(<int64_t>READ_BYTES, <int64_t>c.input_capacity - c.input_length))
    if got > 0:
        c.input_length += <int32_t>got
        handle_input(t, c, c.input, c.input_length)
    return got


cdef int64_t read_some(Transport* t, Connection* c) noexcept nogil:
    cdef int64_t got
    cdef int64_t kept = c.input_length
    if c.life == LIFE_DOOMED:
        return 0
    if kept > KEPT_COPY_MAX:
        return read_more(t, c)
    if kept > 0:
        memcpy(t.scratch, c.input, kept)
    got = receive(t, c, t.scratch + kept, READ_BYTES)
    if got > 0:
        handle_input(t, c, t.scratch, kept + got)
    return got


cdef Connection* find_resumable(Transport* t, uint64_t id) noexcept nogil:
    """The connection, if its peer is gone and more of its input can be handled now; else NULL."""
    cdef Connection* c = connection_find(t, id)
    if c == NULL or c.life == LIFE_DOOMED or c.input_state == INPUT_STALLED or (
            c.input_state == INPUT_WAITS):
        return NULL
    if c.deferred:                         # with its slice, whatever it waits for
        c.input_state = INPUT_YIELDED
        return NULL
    c.output_start = c.output_end = 0            # nobody gets it
    return c


cdef void handle_rest(Transport* t, Connection* c) noexcept nogil:
    """
    transport N8: all that a peer sent before it went, then its end; a full ring or work N9 stops it
    for now.
    """
    cdef uint64_t id = c.id
    cdef int64_t got
    while True:
        handle_input(t, c, c.input, c.input_length)
        c = find_resumable(t, id)
        if c == NULL:
            return
        if c.input_state == INPUT_HELD_BACK:
            continue
        got = read_some(t, c)
        c = find_resumable(t, id)
        if c == NULL:
            return
        if got <= 0 and not c.tls.again:         # tls TL8: there may be more
            connection_close(t, c, CLOSE_PEER, 0)
            return


cdef void handle_again(Transport* t, Connection* c) noexcept nogil:
    if c.life == LIFE_HUNG_UP:
        handle_rest(t, c)
    else:
        handle_input(t, c, c.input, c.input_length)
