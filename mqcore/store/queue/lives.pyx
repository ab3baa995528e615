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
    cdef MarkedQueue found
    cdef int32_t ended = 0, queue
    cdef uint64_t hash
    while at < end:
        at = marker_line(at, end, &found)
        if found.queue_id < 0:
            continue
        hash = queue_hash(name_hash(found.topic, found.topic_length, 0), found.queue_id)
        queue = (
            queue_find_or_add(shm, found.topic, found.topic_length, found.queue_id, hash) if adds
            else queue_find(shm, found.topic, found.topic_length, found.queue_id, hash))
        if queue >= 0:
            ended += life_end(&shm.queues[queue], marker.log_position, is_running)
    return ended


cdef const uint8_t* marker_line(const uint8_t* at, const uint8_t* end,
                                MarkedQueue* found) noexcept nogil:
    cdef const uint8_t* stop = <const uint8_t*>memchr(at, c'\n', end - at)
    cdef const uint8_t* digits
    cdef int32_t queue_id = 0
    if stop == NULL:
        stop = end
    digits = stop
    found.topic = at
    found.queue_id = -1
    while digits > at and is_digit((digits - 1)[0]):
        digits -= 1
    if digits == stop or digits <= at or (digits - 1)[0] != c'@':
        return stop + 1
    found.topic_length = <int32_t>(digits - 1 - at)
    while digits < stop:
        queue_id = queue_id * 10 + digits[0] - c'0'
        if queue_id >= QUEUE_ID_END:
            return stop + 1
        digits += 1
    found.queue_id = queue_id
    return stop + 1


cdef void lives_tell(Shm* shm) noexcept nogil:
    store_i32_release(&shm.log.removals_begun, load_i32_acquire(&shm.log.removals_begun) + 1)
    doorbell_ring(&shm.slots[SLOT_DISPATCHER])
