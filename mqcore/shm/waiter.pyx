"""Waits for a doorbell."""
from libc.errno cimport errno

from mqcore.epoll cimport (
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLLET,
    EPOLLIN,
    epoll_create1,
    epoll_ctl,
    epoll_event,
    epoll_wait,
)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)


cdef int waiter_open(Waiter* waiter, int bell) noexcept nogil:
    cdef epoll_event event
    waiter.epoll = epoll_create1(EPOLL_CLOEXEC)
    if waiter.epoll < 0:
        return errno
    event.events = EPOLLIN | EPOLLET
    event.data.fd = bell
    if epoll_ctl(waiter.epoll, EPOLL_CTL_ADD, bell, &event) != 0:
        return errno
    return 0


cdef void waiter_sleep(Waiter* waiter, int timeout_ms) noexcept nogil:
    cdef epoll_event event
    epoll_wait(waiter.epoll, &event, 1, timeout_ms if timeout_ms > 0 else 0)


cdef void waiter_close(Waiter* waiter) noexcept nogil:
    close(waiter.epoll)
