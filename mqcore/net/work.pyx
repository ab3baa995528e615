"""Slices of work, and the connections that have used up theirs."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from mqcore.net.held cimport settle_due_of
from mqcore.net.input cimport handle_rest
from mqcore.net.requests cimport handle_input
from mqcore.net.server cimport connection_find, connection_watch
from mqcore.net.slots cimport slots_add, slots_take

cdef enum:
    SLICE_WORK = 1_000_000             # one read of ordinary requests takes less
    LATE_SLICE_WORK = 100_000          # of who is late, or was within HEAVY_MS
    TURN_WORK = 2_000_000
    LATE_WORK = 300_000
    LOOK_MOST_WORK = 500_000           # of one look at a queue ...
    LOOK_LEAST_WORK = 50_000           # ... in a long turn
    HEAVY_MS = 1_000


cdef void work_begin_turn(Server* s) noexcept nogil:
    s.turn += 1
    s.turn_began = s.work
    s.slice = 0


cdef int64_t slice_of(Server* s, const Connection* c) noexcept nogil:
    if s.slice:
        return s.slice
    if s.work - s.turn_began > TURN_WORK:
        return 1
    return LATE_SLICE_WORK if s.steady_ms < c.heavy_until_ms else SLICE_WORK


cdef bint work_is_over(Server* s, Connection* c) noexcept nogil:
    return c.turn == s.turn and c.work >= slice_of(s, c)


cdef void work_charge(Server* s, Connection* c, int64_t began) noexcept nogil:
    if c.turn != s.turn:
        c.turn = s.turn
        c.work = 0
    c.work += s.work - began


cdef int64_t work_allowance(Server* s) noexcept nogil:
    cdef int64_t left = TURN_WORK - (s.work - s.turn_began)
    if s.slice:
        return LATE_SLICE_WORK
    return max(<int64_t>LOOK_LEAST_WORK, min(<int64_t>LOOK_MOST_WORK, left))


cdef void work_later(Server* s, Connection* c) noexcept nogil:
    c.heavy_until_ms = s.steady_ms + HEAVY_MS
    if c.late:
        return
    c.late = True
    slots_add(&s.late, c.slot)
    connection_watch(s, c)


cdef void go_on(Server* s, Connection* c) noexcept nogil:
    """One slice for a connection that was late; what is left makes it late again."""
    cdef uint64_t id = c.id
    c.late = False
    c.turn = s.turn
    c.work = 0
    if c.due:
        settle_due_of(s, c)
    if c.yielded and not c.stalled and not c.doomed:
        c.yielded = False
        if c.hung_up:
            handle_rest(s, c)
        else:
            handle_input(s, c, c.input, c.input_length)
        c = connection_find(s, id)
    if c != NULL:
        connection_watch(s, c)


cdef void work_late(Server* s) noexcept nogil:
    cdef int64_t end = s.work + LATE_WORK
    cdef int32_t slot
    s.slice = LATE_SLICE_WORK
    while s.work < end:
        slot = slots_take(&s.late)
        if slot < 0:
            break
        s.work += LOOK_WORK            # so that this ends, whatever they need
        go_on(s, s.connections[slot])
    s.slice = 0
