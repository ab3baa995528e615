"""Results of appends on their way to those who wait (put_results.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport PUT_OK, REQUEST_WAITS, AppendResult, RingRecord
from mqcore.shm.ring cimport Ring, ring_publish
from mqcore.shm.segment cimport Shm, doorbell_ring


cdef int64_t results_mark(Ring* results, int64_t start, int32_t status,
                          bint only_waiting) noexcept nogil:
    cdef int64_t at = start, index, marked = 0
    cdef RingRecord* head
    cdef AppendResult* result
    while at < results.position:
        index = at & (results.capacity - 1)
        head = <RingRecord*>(results.bytes + index)
        if head.length < 0:
            at += results.capacity - index
            continue
        result = <AppendResult*>(<uint8_t*>head + sizeof(RingRecord))
        if result.status == PUT_OK and (not only_waiting or result.request_flags & REQUEST_WAITS):
            result.status = status
            marked += 1
        at += (sizeof(RingRecord) + head.length + 7) & ~<int64_t>7
    return marked


cdef void producer_wake(Shm* shm, int producer) noexcept nogil:
    doorbell_ring(&shm.slots[shm.head.producer_slot[producer]])


cdef void results_publish(Shm* shm, Ring* results, int producer) noexcept nogil:
    if ring_publish(results):
        producer_wake(shm, producer)
