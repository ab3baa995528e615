# The ring `requests`, to the coordinator.
from libc.stdint cimport int32_t, uint8_t

from mqcore.layout cimport SLOT_COORDINATOR
from mqcore.shm.ring cimport Ring, ring_claim, ring_publish, ring_wait_for_room
from mqcore.shm.segment cimport Shm, doorbell_ring

cdef struct RequestsRing:
    Shm* shm
    Ring ring


cdef inline uint8_t* requests_claim(RequestsRing* r, int32_t length) noexcept nogil:
    """NULL: no room."""
    cdef uint8_t* place = ring_claim(&r.ring, length)
    if place == NULL:
        ring_wait_for_room(&r.ring)
        place = ring_claim(&r.ring, length)
    return place


cdef inline void requests_publish(RequestsRing* r) noexcept nogil:
    if ring_publish(&r.ring):
        doorbell_ring(&r.shm.slots[SLOT_COORDINATOR])
