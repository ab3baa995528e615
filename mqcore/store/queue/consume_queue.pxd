# Consume queues: fixed-size pointers from one queue into the commit log (store.md 3).
#
#   C1  Entry k of a queue is at byte 20 k of its files; every file holds `file_entries` of them.
#   C2  An entry is in its file before the queue's max_offset passes it (release): a reader that
#       stays below max_offset reads whole entries.
#   C3  Files are read and written at a position, not mapped: a store has as many as it has queues,
#       and a full disk is an error code here, never a signal.
#   C4  A queue that was removed and came back is another one: who holds a file of its earlier life
#       sees it by removal_done, and opens the new one (open_files.pxd).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.endian cimport load_i32, load_i64, store_i32, store_i64
from mqcore.layout cimport (
    CQ_ENTRY_LOG_POSITION,
    CQ_ENTRY_RECORD_SIZE,
    CQ_ENTRY_SIZE,
    CQ_ENTRY_TAG_CODE,
    QueueEntry,
)
from mqcore.store.queue.open_files cimport OpenFiles, open_file_path


cdef struct QueueItem:
    int64_t log_position
    int32_t record_size
    int64_t tag_code


cdef inline QueueItem entry_decode(const uint8_t* entry) noexcept nogil:
    return QueueItem(
        log_position=load_i64(entry + CQ_ENTRY_LOG_POSITION),
        record_size=load_i32(entry + CQ_ENTRY_RECORD_SIZE),
        tag_code=load_i64(entry + CQ_ENTRY_TAG_CODE),
    )


cdef inline void entry_encode(uint8_t* entry, const QueueItem* item) noexcept nogil:
    store_i64(entry + CQ_ENTRY_LOG_POSITION, item.log_position)
    store_i32(entry + CQ_ENTRY_RECORD_SIZE, item.record_size)
    store_i64(entry + CQ_ENTRY_TAG_CODE, item.tag_code)


cdef struct QueueFiles:
    OpenFiles open                    # at C1's bytes; its failure is that of these calls too
    int64_t file_entries

cdef int queue_files_open(QueueFiles* q, QueueEntry* queues, int32_t capacity, const char* folder,
                          int64_t file_entries, int32_t open_max, bint writes) noexcept nogil
cdef void queue_files_close(QueueFiles* q) noexcept nogil
# At most `count` entries from queue offset `first` on into `into`, all of one file; -1: failure.
cdef int32_t queue_read(QueueFiles* q, int32_t queue, int64_t first, int32_t count,
                        uint8_t* into) noexcept nogil
# `count` entries at queue offset `first`, made files as needed; 0 or errno.
cdef int queue_write(QueueFiles* q, int32_t queue, int64_t first, int32_t count,
                     const uint8_t* entries) noexcept nogil
cdef int queue_fill(QueueFiles* q, int32_t queue, int64_t first, int64_t end) noexcept nogil
# Let go of a queue that is about to be removed: what it wrote need not reach the disk.
cdef void queue_forget(QueueFiles* q, int32_t queue) noexcept nogil
# Close open files that were deleted: the queue's min_offset has passed them, or its life has ended.
cdef void queue_files_forget(QueueFiles* q) noexcept nogil
# What an earlier process wrote up to queue offset `end` counts as not synced.
cdef void queue_distrust(QueueFiles* q, int32_t queue, int64_t end) noexcept nogil
# Of what is dirty in the queues below `count`; 0 or errno.
cdef int queue_files_sync(QueueFiles* q, int32_t count, bint together) noexcept nogil
cdef inline void queue_file_path(char* path, const char* folder, const QueueEntry* entry,
                                 int64_t first) noexcept nogil:
    open_file_path(path, folder, entry, first * CQ_ENTRY_SIZE)
