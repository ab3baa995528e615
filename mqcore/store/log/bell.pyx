"""Bells of the writer's service threads (bell.pxd)."""
from libc.stdint cimport int64_t

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int initial, int flags)
    int EFD_CLOEXEC
    int EFD_NONBLOCK

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd* fds, unsigned long count, int timeout_ms)
    short POLLIN

cdef extern from "<unistd.h>" nogil:
    ssize_t sys_write "write"(int fd, const void* data, size_t size)
    ssize_t sys_read "read"(int fd, void* data, size_t size)
    int sys_close "close"(int fd)

cdef enum:
    BLIND_SLEEP_MS = 20               # without a bell a call is heard so late
    WAIT_MS_MAX = 1 << 30


cdef int bell_make() noexcept nogil:
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)


cdef void bell_close(int bell) noexcept nogil:
    if bell >= 0:
        sys_close(bell)


cdef void bell_ring(int bell) noexcept nogil:
    cdef int64_t one = 1
    if bell >= 0:
        sys_write(bell, &one, sizeof(one))


cdef void bell_wait(int bell, long timeout_ms) noexcept nogil:
    cdef pollfd one
    cdef int64_t rung
    one.fd = bell
    one.events = POLLIN
    one.revents = 0
    if bell < 0:
        poll(NULL, 0, <int>min(max(timeout_ms, 0), <long>BLIND_SLEEP_MS))
    elif poll(&one, 1, <int>min(max(timeout_ms, 0), <long>WAIT_MS_MAX)) > 0:
        sys_read(bell, &rung, sizeof(rung))
