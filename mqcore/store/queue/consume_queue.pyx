"""Reads and writes consume queue files."""
from libc.errno cimport EUCLEAN, errno
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.layout cimport CQ_ENTRY_SIZE, CQ_FILLER_RECORD_SIZE, QueueEntry
from mqcore.store.io cimport store_io
from mqcore.store.queue.as_left cimport file_as_left
from mqcore.store.queue.open_files cimport (
    OpenFile,
    open_file_at,
    open_file_close,
    open_file_distrust,
    open_file_forget,
    open_file_write,
    open_files_begin,
    open_files_end,
    open_files_sync,
)

cdef enum:
    BLANK_ENTRIES = 512               # fillers written at a time


cdef int queue_files_open(QueueFiles* q, QueueEntry* queues, int32_t capacity, const char* folder,
                          int64_t file_entries, int32_t open_max, bint writes) noexcept nogil:
    q.file_entries = file_entries
    return open_files_begin(&q.open, queues, capacity, folder, file_entries * CQ_ENTRY_SIZE,
                            open_max, writes)


cdef void queue_files_close(QueueFiles* q) noexcept nogil:
    open_files_end(&q.open)


cdef int32_t queue_read(QueueFiles* q, int32_t queue, int64_t first, int32_t count,
                        uint8_t* into) noexcept nogil:
    cdef int64_t file_first = first // q.file_entries * q.file_entries
    cdef int fd = open_file_at(&q.open, queue, file_first * CQ_ENTRY_SIZE)
    cdef ssize_t got
    if fd < 0:
        return -1
    # as_left Y5
    if not q.open.writes and not file_as_left(fd, &q.open.queues[queue], q.file_entries):
        open_file_close(&q.open, queue)
        q.open.failure = EUCLEAN
        return -1
    if count > file_first + q.file_entries - first:
        count = <int32_t>(file_first + q.file_entries - first)
    got = store_io().read_at(fd, into, count * CQ_ENTRY_SIZE, (first - file_first) * CQ_ENTRY_SIZE)
    if got < 0:
        q.open.failure = errno
        return -1
    return <int32_t>(got // CQ_ENTRY_SIZE)


cdef int queue_write(QueueFiles* q, int32_t queue, int64_t first, int32_t count,
                     const uint8_t* entries) noexcept nogil:
    cdef int64_t file_first
    cdef int32_t part
    cdef int error
    while count > 0:
        file_first = first // q.file_entries * q.file_entries
        part = <int32_t>min(<int64_t>count, file_first + q.file_entries - first)
        error = open_file_write(&q.open, queue, file_first * CQ_ENTRY_SIZE, entries,
                                part * CQ_ENTRY_SIZE, (first - file_first) * CQ_ENTRY_SIZE)
        if error:
            return error
        first += part
        count -= part
        entries += part * CQ_ENTRY_SIZE
    return 0


cdef int queue_fill(QueueFiles* q, int32_t queue, int64_t first, int64_t end) noexcept nogil:
    """Filler entries in [first, end): as stock writes before a queue's first entry (store.md 3.3)."""
    cdef uint8_t fillers[BLANK_ENTRIES * CQ_ENTRY_SIZE]
    cdef QueueItem filler = QueueItem(log_position=0, record_size=CQ_FILLER_RECORD_SIZE, tag_code=0)
    cdef int32_t i, part
    cdef int error
    for i in range(BLANK_ENTRIES):
        entry_encode(fillers + i * CQ_ENTRY_SIZE, &filler)
    while first < end:
        part = <int32_t>min(<int64_t>BLANK_ENTRIES, end - first)
        error = queue_write(q, queue, first, part, fillers)
        if error:
            return error
        first += part
    return 0


cdef void queue_forget(QueueFiles* q, int32_t queue) noexcept nogil:
    open_file_forget(&q.open, queue)


cdef void queue_files_forget(QueueFiles* q) noexcept nogil:
    cdef int32_t i
    cdef QueueEntry* queue
    cdef OpenFile* file
    for i in range(q.open.capacity):
        queue = &q.open.queues[i]
        file = &q.open.files[i]
        if file.fd_plus_one and (
                file.first // CQ_ENTRY_SIZE + q.file_entries <= load_i64_acquire(&queue.min_offset)
                or file.life != load_i32_acquire(&queue.removal_done)):                      # C4
            open_file_close(&q.open, i)


cdef void queue_distrust(QueueFiles* q, int32_t queue, int64_t end) noexcept nogil:
    open_file_distrust(&q.open, queue,
                       (end - 1) // q.file_entries * q.file_entries * CQ_ENTRY_SIZE)


cdef int queue_files_sync(QueueFiles* q, int32_t count, bint together) noexcept nogil:
    return open_files_sync(&q.open, count, together)
