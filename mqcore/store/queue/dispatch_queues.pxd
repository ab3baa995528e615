# The queue entries of one batch of dispatched records: noted record by record, written queue by
# queue at its end. The rules behind it: dispatch D1, D2 and D4.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport CQ_ENTRY_SIZE
from mqcore.shm.segment cimport Shm
from mqcore.store.queue.consume_queue cimport QueueFiles
from mqcore.store.queue.extension cimport QueueExtension
from mqcore.store.record cimport RecordView

cdef enum:
    BATCH_RECORDS_MAX = 8192
    BATCH_ENTRIES_MAX = 2 * BATCH_RECORDS_MAX     # the last record may name many queues at once
    OFFSET_NONSENSE = -1              # a queue offset further on than any gap explains; no errno

cdef struct PendingEntry:
    int32_t queue
    int32_t next                      # of the same queue in this batch, -1: last
    int64_t offset
    uint8_t bytes[CQ_ENTRY_SIZE]

cdef struct PendingUnit:              # beside each entry, when there is an extension
    int64_t store_time_ms
    int32_t bits_at                   # of its bit map, in `bits`
    int32_t bits_length               # -1: the entry keeps its tag code

cdef struct TouchedQueue:
    int32_t queue
    int32_t first                     # pending entries of this batch, as a chain
    int32_t last
    bint born                         # it had no entry before: told to every serving process

cdef struct QueueBatch:
    Shm* shm
    QueueFiles files
    QueueExtension* extension         # NULL: entries hold tag codes
    PendingEntry* pending
    PendingUnit* units
    uint8_t* bits
    int32_t bits_used
    int32_t bits_capacity
    int32_t pending_count
    TouchedQueue* touched
    int32_t touched_count
    int32_t* touched_at               # by queue number: place in touched + 1, 0: not in this batch

cdef int batch_open(QueueBatch* b, Shm* shm, const char* folder, int64_t file_entries,
                    int32_t open_files_max) noexcept nogil               # 0 or errno
# Units of an extension from now on, with bit maps of at most map_size bytes; 0 or errno.
cdef int batch_extend(QueueBatch* b, QueueExtension* extension, int32_t map_size) noexcept nogil
cdef void batch_close(QueueBatch* b) noexcept nogil
# The offset that a queue's next entry gets behind those that are written or noted; batch: a QueueBatch.
cdef int64_t batch_next(void* batch, int32_t queue) noexcept nogil
# Note the record's entry in its own queue; False: there is no such queue. bits: its unit's, or NULL.
cdef bint batch_note(QueueBatch* b, const RecordView* record, int64_t tags, const uint8_t* bits,
                     int32_t bits_length) noexcept nogil
# ... and in another queue, which holds it at `offset` with its tag code.
cdef void batch_note_at(QueueBatch* b, const RecordView* record, int32_t queue, int64_t offset,
                        int64_t tags) noexcept nogil
# Write what is noted and move each queue's max_offset; 0, errno or OFFSET_NONSENSE. Then clear.
cdef int batch_write(QueueBatch* b) noexcept nogil
cdef void batch_clear(QueueBatch* b) noexcept nogil
