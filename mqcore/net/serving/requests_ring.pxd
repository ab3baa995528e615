# The ring `requests`, to the coordinator.
from libc.stdint cimport int32_t, uint8_t

from mqcore.layout cimport SLOT_COORDINATOR
from mqcore.shm.ring cimport Ring, ring_claim_or_ask, ring_publish
from mqcore.shm.segment cimport Shm, doorbell_ring

cdef struct RequestsRing:
    Shm* shm
    Ring ring


cdef inline uint8_t* requests_claim(RequestsRing* r, int32_t length) noexcept nogil:
    """NULL: no room."""
    return ring_claim_or_ask(&r.ring, length)


cdef inline void requests_publish(RequestsRing* r) noexcept nogil:
    if ring_publish(&r.ring):
        doorbell_ring(&r.shm.slots[SLOT_COORDINATOR])
