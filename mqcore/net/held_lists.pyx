"""Links of held pulls (server.pxd says which lists there are)."""
from libc.stdint cimport int32_t
from libc.stdlib cimport free

from mqcore.atomics cimport store_u8_release
from mqcore.filter.loaded cimport filter_drop
from mqcore.layout cimport FIGURE_HELD_PULLS
from mqcore.net.server cimport HELD_DUE, HELD_OWNER, HELD_PLACE, HeldLink, connection_find


cdef void held_link(Server* s, int which, int32_t* first, int32_t number) noexcept nogil:
    cdef HeldLink* link = &s.held[number].links[which]
    cdef HeldLink* head
    if first[0] == 0:
        link.next = link.before = number
        first[0] = number + 1
        return
    head = &s.held[first[0] - 1].links[which]
    link.next = first[0] - 1
    link.before = head.before
    s.held[head.before].links[which].next = number
    head.before = number


cdef void held_unlink(Server* s, int which, int32_t* first, int32_t number) noexcept nogil:
    cdef HeldLink* link = &s.held[number].links[which]
    if link.next == number:
        first[0] = 0
        return
    s.held[link.before].links[which].next = link.next
    s.held[link.next].links[which].before = link.before
    if first[0] == number + 1:
        first[0] = link.next + 1


cdef void held_let_go(Server* s, int32_t number) noexcept nogil:
    cdef HeldPull* held = &s.held[number]
    cdef Connection* c = connection_find(s, held.connection)
    cdef int32_t* list = list_of(s, held)
    held_unlink(s, HELD_PLACE, list, number)
    if held.cold_job:
        s.cold_count -= 1
        c.cold_count -= 1
    elif held.queue >= 0 and list[0] == 0:
        store_u8_release(interest_in(s, held.queue), 0)
    held_unlink(s, HELD_OWNER, &c.pulls, number)
    if held.is_due:
        held_unlink(s, HELD_DUE, &c.due, number)
    c.pull_count -= 1
    c.filter_bytes -= filter_size(held)
    free(held.match.codes)
    held.match.codes = NULL
    filter_drop(&s.filters, held.match.filter)
    held.match.filter = NULL
    held.connection = 0
    held.links[HELD_PLACE].next = s.held_free
    s.held_free = number
    s.held_count -= 1
    if s.held_count == 0:              # the walk over all is short again
        s.held_free = -1
        s.held_used = s.held_walk = 0
    s.slot.figures[FIGURE_HELD_PULLS] = s.held_count


cdef void held_forget(Server* s, Connection* c) noexcept nogil:
    while c.pulls:
        held_let_go(s, c.pulls - 1)
