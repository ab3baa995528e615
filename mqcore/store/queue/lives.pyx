"""Ends the lives of queues as the log says it (lives.pxd has the rules)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i32_release, store_i64_release
from mqcore.layout cimport (
    LIVES_SEAL,
    QUEUE_ID_END,
    SLOT_DISPATCHER,
    SYS_FLAG_TRANSACTION_MASK,
    QueueEntry,
)
from mqcore.shm.segment cimport Shm, doorbell_ring
from mqcore.shm.tables cimport name_hash, queue_find, queue_find_or_add, queue_hash
from mqcore.store.record cimport RecordView
from mqcore.store.topic_names cimport LIVES_TOPIC
from mqcore.text cimport is_digit, is_literal


cdef bint is_lives_topic(const uint8_t* topic, int32_t length) noexcept nogil:
    return is_literal(topic, length, LIVES_TOPIC)


cdef bint is_marker(const RecordView* record) noexcept nogil:
    return (record.prepared_position == LIVES_SEAL
            and record.sys_flag & SYS_FLAG_TRANSACTION_MASK == 0
            and is_lives_topic(record.topic, record.topic_length))


cdef bint life_end(QueueEntry* queue, int64_t position, bint is_running) noexcept nogil:
    if load_i64_acquire(&queue.restart_position) >= position:                            # QL4
        return False
    store_i64_release(&queue.restart_position, position)
    store_i64_release(&queue.next_offset, 0)
    if is_running:
        store_i32_release(&queue.removal_begun, queue.removal_begun + 1)
    return True


cdef int32_t lives_end(Shm* shm, const RecordView* marker, bint is_running, bint adds) noexcept nogil:
    cdef const uint8_t* at = marker.body
    cdef const uint8_t* end = marker.body + marker.body_length
    cdef const uint8_t* stop
    cdef int32_t ended = 0, queue
    while at < end:
        stop = <const uint8_t*>memchr(at, c'\n', end - at)
        if stop == NULL:
            stop = end
        queue = queue_of_line(shm, at, stop, adds)
        if queue >= 0:
            ended += life_end(&shm.queues[queue], marker.log_position, is_running)
        at = stop + 1
    return ended


cdef int32_t queue_of_line(Shm* shm, const uint8_t* at, const uint8_t* end,
                           bint adds) noexcept nogil:
    """The number of the queue that `topic@queueId` names; below 0: there is none."""
    cdef const uint8_t* digits = end
    cdef const uint8_t* digit
    cdef int32_t queue_id = 0, length
    cdef uint64_t hash
    while digits > at and is_digit((digits - 1)[0]):
        digits -= 1
    if digits == end or digits <= at or (digits - 1)[0] != c'@':
        return -1
    digit = digits
    while digit < end:
        queue_id = queue_id * 10 + digit[0] - c'0'
        if queue_id >= QUEUE_ID_END:
            return -1
        digit += 1
    length = <int32_t>(digits - 1 - at)
    hash = queue_hash(name_hash(at, length, 0), queue_id)
    return (queue_find_or_add(shm, at, length, queue_id, hash) if adds
            else queue_find(shm, at, length, queue_id, hash))


cdef void lives_tell(Shm* shm) noexcept nogil:
    store_i32_release(&shm.log.removals_begun, load_i32_acquire(&shm.log.removals_begun) + 1)
    doorbell_ring(&shm.slots[SLOT_DISPATCHER])
