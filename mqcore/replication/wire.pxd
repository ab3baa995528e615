# A link's bytes, in the clear or by TLS: what both ends of a followed log read and write.
#
#   HW1  The first byte of a connection says what it speaks: 0x16 begins a TLS handshake, and no position of a
#        log begins with it. The master's mode is that of tls TL1.
#   HW2  OpenSSL wants the bytes of a record again that the socket has not taken. They are kept
#        here until then, and count as written.
#   HW3  At a master the steps of handshakes are taken by a thread (shake_thread.pxd). While it has a link's pipe
#        nothing else is done with the link. A handshake that takes longer than `shake_ms_max` ends.
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.transport.tls_pipe cimport TlsPipe
from mqcore.replication.sockets cimport link_read, link_send_file, link_write
from mqcore.tls.library cimport TlsLibrary

cdef enum:
    WIRE_RECORD_BYTES = 16 << 10
    TLS_FIRST_BYTE = 0x16

cdef enum WireShake:
    WIRE_SHAKEN = 0
    WIRE_WAITS = 1
    WIRE_FAILED = 2

cdef struct Wire:
    TlsPipe* pipe                     # NULL: in the clear
    uint8_t* record                   # HW2 ...
    int record_size
    int64_t trouble                   # why TLS failed (tls_context.trouble), 0: it has not

cdef void wire_use(const TlsLibrary* library) noexcept nogil      # before the first pipe
# After a step of the handshake; WIRE_FAILED: `trouble` says why, 0: the other end closed.
cdef WireShake wire_shaken(Wire* w) noexcept nogil
# As link_read, link_write, link_send_file.
cdef int64_t wire_read_tls(Wire* w, void* into, int64_t size) noexcept nogil
cdef int64_t wire_write_tls(Wire* w, const void* data, int64_t size) noexcept nogil
cdef int64_t wire_send_file_tls(Wire* w, int file, int64_t offset, int64_t size) noexcept nogil
# What HW2 keeps: 1 nothing now, -1 the socket has no room, -2 the link is broken.
cdef int64_t wire_flush(Wire* w) noexcept nogil
# Before its socket is closed; `says`: the other end hears that this is the end.
cdef void wire_close(Wire* w, bint says) noexcept nogil


cdef inline int64_t wire_read(int fd, Wire* w, void* into, int64_t size) noexcept nogil:
    return link_read(fd, into, size) if w.pipe == NULL else wire_read_tls(w, into, size)


cdef inline int64_t wire_write(int fd, Wire* w, const void* data, int64_t size, bint more) noexcept nogil:
    return link_write(fd, data, size, more) if w.pipe == NULL else wire_write_tls(w, data, size)


cdef inline int64_t wire_send_file(int fd, Wire* w, int file, int64_t offset,
                                   int64_t size) noexcept nogil:
    return (link_send_file(fd, file, offset, size) if w.pipe == NULL
            else wire_send_file_tls(w, file, offset, size))
