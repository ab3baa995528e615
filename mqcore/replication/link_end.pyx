"""Ends links, and notes why (link_end.pxd)."""
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memcpy

from mqcore.epoll cimport EPOLL_CTL_DEL, epoll_ctl
from mqcore.net.transport.shake_thread cimport shake_thread_leave
from mqcore.replication.bodies cimport pieces_drop
from mqcore.replication.verifier cimport verifier_leave
from mqcore.replication.greet cimport greet_drop
from mqcore.replication.links cimport MASTER_NOTES_MAX, Link, Master
from mqcore.replication.wire cimport wire_close

cdef extern from "<unistd.h>" nogil:
    int close(int fd)


cdef void master_note(Master* m, const Link* l, int kind, int64_t value) noexcept nogil:
    if m.notes_count == MASTER_NOTES_MAX:
        m.notes_lost += 1
        return
    m.notes[m.notes_count].kind = kind
    m.notes[m.notes_count].value = value
    memcpy(m.notes[m.notes_count].peer, l.peer, sizeof(l.peer))
    m.notes_count += 1


cdef void link_drop_wire(Link* l, bint says) noexcept nogil:
    if l.away:                         # the thread closes both (shake_thread TL9)
        shake_thread_leave(l.wire.pipe)
    else:
        wire_close(&l.wire, says)
        close(l.fd)
    l.wire.pipe = NULL
    l.shaking = l.away = False
    l.fd = -1


cdef void link_close(Master* m, Link* l, int kind, int64_t value) noexcept nogil:
    if kind not in (NOTE_LEFT, NOTE_SILENT):
        m.refused += 1
    if l.reported or kind != NOTE_LEFT:
        master_note(m, l, kind, value)
    greet_drop(&l.greet)
    if l.checking:
        verifier_leave(m.verifier, place_of(m, l))
    l.checking = False
    pieces_drop(m.verifier, l, INT64_MAX)
    if l.away:
        epoll_ctl(m.epoll, EPOLL_CTL_DEL, l.fd, NULL)
    link_drop_wire(l, kind != NOTE_TLS_FAILED)
    if l.file >= 0:
        close(l.file)
    l.file = -1
    l.reported = False
