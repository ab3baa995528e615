# The results that the writer has not published yet, and how their producers are woken.
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport (
    PUT_FLUSH_TIMEOUT,
    PUT_OK,
    PUT_SLAVE_NOT_AVAILABLE,
    PUT_SLAVE_TIMEOUT,
)
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm

# Put `status` where PUT_OK stands, from `start` to `end`; only_waiting: only where the request asked for
# WAIT. Returns how many.
cdef int64_t results_mark(Ring* results, int64_t start, int64_t end, int32_t status,
                          bint only_waiting) noexcept nogil
# Whether somebody waits for one that says PUT_OK, from `start` to the ring's position.
cdef bint results_wait(Ring* results, int64_t start) noexcept nogil
# Show a producer what is committed to its ring, and wake it.
cdef void results_publish(Shm* shm, Ring* results, int producer) noexcept nogil
cdef void producer_wake(Shm* shm, int producer) noexcept nogil

cdef inline bint put_is_stored(int32_t status) noexcept nogil:
    """Whether the record is in the log, however many have it or whatever disk."""
    return status in (PUT_OK, PUT_FLUSH_TIMEOUT, PUT_SLAVE_TIMEOUT, PUT_SLAVE_NOT_AVAILABLE)
