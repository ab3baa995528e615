# The way to the writer: records into `appends`, answers when their results come.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport APPEND_RECORDS, FIGURE_SENDS, AppendHead
from mqcore.net.identity cimport Identity
from mqcore.net.transport.transport cimport Transport
from mqcore.shm.ring cimport Ring, ring_claim, ring_commit, ring_wait_for_room
from mqcore.shm.segment cimport Shm

cdef struct Appends:
    Transport* transport
    Shm* shm
    const Identity* identity
    Ring ring
    Ring results
    int32_t incarnation                # of this process: whose results count
    int64_t in_flight                  # without a result yet


cdef inline uint8_t* append_claim(Appends* a, int32_t length) noexcept nogil:
    """NULL: no room."""
    cdef uint8_t* place = ring_claim(&a.ring, length)
    if place == NULL:
        ring_wait_for_room(&a.ring)
        place = ring_claim(&a.ring, length)
    return place


cdef inline void append_commit(Appends* a, const AppendHead* head) noexcept nogil:
    ring_commit(&a.ring, APPEND_RECORDS, <int32_t>sizeof(AppendHead) + head.bytes_total)
    a.in_flight += 1
    a.transport.slot.figures[FIGURE_SENDS] += head.record_count


cdef void append_push(Appends* a) noexcept nogil                       # shows it to the writer
# Response code and remark of a PutStatus (broker.md 2.4); counts refusals.
cdef int32_t put_code(Appends* a, int32_t status, const char** remark) noexcept nogil
cdef void take_results(Appends* a) noexcept nogil
