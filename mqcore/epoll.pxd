# Linux's epoll, for the loops that sleep in it.
from libc.stdint cimport uint64_t

cdef extern from "<sys/epoll.h>" nogil:
    int EPOLL_CLOEXEC
    int EPOLL_CTL_ADD
    int EPOLL_CTL_DEL
    int EPOLL_CTL_MOD
    unsigned int EPOLLIN
    unsigned int EPOLLOUT
    unsigned int EPOLLERR
    unsigned int EPOLLHUP
    unsigned int EPOLLRDHUP
    unsigned int EPOLLET
    unsigned int EPOLLONESHOT
    ctypedef union epoll_data_t:
        int fd
        uint64_t u64
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int count_max, int timeout_ms)
