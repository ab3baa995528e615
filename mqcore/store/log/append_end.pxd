# A producer's end of the way to the writer: records into its `appends`, results from its
# `append_results`. Every process that stores messages claims, fills and commits here; a claim that is
# not committed never was.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from mqcore.layout cimport APPEND_RECORDS, SLOT_WRITER, AppendHead
from mqcore.shm.ring cimport (
    Ring,
    ring_claim_or_ask,
    ring_finish,
    ring_has_room,
    ring_length_max,
    ring_publish,
    ring_wait_for_room,
)
from mqcore.shm.segment cimport Shm, doorbell_ring, shm_consumer, shm_producer
from mqcore.shm.tables cimport queue_hash

cdef struct AppendEnd:
    Shm* shm
    Ring appends
    Ring results
    int32_t incarnation                # of this process: whose results count


cdef inline void append_end_open(AppendEnd* e, Shm* shm, int producer,
                                 int32_t incarnation) noexcept nogil:
    e.shm = shm
    e.incarnation = incarnation
    shm_producer(shm, &shm.head.appends[producer], &e.appends)
    shm_consumer(shm, &shm.head.append_results[producer], &e.results)


cdef inline int64_t append_bytes_max(AppendEnd* e) noexcept nogil:
    """Of the records of one claim."""
    return ring_length_max(&e.appends) - <int64_t>sizeof(AppendHead)


cdef inline bint append_has_room(AppendEnd* e, int32_t bytes) noexcept nogil:
    """Whether a claim would have room; if not, the writer rings when there is some."""
    cdef int32_t length = <int32_t>sizeof(AppendHead) + bytes
    if ring_has_room(&e.appends, length):
        return True
    ring_wait_for_room(&e.appends)
    return ring_has_room(&e.appends, length)


cdef inline AppendHead* append_claim(AppendEnd* e, int32_t bytes) noexcept nogil:
    """A head of zeros with room for records behind it. NULL: no room, and the writer rings then."""
    cdef int32_t length = <int32_t>sizeof(AppendHead) + bytes
    cdef AppendHead* head = <AppendHead*>ring_claim_or_ask(&e.appends, length)
    if head == NULL:
        return NULL
    memset(head, 0, sizeof(AppendHead))
    head.producer_incarnation = e.incarnation
    head.record_count = 1
    return head


cdef inline uint8_t* append_records(AppendHead* head) noexcept nogil:
    """Where its records begin."""
    return <uint8_t*>head + sizeof(AppendHead)


cdef inline void append_to(AppendHead* head, uint64_t topic_hash, int32_t topic_length,
                           int32_t queue_id) noexcept nogil:
    """The queue of its records, which is also the one that the answer names."""
    head.queue_hash = queue_hash(topic_hash, queue_id)
    head.queue_id = head.answer_queue_id = queue_id
    head.topic_length = <uint8_t>topic_length


cdef inline void append_finish(AppendEnd* e, const AppendHead* head) noexcept nogil:
    ring_finish(&e.appends, APPEND_RECORDS, <int32_t>sizeof(AppendHead) + head.bytes_total)


cdef inline void append_push(AppendEnd* e) noexcept nogil:
    """Show the writer what is committed."""
    if ring_publish(&e.appends):
        doorbell_ring(&e.shm.slots[SLOT_WRITER])
