# What each client address, and each account, uses of what is limited for it: one table for all serving
# processes, since the connections of a client are spread over them.
#
#   T5  A place belongs to a key (a keyed hash, so that nobody can choose his place) from the swap that
#       writes it. One that nobody counts in, and whose time is up, goes to the next key that wants it:
#       who wants it claims it first (a small number in place of the key) and looks at the counts once
#       more; who has counted himself into it looks at the key once more. So one of the two sees the
#       other, and goes. Counts and claims are written by their own process alone; a new one clears those
#       of its predecessor. Whoever finds no place is not limited: a place short is no reason to refuse
#       anybody.
#   T6  What is used at a rate moves `due` ahead by the time that it is worth; it passes while `due`
#       is at most a burst ahead of now. Any process may move it.
from libc.stdint cimport int32_t, int64_t, uint64_t

from mqcore.layout cimport LimitPlace
from mqcore.shm.segment cimport Shm

cdef enum:
    US_A_SECOND = 1_000_000
    BURST_US = US_A_SECOND             # what a second allows may come at once

# The place of a key, with one more connection counted in it; NULL: there is none.
cdef LimitPlace* limit_enter(Shm* shm, uint64_t key, int32_t serving, int64_t now_us) noexcept nogil
cdef void limit_leave(LimitPlace* place, int32_t serving) noexcept nogil
cdef int32_t limit_connections(const Shm* shm, const LimitPlace* place) noexcept nogil
cdef int32_t limit_in_flight(const Shm* shm, const LimitPlace* place) noexcept nogil
# `amount` of something of which `a_second` (more than 0) is allowed.
cdef void limit_use(int64_t* due_us, int64_t now_us, int64_t amount, int64_t a_second) noexcept nogil
cdef bint limit_passes(const int64_t* due_us, int64_t now_us) noexcept nogil
# What a predecessor of this serving process counted.
cdef void limits_clear(Shm* shm, int32_t serving) noexcept nogil
