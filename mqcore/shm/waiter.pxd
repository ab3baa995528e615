# Sleeping until one's doorbell rings: epoll on the eventfd, edge-triggered, so that waking costs no
# read.
cdef struct Waiter:
    int epoll

cdef int waiter_open(Waiter* waiter, int bell) noexcept nogil        # 0 or errno
cdef void waiter_sleep(Waiter* waiter, int timeout_ms) noexcept nogil
cdef void waiter_close(Waiter* waiter) noexcept nogil
