"""Slices of work, and the connections that have used up theirs."""
from libc.stdint cimport int64_t

from mqcore.net.transport.connections cimport connection_watch
from mqcore.net.transport.slots cimport slots_add
from mqcore.net.transport.transport cimport INPUT_HELD_BACK, INPUT_YIELDED, takes_output

cdef enum:
    SLICE_WORK = 1_000_000             # one read of ordinary requests takes less
    HEAVY_MS = 1_000


cdef void work_begin_turn(Transport* t) noexcept nogil:
    t.turn += 1
    t.turn_began = t.work
    t.slice = 0


cdef int64_t slice_of(Transport* t, const Connection* c) noexcept nogil:
    if t.slice:
        return t.slice
    if t.work - t.turn_began > TURN_WORK:
        return 1
    return DEFERRED_SLICE_WORK if t.steady_ms < c.heavy_until_ms else SLICE_WORK


cdef bint work_is_over(Transport* t, Connection* c) noexcept nogil:
    return c.turn == t.turn and c.work >= slice_of(t, c)


cdef int64_t work_left(Transport* t, const Connection* c) noexcept nogil:
    return slice_of(t, c) - (c.work if c.turn == t.turn else 0)


cdef void work_charge(Transport* t, Connection* c, int64_t began) noexcept nogil:
    if c.turn != t.turn:
        c.turn = t.turn
        c.work = 0
    c.work += t.work - began


cdef void work_defer(Transport* t, Connection* c) noexcept nogil:
    c.heavy_until_ms = t.steady_ms + HEAVY_MS
    if c.deferred:
        return
    c.deferred = True
    slots_add(&t.deferred, c.slot)
    connection_watch(t, c)


cdef bint frame_may_begin(Transport* t, Connection* c, bint first) noexcept nogil:
    if not takes_output(t, c) and not c.begun:
        c.input_state = INPUT_HELD_BACK                                  # transport N2
        return False
    if not first and work_is_over(t, c):                                 # N9
        c.input_state = INPUT_YIELDED
        work_defer(t, c)
        return False
    return True
