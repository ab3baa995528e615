"""Buffers of answers, and their way out."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from mqcore.invariants cimport invariant
from mqcore.layout cimport FIGURE_BYTES_OUT
from mqcore.net.transport.close_reasons cimport CLOSE_MEMORY
from mqcore.net.transport.connections cimport connection_hang_up, connection_watch
from mqcore.net.transport.input cimport handle_again
from mqcore.net.transport.memory cimport connection_doom, memory_give, memory_take
from mqcore.net.transport.slots cimport slots_add, slots_take
from mqcore.net.transport.transport cimport (
    INPUT_HELD_BACK,
    INPUT_YIELDED,
    KEEP_BYTES,
    LIFE_OPEN,
    WIRE_GONE,
    WIRE_TLS,
    connection_find,
    takes_output,
    unread,
)
from mqcore.net.transport.wire_end cimport wire_send
from mqcore.net.transport.work cimport work_charge, work_is_over, work_defer


cdef inline int64_t grown(int64_t capacity, int64_t needed) noexcept nogil:
    capacity = max(capacity * 2, 4096)
    while capacity < min(needed, <int64_t>KEEP_BYTES):
        capacity *= 2
    if capacity < needed:              # no more than is needed: it counts (memory N11)
        capacity = (needed + KEEP_BYTES - 1) // KEEP_BYTES * KEEP_BYTES
    return capacity


cdef uint8_t* output_room(Transport* t, Connection* c, int64_t size) noexcept nogil:
    cdef int64_t capacity = c.output_capacity
    cdef uint8_t* bigger
    if c.output_end + size > capacity and c.output_start > 0:
        memmove(c.output, c.output + c.output_start, c.output_end - c.output_start)
        c.output_end -= c.output_start
        c.output_start = 0
    if c.output_end + size > capacity:
        capacity = grown(capacity, c.output_end + size)
        if not memory_take(t, c, capacity - c.output_capacity):
            return NULL
        bigger = <uint8_t*>realloc(c.output, capacity)
        if bigger == NULL:             # what it asked for would never be answered
            memory_give(t, c, capacity - c.output_capacity)
            connection_doom(t, c, CLOSE_MEMORY, capacity)
            return NULL
        c.output = bigger
        c.output_capacity = capacity
    return c.output + c.output_end


cdef void output_used(Transport* t, Connection* c, int64_t size) noexcept nogil:
    if c.output_start == c.output_end:
        c.output_since_ms = t.steady_ms
    invariant("output's end", c.output_end + size <= c.output_capacity)
    c.output_end += size
    if not c.dirty:
        c.dirty = True
        slots_add(&t.dirty, c.slot)


cdef bint send_some(Transport* t, Connection* c) noexcept nogil:
    """As much as the wire takes; False: the peer is gone."""
    cdef int64_t waited = unread(c)
    cdef int64_t began = t.work
    cdef int64_t sent
    while c.output_start < c.output_end:
        sent = wire_send(t, c, c.output + c.output_start, unread(c))
        if sent == WIRE_GONE:
            return False
        if sent < 0:
            break
        c.output_start += sent
        c.sent += sent
        t.slot.figures[FIGURE_BYTES_OUT] += sent
    if c.output_start == c.output_end:
        c.output_start = 0
        c.output_end = 0
        if c.output_capacity > KEEP_BYTES:
            free(c.output)
            memory_give(t, c, c.output_capacity)
            c.output = NULL
            c.output_capacity = 0
    elif unread(c) < waited:           # as much younger as has gone (memory N12)
        c.output_since_ms = t.steady_ms - (t.steady_ms - c.output_since_ms) * unread(c) // waited
    t.work += (waited - unread(c)) >> (2 if c.wire == WIRE_TLS else 3)
    work_charge(t, c, began)
    return True


cdef void output_flush(Transport* t, Connection* c) noexcept nogil:
    cdef uint64_t id
    if c.life != LIFE_OPEN:
        c.output_start = c.output_end = 0
        return
    if not send_some(t, c):
        connection_hang_up(t, c)
        return
    if c.postponed and takes_output(t, c):
        work_defer(t, c)
    if c.input_state == INPUT_HELD_BACK and takes_output(t, c):
        if work_is_over(t, c):         # work N9
            c.input_state = INPUT_YIELDED
            work_defer(t, c)
        else:
            id = c.id
            handle_again(t, c)
            c = connection_find(t, id)
            if c == NULL:
                return
    if unread(c) < c.tell_below:
        c.tell_below = 0
        t.above.drained(t.above.top, c)
    connection_watch(t, c)


cdef void output_flush_all(Transport* t) noexcept nogil:
    cdef Connection* c
    cdef int32_t slot = slots_take(&t.dirty)
    while slot >= 0:
        c = t.connections[slot]
        c.dirty = False
        output_flush(t, c)
        slot = slots_take(&t.dirty)
