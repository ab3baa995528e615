"""Reads and sends by a plain socket."""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t

cdef extern from "<unistd.h>" nogil:
    ssize_t sys_read "read"(int fd, void* data, size_t size)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT


cdef int64_t wire_read(Connection* c, uint8_t* into, int64_t room) noexcept nogil:
    cdef ssize_t got = sys_read(c.fd, into, room)
    if got > 0:
        return got
    return WIRE_LATER if got < 0 and (errno == EAGAIN or errno == EINTR) else WIRE_GONE


cdef int64_t wire_send(Connection* c, const uint8_t* data, int64_t length) noexcept nogil:
    cdef ssize_t sent
    while True:
        sent = c_send(c.fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent >= 0:
            return sent
        if errno == EAGAIN:
            return WIRE_LATER
        if errno != EINTR:
            return WIRE_GONE
