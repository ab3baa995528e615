"""Results of appends on their way to those who wait (put_results.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport PUT_OK, REQUEST_ONEWAY, REQUEST_WAITS, AppendResult, RingRecord
from mqcore.shm.ring cimport Ring, ring_publish
from mqcore.shm.segment cimport Shm, doorbell_ring


cdef AppendResult* next_result(Ring* results, int64_t* at, int64_t end) noexcept nogil:
    """The result that begins at *at, which moves on; NULL: there is none before `end`."""
    cdef int64_t index
    cdef RingRecord* head
    while at[0] < end:
        index = at[0] & (results.capacity - 1)
        head = <RingRecord*>(results.bytes + index)
        if head.length < 0:
            at[0] += results.capacity - index
            continue
        at[0] += (sizeof(RingRecord) + head.length + 7) & ~<int64_t>7
        return <AppendResult*>(<uint8_t*>head + sizeof(RingRecord))
    return NULL


cdef int64_t results_mark(Ring* results, int64_t start, int64_t end, int32_t status,
                          bint only_waiting) noexcept nogil:
    cdef int64_t at = start, marked = 0
    cdef AppendResult* result = next_result(results, &at, end)
    while result != NULL:
        if result.status == PUT_OK and (not only_waiting or result.request_flags & REQUEST_WAITS):
            result.status = status
            marked += 1
        result = next_result(results, &at, end)
    return marked


cdef bint results_wait(Ring* results, int64_t start) noexcept nogil:
    cdef int64_t at = start
    cdef AppendResult* result = next_result(results, &at, results.position)
    while result != NULL:
        if result.status == PUT_OK and (
                result.request_flags & (REQUEST_WAITS | REQUEST_ONEWAY)) == REQUEST_WAITS:
            return True
        result = next_result(results, &at, results.position)
    return False


cdef void producer_wake(Shm* shm, int producer) noexcept nogil:
    doorbell_ring(&shm.slots[shm.head.producer_slot[producer]])


cdef void results_publish(Shm* shm, Ring* results, int producer) noexcept nogil:
    if ring_publish(results):
        producer_wake(shm, producer)
