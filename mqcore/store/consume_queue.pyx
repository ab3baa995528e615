"""Reads and writes consume queue files."""
from libc.errno cimport ENOENT, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport strncpy

from mqcore.atomics cimport (
    exchange_i32,
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
)
from mqcore.layout cimport CQ_ENTRY_SIZE, CQ_FILLER_RECORD_SIZE, QueueEntry
from mqcore.store.io cimport store_io, write_all_at
from mqcore.store.log_view cimport LOG_PATH_MAX

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_RDWR
    int O_CREAT
    int O_CLOEXEC

cdef extern from "<sys/stat.h>" nogil:
    int mkdir(const char* path, unsigned int mode)

cdef enum:
    BLANK_ENTRIES = 512               # fillers written at a time


cdef int queue_files_open(QueueFiles* q, QueueEntry* queues, int32_t capacity, const char* folder,
                          int64_t file_entries, int32_t open_max, bint writes) noexcept nogil:
    q.queues = queues
    q.capacity = capacity
    q.open_count = 0
    q.open_max = open_max
    q.writes = writes
    q.file_entries = file_entries
    q.use = 0
    q.failure = 0
    strncpy(q.folder, folder, LOG_PATH_MAX - 256)
    q.folder[LOG_PATH_MAX - 256] = 0
    q.files = <QueueFile*>calloc(capacity, sizeof(QueueFile))
    return 0 if q.files != NULL else 12


cdef void queue_files_close(QueueFiles* q) noexcept nogil:
    cdef int32_t i
    for i in range(q.capacity):
        if q.files[i].fd_plus_one:
            store_io().close_file(q.files[i].fd_plus_one - 1)
    free(q.files)
    q.files = NULL
    q.capacity = 0


cdef void queue_file_path(char* path, const char* folder, const QueueEntry* entry,
                          int64_t first) noexcept nogil:
    snprintf(path, LOG_PATH_MAX, "%s/%.*s/%d/%020lld", folder, <int>entry.topic_length,
             <const char*>entry.topic, <int>entry.queue_id, <long long>(first * CQ_ENTRY_SIZE))


cdef void close_coldest(QueueFiles* q) noexcept nogil:
    """Close half of the open files: those not used in the recent half of all calls."""
    cdef int32_t i
    cdef int64_t oldest = q.use, middle
    for i in range(q.capacity):
        if q.files[i].fd_plus_one and q.files[i].use < oldest:
            oldest = q.files[i].use
    middle = oldest + (q.use - oldest + 1) // 2
    for i in range(q.capacity):
        if q.files[i].fd_plus_one and q.files[i].use <= middle and q.files[i].use != q.use:
            store_io().close_file(q.files[i].fd_plus_one - 1)
            q.files[i].fd_plus_one = 0
            q.open_count -= 1


cdef int make_folders(QueueFiles* q, const QueueEntry* entry) noexcept nogil:
    cdef char path[LOG_PATH_MAX]
    snprintf(path, LOG_PATH_MAX, "%s/%.*s", q.folder, <int>entry.topic_length,
             <const char*>entry.topic)
    mkdir(path, 0o755)                 # what is missing shows when the file is opened
    snprintf(path, LOG_PATH_MAX, "%s/%.*s/%d", q.folder, <int>entry.topic_length,
             <const char*>entry.topic, <int>entry.queue_id)
    mkdir(path, 0o755)
    return 0


cdef int sync_left(QueueFiles* q, int32_t queue) noexcept nogil:
    """Bring the file that the queue wrote so far to disk, be it open or not; 0 or errno."""
    cdef QueueFile* file = &q.files[queue]
    if not file.fd_plus_one:
        return queue_sync(q, queue)
    return errno if store_io().sync_data(file.fd_plus_one - 1) != 0 else 0


cdef int open_file(QueueFiles* q, int32_t queue, int64_t first) noexcept nogil:
    """The descriptor of the file that begins at queue offset `first`, or -1 and q.failure."""
    cdef QueueFile* file = &q.files[queue]
    cdef char path[LOG_PATH_MAX]
    cdef int32_t life = load_i32_acquire(&q.queues[queue].removal_done)
    cdef int fd
    q.use += 1
    file.use = q.use
    if file.fd_plus_one and file.first == first and file.life == life:                  # C4
        return file.fd_plus_one - 1
    if q.writes and file.first != first:
        # queue_sync only knows the newest file: an older one goes to disk when it is left, whoever
        # has taken its dirty word
        q.failure = sync_left(q, queue)
        if q.failure:
            return -1
    if file.fd_plus_one:
        store_io().close_file(file.fd_plus_one - 1)
        file.fd_plus_one = 0
        q.open_count -= 1
    if q.open_count >= q.open_max:
        close_coldest(q)
    queue_file_path(path, q.folder, &q.queues[queue], first)
    fd = store_io().open_file(path, (O_RDWR if q.writes else O_RDONLY) | O_CLOEXEC, 0)
    if fd < 0 and errno == ENOENT and q.writes:
        make_folders(q, &q.queues[queue])
        fd = store_io().open_file(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        if fd >= 0 and store_io().truncate(fd, q.file_entries * CQ_ENTRY_SIZE) != 0:
            q.failure = errno
            store_io().close_file(fd)
            return -1
    if fd < 0:
        q.failure = errno
        return -1
    file.fd_plus_one = fd + 1
    file.first = first
    file.life = life
    q.open_count += 1
    return fd


cdef int32_t queue_read(QueueFiles* q, int32_t queue, int64_t first, int32_t count,
                        uint8_t* into) noexcept nogil:
    cdef int64_t file_first = first // q.file_entries * q.file_entries
    cdef int fd = open_file(q, queue, file_first)
    cdef ssize_t got
    if fd < 0:
        return -1
    if count > file_first + q.file_entries - first:
        count = <int32_t>(file_first + q.file_entries - first)
    got = store_io().read_at(fd, into, count * CQ_ENTRY_SIZE, (first - file_first) * CQ_ENTRY_SIZE)
    if got < 0:
        q.failure = errno
        return -1
    return <int32_t>(got // CQ_ENTRY_SIZE)


cdef int queue_write(QueueFiles* q, int32_t queue, int64_t first, int32_t count,
                     const uint8_t* entries) noexcept nogil:
    cdef int64_t file_first
    cdef int32_t part
    cdef int fd, error
    while count > 0:
        file_first = first // q.file_entries * q.file_entries
        part = <int32_t>min(<int64_t>count, file_first + q.file_entries - first)
        fd = open_file(q, queue, file_first)
        if fd < 0:
            return q.failure
        error = write_all_at(fd, entries, part * CQ_ENTRY_SIZE, (first - file_first) * CQ_ENTRY_SIZE)
        if error:
            q.failure = error
            return error
        store_i32_release(&q.files[queue].dirty, 1)
        first += part
        count -= part
        entries += part * CQ_ENTRY_SIZE
    return 0


cdef int queue_fill(QueueFiles* q, int32_t queue, int64_t first, int64_t end) noexcept nogil:
    """Filler entries in [first, end): what stock writes before the first entry of a queue (3.3)."""
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


cdef void close_one(QueueFiles* q, int32_t queue) noexcept nogil:
    if q.files[queue].fd_plus_one:
        store_io().close_file(q.files[queue].fd_plus_one - 1)
        q.files[queue].fd_plus_one = 0
        q.open_count -= 1


cdef void queue_forget(QueueFiles* q, int32_t queue) noexcept nogil:
    close_one(q, queue)
    store_i32_release(&q.files[queue].dirty, 0)


cdef void queue_files_forget(QueueFiles* q) noexcept nogil:
    cdef int32_t i
    for i in range(q.capacity):
        if q.files[i].fd_plus_one and (
                q.files[i].first + q.file_entries <= load_i64_acquire(&q.queues[i].min_offset)
                or q.files[i].life != load_i32_acquire(&q.queues[i].removal_done)):
            close_one(q, i)


cdef int queue_sync(QueueFiles* q, int32_t queue) noexcept nogil:
    # called by the sync thread: uses a descriptor of its own, the files above are the dispatcher's
    cdef char path[LOG_PATH_MAX]
    cdef int64_t first
    cdef int fd, error = 0
    if not exchange_i32(&q.files[queue].dirty, 0):
        return 0
    first = q.files[queue].first
    queue_file_path(path, q.folder, &q.queues[queue], first)
    fd = store_io().open_file(path, O_RDWR | O_CLOEXEC, 0)
    if fd < 0:
        return errno if errno != ENOENT else 0         # the queue was removed meanwhile
    if store_io().sync_data(fd) != 0:
        error = errno
    store_io().close_file(fd)
    return error
