"""Answers the requests that a dead writer left in the rings (dropped.pxd)."""
from libc.stdint cimport int32_t, uint8_t

from mqcore.layout cimport PUT_WRITER_RESTARTED, RESULT_PUT, AppendHead, AppendResult
from mqcore.shm.ring cimport Ring, ring_claim, ring_finish, ring_next, ring_release
from mqcore.store.log.appender cimport Appender
from mqcore.store.log.put_results cimport producer_wake, results_publish


cdef void requests_drop(Appender* a) noexcept nogil:
    """
    Whether a request that was in flight is in the log is not known here: each is answered as such,
    once, and none is appended a second time.
    """
    cdef int p, other
    cdef Ring* ring
    cdef AppendHead* head
    cdef AppendResult* result
    cdef uint8_t* record
    cdef int32_t kind
    for p in range(a.producers):
        ring = &a.appends[p]
        while ring_next(ring, &record, &kind) >= 0:
            head = <AppendHead*>record
            result = <AppendResult*>ring_claim(&a.results[p], sizeof(AppendResult))
            if result == NULL:
                continue                                     # its client runs into its time-out
            result.connection = head.connection
            result.opaque = head.opaque
            result.producer_incarnation = head.producer_incarnation
            result.queue_offset = 0
            result.log_position = 0
            result.queue_id = head.answer_queue_id
            result.record_count = 1
            result.status = PUT_WRITER_RESTARTED
            result.request_flags = head.request_flags
            result.taken_us = head.taken_us
            ring_finish(&a.results[p], RESULT_PUT, sizeof(AppendResult))
        ring_release(ring)
        for other in range(a.producers):
            a.result_kept[other] = a.results[other].position
            results_publish(a.shm, &a.results[other], a.producer[other])
        producer_wake(a.shm, a.producer[p])
