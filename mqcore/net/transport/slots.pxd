# A list of connections by their slots: first in, first out, and out of the middle at the same cost.
from libc.stdint cimport int32_t

cdef struct SlotList:
    int32_t* next                      # by slot; NOT_LISTED: it is not in the list
    int32_t* before
    int32_t first                      # -1: empty
    int32_t last
    int32_t count

cdef bint slots_open(SlotList* slots, int32_t capacity) noexcept nogil       # False: no memory
# Another list in the arrays of the first: a slot is in one of all that share them, at most.
cdef void slots_share(SlotList* slots, const SlotList* first) noexcept nogil
cdef void slots_add(SlotList* slots, int32_t slot) noexcept nogil            # as the last; not twice
cdef void slots_remove(SlotList* slots, int32_t slot) noexcept nogil         # if it is there
cdef int32_t slots_take(SlotList* slots) noexcept nogil                      # the first; -1: empty
