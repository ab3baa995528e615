"""Handshakes one after the other, and TLS connections that are read again."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from mqcore.net.transport.close_reasons cimport CLOSE_PEER, CLOSE_TLS_SLOW
from mqcore.net.transport.connections cimport (
    connection_close,
    connection_hang_up,
    connection_watch,
)
from mqcore.net.transport.input cimport read_some
from mqcore.net.transport.slots cimport slots_take
from mqcore.net.transport.tls cimport SHAKE_FAILED, SHAKE_LATER, SHAKE_WORK, tls_shake
from mqcore.net.transport.transport cimport (
    INPUT_OPEN,
    LIFE_OPEN,
    Connection,
    connection_find,
    takes_output,
)


cdef bint handshakes_wait(Transport* t) noexcept nogil:
    return t.tls.line.count > 0 or t.tls.again.count > 0


cdef void read_on(Transport* t, Connection* c) noexcept nogil:
    cdef uint64_t id = c.id
    if c.life == LIFE_OPEN and c.input_state == INPUT_OPEN and not c.late and takes_output(t, c):
        read_some(t, c)
        c = connection_find(t, id)
        if c != NULL:
            connection_watch(t, c)


cdef void take_step(Transport* t, Connection* c) noexcept nogil:
    cdef int done
    c.tls.in_line = False
    if c.life != LIFE_OPEN:
        return
    done = tls_shake(t, c)
    if done == SHAKE_FAILED:
        connection_close(t, c, c.wire_reason, c.wire_detail)
    elif c.tls.hung_up and done == SHAKE_LATER:
        connection_close(t, c, CLOSE_PEER, 0)
    elif c.tls.hung_up:
        connection_hang_up(t, c)
    elif done == SHAKE_LATER:
        connection_watch(t, c)
    else:
        read_on(t, c)                  # the first requests may have come with its end


cdef void handshakes_go_on(Transport* t) noexcept nogil:
    cdef int64_t end = t.work + SHAKE_WORK
    cdef int32_t again = t.tls.again.count
    cdef int32_t i, slot
    for i in range(again):
        slot = slots_take(&t.tls.again)
        if slot < 0:
            break                      # another one's end took it out of the list
        read_on(t, t.connections[slot])
    while t.tls.line.count > 0 and t.work < end:
        take_step(t, t.connections[slots_take(&t.tls.line)])


cdef void handshakes_look(Transport* t) noexcept nogil:
    cdef Connection* oldest
    while t.tls.shaking.count > 0:
        oldest = t.connections[t.tls.shaking.first]
        if t.steady_ms - oldest.tls.since_ms <= t.tls.shake_ms_max:
            return
        connection_close(t, oldest, CLOSE_TLS_SLOW, t.steady_ms - oldest.tls.since_ms)
