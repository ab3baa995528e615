"""Opens, makes, syncs and closes the files of queues (open_files.pxd)."""
from libc.errno cimport EEXIST, EINVAL, ENOENT, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memset, strlen, strncpy
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_RDONLY, O_RDWR

from mqcore.atomics cimport exchange_i32, full_fence, load_i32_acquire, store_i32_release
from mqcore.layout cimport QueueEntry
from mqcore.names cimport is_queue_place
from mqcore.store.io cimport store_io, write_all_at
from mqcore.store.log.view cimport LOG_PATH_MAX

cdef extern from "<sys/stat.h>" nogil:
    int mkdir(const char* path, unsigned int mode)

cdef extern from "<unistd.h>" nogil:
    int unlink(const char* path)

cdef enum:
    FILE_ROOM = 24                    # of a path: a file's name and end
    SYNCED_SOON = 2                     # of a dirty word: written before the sync that is under way
    TOGETHER_MIN = 1024               # dirty files: fewer are synced one by one


cdef int open_files_begin(OpenFiles* f, QueueEntry* queues, int32_t capacity, const char* folder,
                          int64_t file_size, int32_t open_max, bint writes) noexcept nogil:
    memset(f, 0, sizeof(OpenFiles))
    f.queues = queues
    f.open_max = open_max
    f.writes = writes
    f.file_size = file_size
    strncpy(f.folder, folder, LOG_PATH_MAX - NAMES_ROOM)
    f.files = <OpenFile*>calloc(capacity, sizeof(OpenFile))
    if f.files == NULL:
        return ENOMEM
    f.capacity = capacity
    return 0


cdef void open_files_end(OpenFiles* f) noexcept nogil:
    cdef int32_t queue
    for queue in range(f.capacity):
        open_file_close(f, queue)
    free(f.files)
    f.files = NULL
    f.capacity = 0


cdef int open_file_folder(char* path, const char* folder, const QueueEntry* entry) noexcept nogil:
    cdef int length
    path[0] = 0
    if not is_queue_place(entry.topic, entry.topic_length, entry.queue_id):
        return 0
    length = snprintf(path, LOG_PATH_MAX, "%s/%.*s/%d", folder, <int>entry.topic_length,
                      <const char*>entry.topic, <int>entry.queue_id)
    if length >= LOG_PATH_MAX - FILE_ROOM:
        path[0] = 0
        return 0
    return length


cdef void open_file_path(char* path, const char* folder, const QueueEntry* entry,
                         int64_t first) noexcept nogil:
    cdef int length = open_file_folder(path, folder, entry)
    if length > 0:                     # else the empty path, which no call opens
        snprintf(path + length, LOG_PATH_MAX - length, "/%020lld", <long long>first)


cdef int make_folder(const char* path) noexcept nogil:
    return errno if mkdir(path, 0o755) != 0 and errno != EEXIST else 0


cdef int make_folders(const OpenFiles* f, const QueueEntry* entry) noexcept nogil:
    """Those of the queue's files, as far as they are missing; 0 or errno."""
    cdef char path[LOG_PATH_MAX]
    cdef int length = open_file_folder(path, f.folder, entry)
    cdef int topic_end = <int>strlen(f.folder) + 1 + entry.topic_length
    cdef int error
    if length <= topic_end:
        return EINVAL
    error = make_folder(f.folder)
    path[topic_end] = 0
    if error == 0:
        error = make_folder(path)
    path[topic_end] = c'/'
    return make_folder(path) if error == 0 else error


cdef void open_file_close(OpenFiles* f, int32_t queue) noexcept nogil:
    if f.files[queue].fd_plus_one:
        store_io().close_file(f.files[queue].fd_plus_one - 1)
        f.files[queue].fd_plus_one = 0
        f.open_count -= 1


cdef void close_coldest(OpenFiles* f) noexcept nogil:
    """Close half of the open files: those not used in the recent half of all calls."""
    cdef int32_t queue
    cdef int64_t oldest = f.use, middle
    for queue in range(f.capacity):
        if f.files[queue].fd_plus_one and f.files[queue].use < oldest:
            oldest = f.files[queue].use
    middle = oldest + (f.use - oldest + 1) // 2
    for queue in range(f.capacity):
        if f.files[queue].use <= middle and f.files[queue].use != f.use:
            open_file_close(f, queue)


cdef int sync_left(OpenFiles* f, int32_t queue) noexcept nogil:
    """Bring the file that the queue wrote so far to disk, be it open or not; 0 or errno."""
    cdef OpenFile* file = &f.files[queue]
    cdef int error
    if not file.fd_plus_one:
        error = open_file_sync(f, queue)
        return error if not f.sync_failure else 0
    if store_io().sync_data(file.fd_plus_one - 1) != 0:
        f.sync_failure = errno
    return 0


cdef int opened(OpenFiles* f, int32_t queue, int64_t first) noexcept nogil:
    """A new descriptor of the file, which a writer makes if it is missing; -1: f.failure."""
    cdef char path[LOG_PATH_MAX]
    cdef int fd
    open_file_path(path, f.folder, &f.queues[queue], first)
    fd = store_io().open_file(path, (O_RDWR if f.writes else O_RDONLY) | O_CLOEXEC, 0)
    if fd < 0 and errno == ENOENT and f.writes:
        f.failure = make_folders(f, &f.queues[queue])
        if f.failure:
            return -1
        fd = store_io().open_file(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        if fd >= 0 and store_io().truncate(fd, f.file_size) != 0:
            f.failure = errno
            store_io().close_file(fd)
            unlink(path)               # the next try makes it anew, in its whole size
            return -1
    if fd < 0:
        f.failure = errno
    return fd


cdef int open_file_at(OpenFiles* f, int32_t queue, int64_t first) noexcept nogil:
    cdef OpenFile* file = &f.files[queue]
    cdef int32_t life = load_i32_acquire(&f.queues[queue].removal_done)
    cdef int fd
    f.use += 1
    file.use = f.use
    if file.fd_plus_one and file.first == first and file.life == life:
        return file.fd_plus_one - 1
    if f.writes and file.first != first:
        # open_file_sync only knows the newest file: an older one goes to disk when it is left,
        # whoever has taken its dirty word
        f.failure = sync_left(f, queue)
        if f.failure:
            return -1
    open_file_close(f, queue)
    if f.open_count >= f.open_max:
        close_coldest(f)
    fd = opened(f, queue, first)
    if fd < 0:
        return -1
    file.fd_plus_one = fd + 1
    file.first = first
    file.life = life
    f.open_count += 1
    return fd


cdef int open_file_write(OpenFiles* f, int32_t queue, int64_t first, const void* bytes, size_t size,
                         int64_t place) noexcept nogil:
    cdef int fd = open_file_at(f, queue, first)
    cdef int error
    if fd < 0:
        return f.failure
    error = write_all_at(fd, bytes, size, place)
    if error:
        f.failure = error
        return error
    store_i32_release(&f.files[queue].dirty, 1)
    return 0


cdef void open_file_forget(OpenFiles* f, int32_t queue) noexcept nogil:
    open_file_close(f, queue)
    store_i32_release(&f.files[queue].dirty, 0)


cdef void open_file_distrust(OpenFiles* f, int32_t queue, int64_t first) noexcept nogil:
    f.files[queue].first = first
    store_i32_release(&f.files[queue].dirty, 1)


cdef int open_file_sync(OpenFiles* f, int32_t queue) noexcept nogil:
    # called by the sync thread: uses a descriptor of its own, those above are the dispatcher's
    cdef char path[LOG_PATH_MAX]
    cdef int fd, error = 0
    if f.sync_failure:
        return f.sync_failure
    if not exchange_i32(&f.files[queue].dirty, 0):
        return 0
    open_file_path(path, f.folder, &f.queues[queue], f.files[queue].first)
    fd = store_io().open_file(path, O_RDWR | O_CLOEXEC, 0)
    if fd < 0:
        error = errno
        if error == ENOENT:                            # the queue was removed meanwhile
            return 0
        store_i32_release(&f.files[queue].dirty, 1)
        return error
    if store_io().sync_data(fd) != 0:
        f.sync_failure = error = errno
    store_io().close_file(fd)
    return error


cdef bint are_many_dirty(const OpenFiles* f, int32_t count) noexcept nogil:
    cdef int32_t queue, dirty = 0
    for queue in range(count):
        dirty += f.files[queue].dirty != 0
    return dirty >= TOGETHER_MIN


cdef bint sync_together(OpenFiles* f, int32_t count) noexcept nogil:
    """
    One sync for all: each alone would wait for a record of the file system's journal. False: it
    failed, or was not possible: each file says for itself what is wrong with it.
    """
    cdef int32_t queue
    cdef int fd = store_io().open_file(f.folder, O_RDONLY | O_CLOEXEC, 0)
    cdef bint synced
    if fd < 0:
        return False
    for queue in range(count):
        if f.files[queue].dirty:
            store_i32_release(&f.files[queue].dirty, SYNCED_SOON)
    full_fence()
    synced = store_io().sync_all(fd) == 0
    store_io().close_file(fd)
    for queue in range(count):                         # what was written meanwhile is dirty still
        if synced and exchange_i32(&f.files[queue].dirty, 0) == 1:
            store_i32_release(&f.files[queue].dirty, 1)
    return synced


cdef int open_files_sync(OpenFiles* f, int32_t count, bint together) noexcept nogil:
    cdef int32_t queue
    cdef int error
    if f.sync_failure:
        return f.sync_failure
    if together and are_many_dirty(f, count):
        sync_together(f, count)
    for queue in range(count):
        error = open_file_sync(f, queue)
        if error:
            return error
    return 0
