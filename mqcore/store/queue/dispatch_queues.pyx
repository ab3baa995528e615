"""Gathers the queue entries of a batch and writes them (dispatch_queues.pxd)."""
from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from mqcore.atomics cimport load_i64_acquire, store_i64_release
from mqcore.endian cimport load_i32, load_i64, store_i64
from mqcore.layout cimport (
    CQ_ENTRY_RECORD_SIZE,
    CQ_ENTRY_SIZE,
    CQ_ENTRY_TAG_CODE,
    QueueEntry,
)
from mqcore.shm.segment cimport Shm
from mqcore.shm.tables cimport name_hash, queue_find, queue_hash
from mqcore.store.queue.as_left cimport queue_look
from mqcore.store.queue.consume_queue cimport (
    QueueItem,
    entry_encode,
    queue_files_close,
    queue_files_open,
    queue_fill,
    queue_write,
)
from mqcore.store.queue.extension cimport (
    ExtensionUnit,
    QueueExtension,
    extension_append,
    extension_begin,
    extension_flush,
    extension_keep,
)
from mqcore.store.record cimport RecordView

cdef enum:
    GATHER_ENTRIES = 1024
    NO_UNIT = -1


cdef int batch_open(QueueBatch* b, Shm* shm, const char* folder, int64_t file_entries,
                    int32_t open_files_max) noexcept nogil:
    memset(b, 0, sizeof(QueueBatch))
    b.shm = shm
    b.pending = <PendingEntry*>malloc(sizeof(PendingEntry) * BATCH_ENTRIES_MAX)
    b.touched = <TouchedQueue*>malloc(sizeof(TouchedQueue) * BATCH_ENTRIES_MAX)
    b.touched_at = <int32_t*>calloc(shm.head.queue_capacity, sizeof(int32_t))
    if b.pending == NULL or b.touched == NULL or b.touched_at == NULL:
        return ENOMEM
    return queue_files_open(&b.files, shm.queues, shm.head.queue_capacity, folder, file_entries,
                            open_files_max, True)


cdef int batch_extend(QueueBatch* b, QueueExtension* extension, int32_t map_size) noexcept nogil:
    b.bits_capacity = map_size * BATCH_RECORDS_MAX
    b.units = <PendingUnit*>malloc(sizeof(PendingUnit) * BATCH_ENTRIES_MAX)
    b.bits = <uint8_t*>malloc(b.bits_capacity + 1)
    if b.units == NULL or b.bits == NULL:
        return ENOMEM
    b.extension = extension
    return 0


cdef void batch_close(QueueBatch* b) noexcept nogil:
    queue_files_close(&b.files)
    free(b.pending)
    free(b.units)
    free(b.bits)
    free(b.touched)
    free(b.touched_at)
    b.pending = NULL
    b.units = NULL
    b.bits = NULL
    b.touched = NULL
    b.touched_at = NULL


cdef inline void enter(QueueBatch* b, const RecordView* record, int32_t queue, int64_t offset,
                       int64_t tags) noexcept nogil:
    """Append the entry to its queue's chain."""
    cdef PendingEntry* entry = &b.pending[b.pending_count]
    cdef TouchedQueue* touched
    cdef QueueItem item
    entry.queue = queue
    entry.next = -1
    entry.offset = offset
    item.log_position = record.log_position
    item.record_size = record.size
    item.tag_code = tags
    entry_encode(entry.bytes, &item)
    if b.touched_at[queue] == 0:
        touched = &b.touched[b.touched_count]
        b.touched_count += 1
        b.touched_at[queue] = b.touched_count
        touched.queue = queue
        touched.first = b.pending_count
        touched.born = b.shm.queues[queue].max_offset == 0
    else:
        touched = &b.touched[b.touched_at[queue] - 1]
        b.pending[touched.last].next = b.pending_count
    touched.last = b.pending_count
    b.pending_count += 1


cdef bint batch_note(QueueBatch* b, const RecordView* record, int64_t tags, const uint8_t* bits,
                     int32_t bits_length) noexcept nogil:
    cdef uint64_t topic = name_hash(record.topic, record.topic_length, 0)
    cdef int32_t queue = queue_find(b.shm, record.topic, record.topic_length, record.queue_id,
                                    queue_hash(topic, record.queue_id))
    cdef PendingUnit* unit
    if queue < 0:
        return False
    if record.log_position < load_i64_acquire(&b.shm.queues[queue].restart_position):  # dispatch D4
        return True
    if b.extension != NULL:
        unit = &b.units[b.pending_count]
        unit.store_time_ms = record.store_time_ms
        unit.bits_at = b.bits_used
        unit.bits_length = bits_length if b.bits_used + bits_length <= b.bits_capacity else 0
        if unit.bits_length:
            memcpy(b.bits + b.bits_used, bits, unit.bits_length)
            b.bits_used += unit.bits_length
    enter(b, record, queue, record.queue_offset, tags)
    return True


cdef void batch_note_at(QueueBatch* b, const RecordView* record, int32_t queue, int64_t offset,
                        int64_t tags) noexcept nogil:
    cdef int64_t restart = load_i64_acquire(&b.shm.queues[queue].restart_position)
    if b.pending_count == BATCH_ENTRIES_MAX or record.log_position < restart:          # dispatch D4
        return
    if b.extension != NULL:
        b.units[b.pending_count].bits_length = NO_UNIT
    enter(b, record, queue, offset, tags)


cdef int64_t batch_next(void* batch, int32_t queue) noexcept nogil:
    cdef QueueBatch* b = <QueueBatch*>batch
    cdef int64_t written = load_i64_acquire(&b.shm.queues[queue].max_offset)
    if b.touched_at[queue] == 0:
        return written
    return max(written, b.pending[b.touched[b.touched_at[queue] - 1].last].offset + 1)


cdef int add_unit(QueueBatch* b, int32_t pending, uint8_t* entry) noexcept nogil:
    """The unit of a pending entry, and its address into the entry; 0 or errno."""
    cdef PendingUnit* known = &b.units[pending]
    cdef ExtensionUnit unit
    cdef int64_t address
    cdef int error
    if known.bits_length == NO_UNIT:
        return 0
    address = unit.tag_code = load_i64(entry + CQ_ENTRY_TAG_CODE)
    unit.store_time_ms = known.store_time_ms
    unit.bits = b.bits + known.bits_at
    unit.bits_length = known.bits_length
    error = extension_append(b.extension, &unit, &address)
    store_i64(entry + CQ_ENTRY_TAG_CODE, address)
    return error


cdef int write_part(QueueBatch* b, int32_t queue, int64_t first, int32_t count,
                    const uint8_t* gathered) noexcept nogil:
    """Entries into their file, their units before them (extension X2); 0 or errno."""
    cdef int error
    if count == 0:
        return 0
    if b.extension != NULL:
        error = extension_flush(b.extension)
        if error:
            return error
    return queue_write(&b.files, queue, first, count, gathered)


cdef int write_queue(QueueBatch* b, TouchedQueue* touched) noexcept nogil:
    """
    The batch's entries of one queue into its files, then its max_offset (dispatch D2); 0 or errno.
    """
    cdef uint8_t gathered[GATHER_ENTRIES * CQ_ENTRY_SIZE]
    cdef QueueEntry* queue = &b.shm.queues[touched.queue]
    cdef int64_t known = queue.max_offset
    cdef int64_t next_offset = known, bytes = 0
    cdef int32_t at = touched.first, count = 0
    cdef int error = 0
    queue_look(b.files.open.folder, queue, b.files.file_entries)                       # as_left Y4
    if b.extension != NULL:
        error = extension_begin(b.extension, touched.queue)
    while at >= 0 and error == 0:
        if b.pending[at].offset >= next_offset:            # below: dispatched before (dispatch D1)
            if b.pending[at].offset > next_offset:
                error = write_gap(b, touched.queue, next_offset - count, count, gathered,
                                  b.pending[at].offset)
                if error:
                    return error
                if known == 0 and count == 0:
                    store_i64_release(&queue.min_offset, b.pending[at].offset)
                count = 0
                next_offset = b.pending[at].offset
            memcpy(gathered + count * CQ_ENTRY_SIZE, b.pending[at].bytes, CQ_ENTRY_SIZE)
            if b.extension != NULL:
                error = add_unit(b, at, gathered + count * CQ_ENTRY_SIZE)
                if error:
                    return error
            bytes += load_i32(b.pending[at].bytes + CQ_ENTRY_RECORD_SIZE)
            count += 1
            next_offset += 1
        at = b.pending[at].next
        if count == GATHER_ENTRIES or at < 0:
            error = write_part(b, touched.queue, next_offset - count, count, gathered)
            count = 0
    if error:
        return error
    if b.extension != NULL:
        extension_keep(b.extension)
    if next_offset != known:
        queue.bytes += bytes
        store_i64_release(&queue.max_offset, next_offset)
    return 0


cdef int write_gap(QueueBatch* b, int32_t queue, int64_t first, int32_t count,
                   const uint8_t* gathered, int64_t end) noexcept nogil:
    """
    The log has no record for the offsets in between: what lies before them is written, and they
    become fillers from the start of end's file on, so that numbering stays right (store.md 3.3).
    """
    cdef int64_t from_offset = first + count
    cdef int64_t file_first = end // b.files.file_entries * b.files.file_entries
    cdef int error
    if end - from_offset > b.files.file_entries and from_offset > 0:
        return OFFSET_NONSENSE
    error = write_part(b, queue, first, count, gathered)
    if error:
        return error
    if from_offset == 0:
        from_offset = file_first
    return queue_fill(&b.files, queue, from_offset, end)


cdef int batch_write(QueueBatch* b) noexcept nogil:
    cdef int32_t t
    cdef int error = 0
    for t in range(b.touched_count):
        if error == 0:
            error = write_queue(b, &b.touched[t])
        b.touched_at[b.touched[t].queue] = 0
    b.pending_count = 0
    b.bits_used = 0
    return error


cdef void batch_clear(QueueBatch* b) noexcept nogil:
    b.touched_count = 0
