"""Links of held pulls."""
from libc.stdint cimport int32_t
from libc.stdlib cimport free

from mqcore.atomics cimport store_u8_release
from mqcore.filter.loaded cimport filter_drop
from mqcore.invariants cimport invariant
from mqcore.layout cimport FIGURE_HELD_PULLS
from mqcore.net.serving.peer cimport HeldShare, held_of
from mqcore.net.transport.transport cimport connection_find


cdef void held_link(Held* h, int which, int32_t* first, int32_t number) noexcept nogil:
    cdef HeldLink* link = &h.pulls[number].links[which]
    cdef HeldLink* head
    if first[0] == 0:
        link.next = link.before = number
        first[0] = number + 1
        return
    head = &h.pulls[first[0] - 1].links[which]
    link.next = first[0] - 1
    link.before = head.before
    h.pulls[head.before].links[which].next = number
    head.before = number


cdef void held_unlink(Held* h, int which, int32_t* first, int32_t number) noexcept nogil:
    cdef HeldLink* link = &h.pulls[number].links[which]
    if link.next == number:
        first[0] = 0
        return
    h.pulls[link.before].links[which].next = link.next
    h.pulls[link.next].links[which].before = link.before
    if first[0] == number + 1:
        first[0] = link.next + 1


cdef void held_let_go(Held* h, int32_t number) noexcept nogil:
    cdef HeldPull* held = &h.pulls[number]
    cdef Connection* c = connection_find(h.transport, held.connection)
    cdef HeldShare* own = held_of(c)
    cdef int32_t* list = list_of(h, held)
    invariant("H5", own.count > 0)
    invariant("H5", h.count >= own.count)
    invariant("a held pull is in a list", list[0] > 0)
    held_unlink(h, HELD_PLACE, list, number)
    if held.cold_job:
        h.cold_count -= 1
        own.cold_count -= 1
    elif held.queue >= 0 and list[0] == 0:
        store_u8_release(interest_in(h, held.queue), 0)
    held_unlink(h, HELD_OWNER, &own.first, number)
    if held.is_due:
        held_unlink(h, HELD_DUE, &c.due, number)
    own.count -= 1
    own.filter_bytes -= filter_size(held)
    invariant("H5", (own.count > 0) == (own.first > 0))
    invariant("its filters' bytes", own.filter_bytes >= 0)
    free(held.match.codes)
    held.match.codes = NULL
    filter_drop(&h.wants.filters, held.match.filter)
    held.match.filter = NULL
    held.connection = 0
    held.links[HELD_PLACE].next = h.free_place
    h.free_place = number
    h.count -= 1
    if h.count == 0:              # the walk over all is short again
        h.free_place = -1
        h.used = h.walk = 0
    h.transport.slot.figures[FIGURE_HELD_PULLS] = h.count


cdef void held_forget(Held* h, Connection* c) noexcept nogil:
    while held_of(c).first:
        held_let_go(h, held_of(c).first - 1)
