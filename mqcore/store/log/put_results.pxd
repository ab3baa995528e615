# The results that the writer has not published yet, and how their producers are woken.
from libc.stdint cimport int32_t, int64_t

from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm

# Put `status` where PUT_OK stands, from `start` to the ring's position; only_waiting: only where the
# request asked for WAIT. Returns how many.
cdef int64_t results_mark(Ring* results, int64_t start, int32_t status,
                          bint only_waiting) noexcept nogil
# Show a producer what is committed to its ring, and wake it.
cdef void results_publish(Shm* shm, Ring* results, int producer) noexcept nogil
cdef void producer_wake(Shm* shm, int producer) noexcept nogil
