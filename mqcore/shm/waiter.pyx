"""Waits for a doorbell."""
from libc.errno cimport errno

cdef extern from "<sys/epoll.h>" nogil:
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms)
    int EPOLL_CLOEXEC
    int EPOLL_CTL_ADD
    unsigned int EPOLLIN
    unsigned int EPOLLET
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data

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
