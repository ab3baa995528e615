"""Linked lists of slots, in two arrays."""
from libc.stdint cimport int32_t
from libc.stdlib cimport malloc

from mqcore.invariants cimport invariant

cdef enum:
    NOT_LISTED = -2


cdef bint slots_open(SlotList* slots, int32_t capacity) noexcept nogil:
    cdef int32_t i
    slots.first = slots.last = -1
    slots.count = 0
    slots.next = <int32_t*>malloc(capacity * sizeof(int32_t))
    slots.before = <int32_t*>malloc(capacity * sizeof(int32_t))
    if slots.next == NULL or slots.before == NULL:
        return False
    for i in range(capacity):
        slots.next[i] = NOT_LISTED
    return True


cdef void slots_share(SlotList* slots, const SlotList* first) noexcept nogil:
    slots.next = first.next
    slots.before = first.before
    slots.first = slots.last = -1
    slots.count = 0


cdef void slots_add(SlotList* slots, int32_t slot) noexcept nogil:
    if slots.next[slot] != NOT_LISTED:
        return
    slots.next[slot] = -1
    slots.before[slot] = slots.last
    if slots.last >= 0:
        slots.next[slots.last] = slot
    else:
        slots.first = slot
    slots.last = slot
    slots.count += 1


cdef void slots_remove(SlotList* slots, int32_t slot) noexcept nogil:
    cdef int32_t after = slots.next[slot]
    cdef int32_t before
    if after == NOT_LISTED:
        return
    before = slots.before[slot]
    if before >= 0:
        slots.next[before] = after
    else:
        slots.first = after
    if after >= 0:
        slots.before[after] = before
    else:
        slots.last = before
    slots.next[slot] = NOT_LISTED
    slots.count -= 1
    invariant("a list's count", slots.count >= 0)
    invariant("a list's count", (slots.count == 0) == (slots.first < 0))


cdef int32_t slots_take(SlotList* slots) noexcept nogil:
    cdef int32_t slot = slots.first
    if slot >= 0:
        slots_remove(slots, slot)
    return slot
