"""Handshakes one after the other, and TLS connections that are read again."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from mqcore.net.transport.close_reasons cimport CLOSE_TLS_SLOW
from mqcore.net.transport.connections cimport (
    connection_close,
    connection_hang_up,
    connection_watch,
)
from mqcore.net.transport.input cimport read_some
from mqcore.net.transport.shake_thread cimport (
    shake_thread_ask,
    shake_thread_has_room,
    shake_thread_is_back,
    shake_thread_take,
    shake_thread_wake,
)
from mqcore.net.transport.slots cimport slots_take
from mqcore.net.transport.tls cimport (
    AGAIN_WORK,
    SHAKE_FAILED,
    SHAKE_LATER,
    tls_line,
    tls_next,
    tls_shaken,
)
from mqcore.net.transport.tls_pipe cimport TlsPipe
from mqcore.net.transport.transport cimport (
    INPUT_OPEN,
    LIFE_OPEN,
    Connection,
    connection_find,
    takes_output,
)


cdef enum:
    SHAKEN_WORK = 50_000               # of steps that are done, in a turn


cdef bint handshakes_wait(Transport* t) noexcept nogil:
    return t.tls.again.count > 0 or (
        t.tls.thread != NULL and (
            shake_thread_is_back(t.tls.thread)
            or (t.tls.turns.count > 0 and shake_thread_has_room(t.tls.thread))))


cdef void read_on(Transport* t, Connection* c) noexcept nogil:
    cdef uint64_t id = c.id
    if c.life == LIFE_OPEN and c.input_state == INPUT_OPEN and not c.deferred and takes_output(t, c):
        read_some(t, c)
        c = connection_find(t, id)
        if c != NULL:
            connection_watch(t, c)


cdef void take_back(Transport* t, Connection* c) noexcept nogil:
    """A step of its handshake is done."""
    cdef int done
    c.tls.in_line = c.tls.away = False
    if c.life != LIFE_OPEN:
        return
    done = tls_shaken(t, c)
    if done == SHAKE_FAILED:
        connection_close(t, c, c.wire_reason, c.wire_detail)
    elif c.tls.hung_up and done == SHAKE_LATER:
        tls_line(t, c)                 # more of it came before its end, or the next step finds that
    elif c.tls.hung_up:
        connection_hang_up(t, c)
    elif done == SHAKE_LATER:
        connection_watch(t, c)
    else:
        read_on(t, c)                  # the first requests may have come with its end


cdef void ask(Transport* t, Connection* c) noexcept nogil:
    if c.life != LIFE_OPEN:
        c.tls.in_line = False
        return
    c.tls.away = True
    shake_thread_ask(t.tls.thread, c.tls.pipe)


cdef void handshakes_go_on(Transport* t) noexcept nogil:
    cdef int64_t end = t.work + AGAIN_WORK
    cdef int32_t again = t.tls.again.count
    cdef int32_t i, slot
    for i in range(again):
        slot = slots_take(&t.tls.again)
        if slot < 0:
            return                     # another one's end took it out of the list
        read_on(t, t.connections[slot])
        if t.work >= end:                                                # tls TL8
            return


cdef void handshakes_turn(Transport* t) noexcept nogil:
    cdef int64_t end = t.work + SHAKEN_WORK
    cdef TlsPipe* pipe
    cdef Connection* c
    if t.tls.thread == NULL:
        return
    while t.work < end:                # the rest in the next turn, which does not sleep
        pipe = shake_thread_take(t.tls.thread)
        if pipe == NULL:
            break
        take_back(t, connection_find(t, pipe.id))
    if t.tls.turns.count == 0:
        return
    while shake_thread_has_room(t.tls.thread):
        c = tls_next(t)
        if c == NULL:
            break
        ask(t, c)
    shake_thread_wake(t.tls.thread)


cdef void handshakes_look(Transport* t) noexcept nogil:
    cdef Connection* oldest
    while t.tls.shaking.count > 0:
        oldest = t.connections[t.tls.shaking.first]
        if t.steady_ms - oldest.tls.since_ms <= t.tls.shake_ms_max:
            return
        connection_close(t, oldest, CLOSE_TLS_SLOW, t.steady_ms - oldest.tls.since_ms)
