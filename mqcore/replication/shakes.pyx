"""Takes links through their TLS handshakes (shakes.pxd)."""
from libc.stdint cimport int64_t, uint64_t

from mqcore.net.transport.shake_thread cimport (
    shake_thread_ask,
    shake_thread_has_room,
    shake_thread_is_back,
    shake_thread_take,
    shake_thread_wake,
)
from mqcore.net.transport.tls cimport TLS_DISABLED, TLS_ENFORCING
from mqcore.net.transport.tls_pipe cimport TlsPipe, pipe_open
from mqcore.replication.link_end cimport (
    NOTE_IN_THE_CLEAR,
    NOTE_LEFT,
    NOTE_NO_TLS,
    NOTE_TLS_FAILED,
    NOTE_TLS_SLOW,
    link_close,
    place_of,
)
from mqcore.replication.links cimport LINKS_MAX, Link, Master
from mqcore.replication.sockets cimport link_first
from mqcore.replication.wire cimport (
    TLS_FIRST_BYTE,
    WIRE_FAILED,
    WIRE_SHAKEN,
    wire_shaken,
)


cdef bint begin_shaking(Master* m, Link* l) noexcept nogil:
    if m.tls_mode == TLS_DISABLED or m.context == NULL:
        link_close(m, l, NOTE_NO_TLS, 0)
        return False
    l.wire.pipe = pipe_open(m.context, l.fd, <uint64_t>place_of(m, l))
    if l.wire.pipe == NULL:
        link_close(m, l, NOTE_TLS_FAILED, 0)
        return False
    l.shaking = True
    l.certified = False
    l.asked_certificate = m.asks_certificates
    return False                       # the thread reads


cdef bint link_speaks(Master* m, Link* l) noexcept nogil:
    cdef int first
    if l.shaking:
        return False
    if l.speaks:
        return True
    first = link_first(l.fd)
    if first == -1:
        l.readable = False
        return False
    if first < 0:
        link_close(m, l, NOTE_LEFT, 0)
        return False
    l.speaks = True
    if first == TLS_FIRST_BYTE:
        return begin_shaking(m, l)
    if m.tls_mode == TLS_ENFORCING:
        link_close(m, l, NOTE_IN_THE_CLEAR, 0)
        return False
    return True


cdef void step_done(Master* m, Link* l) noexcept nogil:
    cdef int state = wire_shaken(&l.wire)
    l.away = False
    if state == WIRE_FAILED:
        link_close(m, l, NOTE_TLS_FAILED if l.wire.trouble else NOTE_LEFT, l.wire.trouble)
    elif state == WIRE_SHAKEN:
        l.shaking = False
        l.certified = l.asked_certificate
        l.readable = True              # its first words may have come with the handshake's last


cdef void ask_for_steps(Master* m) noexcept nogil:
    """In turn: many handshakes of one peer keep no other one back."""
    cdef Link* l
    cdef int i, place = m.shaken_place
    for i in range(LINKS_MAX):
        if not shake_thread_has_room(m.shaker):
            break
        place = (place + 1) % LINKS_MAX
        l = &m.links[place]
        if not l.shaking or l.away or not l.readable:
            continue
        l.away = True
        l.readable = False
        m.shaken_place = place
        shake_thread_ask(m.shaker, l.wire.pipe)
    shake_thread_wake(m.shaker)


cdef void shakes_turn(Master* m, int64_t now_ms) noexcept nogil:
    cdef TlsPipe* pipe
    cdef int i
    if m.shaker == NULL:
        return
    while True:
        pipe = shake_thread_take(m.shaker)
        if pipe == NULL:
            break
        step_done(m, &m.links[pipe.id])
    for i in range(LINKS_MAX):
        if m.links[i].shaking and now_ms - m.links[i].opened_ms > m.shake_ms_max:
            link_close(m, &m.links[i], NOTE_TLS_SLOW, now_ms - m.links[i].opened_ms)
    ask_for_steps(m)


cdef bint shakes_wait(const Master* m) noexcept nogil:
    return m.shaker != NULL and shake_thread_is_back(m.shaker)
