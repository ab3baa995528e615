# Offsets in queues that staged records use, and how they are given back (append.pxd, A4).
from libc.stdint cimport int32_t, int64_t

from mqcore.atomics cimport store_i64_release
from mqcore.layout cimport SYS_FLAG_COMMIT, SYS_FLAG_TRANSACTION_MASK, QueueEntry
from mqcore.shm.segment cimport Shm
from mqcore.shm.tables cimport name_hash, queue_find_or_add, queue_hash
from mqcore.store.log.appender cimport Appender
from mqcore.store.log.awaited cimport note_grown
from mqcore.store.queue.multi_dispatch cimport MULTI_NAMES_MAX
from mqcore.store.record cimport RecordView


cdef inline bint is_counted(const RecordView* record) noexcept nogil:
    """Whether it takes an offset of its queue: half and rolled back messages take none."""
    return record.sys_flag & SYS_FLAG_TRANSACTION_MASK in (0, SYS_FLAG_COMMIT)


cdef inline int32_t queue_of_record(Shm* shm, const RecordView* record) noexcept nogil:
    """
    The number of a stored record's queue; QUEUES_FULL, or QUEUE_REFUSED: it can have none
    (names O3).
    """
    return queue_find_or_add(
        shm, record.topic, record.topic_length, record.queue_id,
        queue_hash(name_hash(record.topic, record.topic_length, 0), record.queue_id))


cdef inline void use_offset(Appender* a, int32_t queue, int64_t next_offset) noexcept nogil:
    """Move a queue's next_offset on, to be given back if the write fails (append A4)."""
    cdef QueueEntry* entry = &a.shm.queues[queue]
    if entry.next_offset >= next_offset:
        return
    note_grown(a, queue, entry.next_offset == 0)
    if a.pool == NULL and a.used_count < a.used_capacity + MULTI_NAMES_MAX:
        a.used[a.used_count].queue = queue
        a.used[a.used_count].offset = entry.next_offset
        a.used_count += 1
    store_i64_release(&entry.next_offset, next_offset)


cdef inline void give_back_offsets(Appender* a) noexcept nogil:
    while a.used_count > 0:                                      # newest first
        a.used_count -= 1
        store_i64_release(&a.shm.queues[a.used[a.used_count].queue].next_offset,
                          a.used[a.used_count].offset)
