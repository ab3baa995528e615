# Places of held pulls, and the lists that they are in (held.pxd, H1).
#
# Lists are circular, by the pulls' numbers. A list's word is its first pull + 1; 0: it is empty.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.server cimport Connection, HeldPull, Server


cdef inline int32_t unborn(const Server* s) noexcept nogil:
    """The list of pulls whose queues have no number, beside those of the queues."""
    return s.shm.head.queue_capacity


cdef inline int32_t* list_of(Server* s, const HeldPull* held) noexcept nogil:
    if held.cold_job:
        return &s.cold
    return &s.held_of_queue[held.queue if held.queue >= 0 else unborn(s)]


cdef inline uint8_t* interest_in(Server* s, int32_t queue) noexcept nogil:
    return &s.shm.interest[<int64_t>s.index * s.shm.head.queue_capacity + queue]


cdef inline int64_t filter_size(const HeldPull* held) noexcept nogil:
    return held.match.filter.size if held.match.filter != NULL else 0


cdef void held_link(Server* s, int which, int32_t* first, int32_t number) noexcept nogil    # as the last
cdef void held_unlink(Server* s, int which, int32_t* first, int32_t number) noexcept nogil
# Take a held pull out of all lists and give its place back.
cdef void held_let_go(Server* s, int32_t number) noexcept nogil
cdef void held_forget(Server* s, Connection* c) noexcept nogil        # H3: all of a connection
