# What a service thread of the writer sleeps on: an eventfd that another thread rings.

cdef int bell_make() noexcept nogil                          # -1: none is to be had, see bell_wait
cdef void bell_close(int bell) noexcept nogil
cdef void bell_ring(int bell) noexcept nogil
# Until it rings (what has rung before counts once), or for timeout_ms; without a bell a while at most.
cdef void bell_wait(int bell, long timeout_ms) noexcept nogil
