"""Links of held pulls."""
from libc.stdint cimport int32_t
from libc.stdlib cimport free

from mqcore.atomics cimport store_u8_release
from mqcore.filter.loaded cimport filter_drop
from mqcore.invariants cimport invariant
from mqcore.layout cimport FIGURE_HELD_PULLS
from mqcore.net.serving.peer cimport HeldShare, held_of
from mqcore.net.transport.transport cimport connection_find


cdef void held_link(HeldPulls* held, int which, int32_t* first, int32_t number) noexcept nogil:
    cdef HeldLink* link = &held.places[number].links[which]
    cdef HeldLink* head
    if first[0] == 0:
        link.next = link.before = number
        first[0] = number + 1
        return
    head = &held.places[first[0] - 1].links[which]
    link.next = first[0] - 1
    link.before = head.before
    held.places[head.before].links[which].next = number
    head.before = number


cdef void held_unlink(HeldPulls* held, int which, int32_t* first, int32_t number) noexcept nogil:
    cdef HeldLink* link = &held.places[number].links[which]
    if link.next == number:
        first[0] = 0
        return
    held.places[link.before].links[which].next = link.next
    held.places[link.next].links[which].before = link.before
    if first[0] == number + 1:
        first[0] = link.next + 1


cdef void held_release(HeldPulls* held, int32_t number) noexcept nogil:
    cdef HeldPull* pull = &held.places[number]
    cdef Connection* c = connection_find(held.transport, pull.connection)
    cdef HeldShare* own = held_of(c)
    cdef int32_t* list = list_of(held, pull)
    invariant("H5", own.count > 0)
    invariant("H5", held.count >= own.count)
    invariant("a pull pull is in a list", list[0] > 0)
    held_unlink(held, HELD_PLACE, list, number)
    if pull.cold_job:
        held.cold_count -= 1
        own.cold_count -= 1
    elif pull.queue >= 0 and list[0] == 0:
        store_u8_release(interest_in(held, pull.queue), 0)
    held_unlink(held, HELD_OWNER, &own.first, number)
    if pull.postponed:
        held_unlink(held, HELD_POSTPONED, &c.postponed, number)
    own.count -= 1
    own.filter_bytes -= filter_size(pull)
    invariant("H5", (own.count > 0) == (own.first > 0))
    invariant("its filters' bytes", own.filter_bytes >= 0)
    free(pull.match.codes)
    pull.match.codes = NULL
    filter_drop(&held.wants.filters, pull.match.filter)
    pull.match.filter = NULL
    pull.connection = 0
    pull.links[HELD_PLACE].next = held.free_place
    held.free_place = number
    held.count -= 1
    if held.count == 0:              # the walk over all is short again
        held.free_place = -1
        held.used = held.walk = 0
    held.transport.slot.figures[FIGURE_HELD_PULLS] = held.count


cdef void held_forget(HeldPulls* held, Connection* c) noexcept nogil:
    while held_of(c).first:
        held_release(held, held_of(c).first - 1)
