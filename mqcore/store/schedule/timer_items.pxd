# The part of the timer wheel in memory: messages of the second that is being delivered, in the order
# of their times, and those whose second had begun when they came.
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef struct TimerItem:
    int64_t due_ms                     # store clock
    int64_t log_position
    int64_t unit                       # its position in the timer log
    int32_t kind                       # timer.pxd, TimerKind

cdef struct TimerItems:                # an array that is sorted at will, or a heap
    TimerItem* items
    int32_t count
    int32_t room

# False: there is no room for more than `most`, or no memory.
cdef bint items_add(TimerItems* items, const TimerItem* item, int32_t most) noexcept nogil
cdef void items_free(TimerItems* items) noexcept nogil
cdef void items_sort(TimerItems* items) noexcept nogil
cdef bint item_before(const TimerItem* one, const TimerItem* other) noexcept nogil
# As a heap; least: the earliest is at its top, else the latest.
cdef bint heap_push(TimerItems* heap, const TimerItem* item, bint least, int32_t most) noexcept nogil
cdef void heap_pop(TimerItems* heap, bint least) noexcept nogil

cdef enum:
    RECALLS_MAX = 1 << 20

cdef struct Recall:                    # a message that was taken back
    uint64_t key                       # hash of topic and unique key
    int64_t marker                     # log position of the record that says so, -1: free place
    int64_t second                     # of its slot: it counts until that is settled

cdef struct Recalls:
    Recall* places
    int32_t room                       # a power of two, 0: none yet
    int32_t count
    int64_t last_second

# False: no memory, or `most` are there.
cdef bint recalls_add(Recalls* recalls, uint64_t key, int64_t marker, int64_t second, int32_t most) noexcept nogil
# The next recall of that key from place `at` on (begin with -1), or -1.
cdef int32_t recalls_find(const Recalls* recalls, uint64_t key, int32_t at) noexcept nogil
# Those of seconds before `second` count no longer.
cdef void recalls_expire(Recalls* recalls, int64_t second) noexcept nogil
cdef void recalls_free(Recalls* recalls) noexcept nogil

cdef struct Positions:                 # log positions, sorted when the search is over
    int64_t* at
    int32_t count
    int32_t room

cdef bint positions_add(Positions* positions, int64_t position) noexcept nogil
cdef void positions_sort(Positions* positions) noexcept nogil
cdef bint positions_have(const Positions* positions, int64_t position) noexcept nogil
cdef void positions_free(Positions* positions) noexcept nogil
