"""Reads and sends by a plain socket, or leaves it to TLS."""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.transport.close_reasons cimport CLOSE_PLAIN_REFUSED
from mqcore.net.transport.connections cimport connection_watch
from mqcore.net.transport.slots cimport slots_remove
from mqcore.net.transport.tls cimport TLS_ENFORCING, tls_begin, tls_line, tls_read, tls_send
from mqcore.net.transport.transport cimport (
    WIRE_FIRST,
    WIRE_GONE,
    WIRE_LATER,
    WIRE_PLAIN,
    WIRE_SHAKES,
    WIRE_TLS,
)

cdef extern from "<unistd.h>" nogil:
    ssize_t sys_read "read"(int fd, void* data, size_t size)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    ssize_t c_receive "recv"(int fd, void* data, size_t size, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    int MSG_PEEK

cdef enum:
    HANDSHAKE_BYTE = 0x16              # tls TL1


cdef inline int64_t nothing(ssize_t got) noexcept nogil:
    return WIRE_LATER if got < 0 and (errno == EAGAIN or errno == EINTR) else WIRE_GONE


cdef int64_t look_at_first(Transport* t, Connection* c) noexcept nogil:
    """tls TL1. WIRE_GONE: it has to go."""
    cdef uint8_t first
    cdef ssize_t got = c_receive(c.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT)
    if got <= 0:
        return nothing(got)
    slots_remove(&t.silent, c.slot)
    if first == HANDSHAKE_BYTE:
        return 1 if tls_begin(t, c) else WIRE_GONE
    if t.tls.mode == TLS_ENFORCING:
        c.wire_reason = CLOSE_PLAIN_REFUSED
        return WIRE_GONE
    c.wire = WIRE_PLAIN
    return 1


cdef int64_t wire_read(Transport* t, Connection* c, uint8_t* into, int64_t room) noexcept nogil:
    cdef int64_t looked
    cdef ssize_t got
    if c.wire == WIRE_FIRST:
        looked = look_at_first(t, c)
        if looked < 0:
            return looked
    if c.wire == WIRE_TLS:
        return tls_read(t, c, into, room)
    if c.wire == WIRE_SHAKES:
        tls_line(t, c)                                                   # tls TL3
        connection_watch(t, c)
        return WIRE_LATER
    got = sys_read(c.fd, into, room)
    return got if got > 0 else nothing(got)


cdef int64_t wire_send(Transport* t, Connection* c, const uint8_t* data,
                       int64_t length) noexcept nogil:
    cdef ssize_t sent
    if c.wire == WIRE_TLS:
        return tls_send(t, c, data, length)
    if c.wire == WIRE_SHAKES:          # nobody is answered before its handshake is done
        return WIRE_GONE
    while True:
        sent = c_send(c.fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent >= 0:
            return sent
        if errno == EAGAIN:
            return WIRE_LATER
        if errno != EINTR:
            return WIRE_GONE
