"""Reads and writes consume queue extension files (queue_extension.pxd has their rules)."""
from libc.errno cimport EFBIG, ENOENT, ENOMEM, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, strtoll
from libc.string cimport memcpy, memset, strlen, strncpy

from mqcore.atomics cimport (
    exchange_i32,
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
)
from mqcore.endian cimport load_i16, load_i64, store_i16, store_i64
from mqcore.layout cimport CQ_ENTRY_SIZE, CQ_FILLER_RECORD_SIZE, QueueEntry
from mqcore.store.consume_queue cimport QueueItem, entry_decode, queue_file_path
from mqcore.store.io cimport store_io, write_all_at
from mqcore.store.log_view cimport LOG_PATH_MAX

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_RDWR
    int O_CREAT
    int O_CLOEXEC

cdef extern from "<sys/stat.h>" nogil:
    int mkdir(const char* path, unsigned int mode)

cdef extern from "<unistd.h>" nogil:
    int unlink(const char* path)

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    cdef struct dirent:
        char d_name[256]
    DIR* opendir(const char* path)
    dirent* readdir(DIR* folder)
    int closedir(DIR* folder)

cdef enum:
    LOOK_ENTRIES = 512                # read at a time


cdef int extension_open(QueueExtension* e, QueueEntry* queues, int32_t capacity, const char* folder,
                        const char* queue_folder, int64_t queue_file_entries, int64_t file_size,
                        int32_t open_max, bint writes) noexcept nogil:
    memset(e, 0, sizeof(QueueExtension))
    e.queues = queues
    e.open_max = open_max
    e.writes = writes
    e.file_size = file_size
    e.queue_file_entries = queue_file_entries
    e.queue = -1
    strncpy(e.folder, folder, LOG_PATH_MAX - 256)
    strncpy(e.queue_folder, queue_folder, LOG_PATH_MAX - 256)
    e.files = <ExtensionFile*>calloc(capacity, sizeof(ExtensionFile))
    e.bytes = <uint8_t*>malloc(EXTENSION_GATHER + EXTENSION_UNIT_MAX)
    if e.files == NULL or e.bytes == NULL:
        return ENOMEM
    e.capacity = capacity
    return 0


cdef void extension_close(QueueExtension* e) noexcept nogil:
    cdef int32_t i
    for i in range(e.capacity):
        close_one(e, i)
    free(e.files)
    free(e.bytes)
    e.files = NULL
    e.bytes = NULL
    e.capacity = 0


cdef void close_one(QueueExtension* e, int32_t queue) noexcept nogil:
    if e.files[queue].fd_plus_one:
        store_io().close_file(e.files[queue].fd_plus_one - 1)
        e.files[queue].fd_plus_one = 0
        e.open_count -= 1


cdef void close_coldest(QueueExtension* e) noexcept nogil:
    """Close half of the open files: those not used in the recent half of all calls."""
    cdef int32_t i
    cdef int64_t oldest = e.use, middle
    for i in range(e.capacity):
        if e.files[i].fd_plus_one and e.files[i].use < oldest:
            oldest = e.files[i].use
    middle = oldest + (e.use - oldest + 1) // 2
    for i in range(e.capacity):
        if e.files[i].fd_plus_one and e.files[i].use <= middle and e.files[i].use != e.use:
            close_one(e, i)


cdef int folder_path(char* path, const char* folder, const QueueEntry* entry) noexcept nogil:
    return snprintf(path, LOG_PATH_MAX, "%s/%.*s/%d", folder, <int>entry.topic_length,
                    <const char*>entry.topic, <int>entry.queue_id)


cdef void file_path(QueueExtension* e, char* path, int32_t queue, int64_t first) noexcept nogil:
    cdef int length = folder_path(path, e.folder, &e.queues[queue])
    snprintf(path + length, LOG_PATH_MAX - length, "/%020lld", <long long>first)


cdef void make_folders(QueueExtension* e, const QueueEntry* entry) noexcept nogil:
    cdef char path[LOG_PATH_MAX]
    mkdir(e.folder, 0o755)             # what is missing shows when the file is opened
    snprintf(path, LOG_PATH_MAX, "%s/%.*s", e.folder, <int>entry.topic_length,
             <const char*>entry.topic)
    mkdir(path, 0o755)
    folder_path(path, e.folder, entry)
    mkdir(path, 0o755)


cdef int sync_left(QueueExtension* e, int32_t queue) noexcept nogil:
    """Bring the file that the queue's units went to so far to disk, open or not; 0 or errno."""
    cdef ExtensionFile* file = &e.files[queue]
    if not file.fd_plus_one:
        return extension_sync(e, queue)
    return errno if store_io().sync_data(file.fd_plus_one - 1) != 0 else 0


cdef int open_file(QueueExtension* e, int32_t queue, int64_t first) noexcept nogil:
    """The descriptor of the file that begins at `first`, or -1 and e.failure."""
    cdef ExtensionFile* file = &e.files[queue]
    cdef char path[LOG_PATH_MAX]
    cdef int32_t life = load_i32_acquire(&e.queues[queue].removal_done)
    cdef int fd
    e.use += 1
    file.use = e.use
    if file.fd_plus_one and file.first == first and file.life == life:
        return file.fd_plus_one - 1
    if e.writes and file.first != first:
        e.failure = sync_left(e, queue)         # extension_sync only knows the newest file
        if e.failure:
            return -1
    close_one(e, queue)
    if e.open_count >= e.open_max:
        close_coldest(e)
    file_path(e, path, queue, first)
    fd = store_io().open_file(path, (O_RDWR if e.writes else O_RDONLY) | O_CLOEXEC, 0)
    if fd < 0 and errno == ENOENT and e.writes:
        make_folders(e, &e.queues[queue])
        fd = store_io().open_file(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        if fd >= 0 and store_io().truncate(fd, e.file_size) != 0:
            e.failure = errno
            store_io().close_file(fd)
            return -1
    if fd < 0:
        e.failure = errno
        return -1
    file.fd_plus_one = fd + 1
    file.first = first
    file.life = life
    e.open_count += 1
    return fd


# -- where a queue's units end --------------------------------------------------------------------

cdef int last_address(QueueExtension* e, int32_t queue, int64_t end,
                      int64_t* address) noexcept nogil:
    """The address in the last entry below `end` that has one, 0: none does; 0 or errno."""
    cdef uint8_t entries[LOOK_ENTRIES * CQ_ENTRY_SIZE]
    cdef char path[LOG_PATH_MAX]
    cdef int64_t least = load_i64_acquire(&e.queues[queue].min_offset)
    cdef int64_t file_first, first
    cdef ssize_t got
    cdef int32_t i
    cdef int fd
    cdef QueueItem item
    address[0] = 0
    while end > least:
        file_first = (end - 1) // e.queue_file_entries * e.queue_file_entries
        first = max(max(file_first, least), end - LOOK_ENTRIES)
        queue_file_path(path, e.queue_folder, &e.queues[queue], file_first)
        fd = store_io().open_file(path, O_RDONLY | O_CLOEXEC, 0)
        if fd < 0:
            return 0 if errno == ENOENT else errno           # it was deleted meanwhile
        got = store_io().read_at(fd, entries, (end - first) * CQ_ENTRY_SIZE,
                                 (first - file_first) * CQ_ENTRY_SIZE)
        store_io().close_file(fd)
        if got < 0:
            return errno
        for i in range(<int32_t>(got // CQ_ENTRY_SIZE) - 1, -1, -1):
            item = entry_decode(entries + i * CQ_ENTRY_SIZE)
            if is_extension_address(item.tag_code) and item.record_size != CQ_FILLER_RECORD_SIZE:
                address[0] = item.tag_code
                return 0
        end = first
    return 0


cdef int64_t after_last_file(QueueExtension* e, int32_t queue) noexcept nogil:
    """Where the file after the queue's last one would begin."""
    cdef char path[LOG_PATH_MAX]
    cdef DIR* folder
    cdef dirent* entry
    cdef int64_t after = 0
    folder_path(path, e.folder, &e.queues[queue])
    folder = opendir(path)
    if folder == NULL:
        return 0
    while True:
        entry = readdir(folder)
        if entry == NULL:
            break
        if strlen(entry.d_name) == 20:
            after = max(after, <int64_t>strtoll(entry.d_name, NULL, 10) + e.file_size)
    closedir(folder)
    return after


cdef int drop_behind(QueueExtension* e, int32_t queue, int64_t end) noexcept nogil:
    """No unit stays behind `end` (X3); 0 or errno."""
    cdef char path[LOG_PATH_MAX]
    cdef int64_t first = end // e.file_size * e.file_size
    cdef int fd, error = 0
    file_path(e, path, queue, first)
    fd = store_io().open_file(path, O_RDWR | O_CLOEXEC, 0)
    if fd >= 0:
        if (store_io().truncate(fd, end - first) != 0
                or store_io().truncate(fd, e.file_size) != 0):
            error = errno
        store_io().close_file(fd)
    elif errno != ENOENT:
        error = errno
    while error == 0:
        first += e.file_size
        file_path(e, path, queue, first)
        if unlink(path) != 0:
            return 0 if errno == ENOENT else errno
    return error


cdef int find_end(QueueExtension* e, int32_t queue) noexcept nogil:
    """Where a writer that does not know goes on (X3); 0 or errno."""
    cdef ExtensionFile* file = &e.files[queue]
    cdef int64_t max_offset = load_i64_acquire(&e.queues[queue].max_offset)
    cdef int64_t address, end = 0
    cdef ExtensionUnit unit
    cdef int error = last_address(e, queue, max_offset, &address)
    if error:
        return error
    if address:
        end = address - EXTENSION_ADDRESS_BASE
        extension_fresh(e)
        if extension_read(e, queue, address, &unit):
            end += EXTENSION_UNIT_HEAD + unit.bits_length
        else:                                    # lost with the disk's last pages: leave its place
            end = (end // e.file_size + 1) * e.file_size
    elif max_offset > 0:
        end = after_last_file(e, queue)          # its entries are older than the extension, or gone
    close_one(e, queue)
    error = drop_behind(e, queue, end)
    if error:
        return error
    file.end = end
    file.first = end // e.file_size * e.file_size
    store_i32_release(&file.dirty, 1)            # an earlier writer may not have synced it
    file.life = load_i32_acquire(&e.queues[queue].removal_done)
    file.known = 1
    return 0


# -- writing --------------------------------------------------------------------------------------

cdef int extension_begin(QueueExtension* e, int32_t queue) noexcept nogil:
    cdef ExtensionFile* file = &e.files[queue]
    cdef int error
    if not file.known or file.life != load_i32_acquire(&e.queues[queue].removal_done):
        extension_forget(e, queue)
        error = find_end(e, queue)
        if error:
            e.failure = error
            return error
    e.queue = queue
    e.length = 0
    e.start = e.end = file.end
    return 0


cdef int extension_append(QueueExtension* e, const ExtensionUnit* unit,
                          int64_t* address) noexcept nogil:
    cdef int64_t size = EXTENSION_UNIT_HEAD + unit.bits_length
    cdef int64_t room = e.file_size - e.end % e.file_size
    cdef uint8_t* at
    cdef int error
    if size > EXTENSION_UNIT_MAX or size > e.file_size - EXTENSION_END_ROOM:
        return 0
    if size > room - EXTENSION_END_ROOM:
        if room < 2:
            return EFBIG                         # no unit ends there: the files are not ours (X2)
        store_i16(e.bytes + e.length, EXTENSION_FILE_END)
        e.length += 2
        error = extension_flush(e)
        if error:
            return error
        e.end += room
        e.start = e.end
    elif e.length + size > EXTENSION_GATHER:
        error = extension_flush(e)
        if error:
            return error
    at = e.bytes + e.length
    store_i16(at + EXTENSION_UNIT_SIZE, <int16_t>size)
    store_i64(at + EXTENSION_UNIT_TAG_CODE, unit.tag_code)
    store_i64(at + EXTENSION_UNIT_STORE_TIME, unit.store_time_ms)
    store_i16(at + EXTENSION_UNIT_MAP_LENGTH, <int16_t>unit.bits_length)
    if unit.bits_length:
        memcpy(at + EXTENSION_UNIT_HEAD, unit.bits, unit.bits_length)
    address[0] = e.end + EXTENSION_ADDRESS_BASE
    e.length += <int32_t>size
    e.end += size
    return 0


cdef int extension_flush(QueueExtension* e) noexcept nogil:
    cdef int64_t first = e.start // e.file_size * e.file_size
    cdef int fd, error
    if e.length == 0:
        return 0
    fd = open_file(e, e.queue, first)
    if fd < 0:
        return e.failure
    error = write_all_at(fd, e.bytes, e.length, e.start - first)
    if error:
        e.failure = error
        return error
    store_i32_release(&e.files[e.queue].dirty, 1)
    e.start += e.length
    e.length = 0
    return 0


cdef void extension_keep(QueueExtension* e) noexcept nogil:
    e.files[e.queue].end = e.end
    e.queue = -1


cdef void extension_forget(QueueExtension* e, int32_t queue) noexcept nogil:
    close_one(e, queue)
    e.files[queue].known = 0
    store_i32_release(&e.files[queue].dirty, 0)


cdef int extension_sync(QueueExtension* e, int32_t queue) noexcept nogil:
    # called by the sync thread too: uses a descriptor of its own
    cdef char path[LOG_PATH_MAX]
    cdef int fd, error = 0
    if not exchange_i32(&e.files[queue].dirty, 0):
        return 0
    file_path(e, path, queue, e.files[queue].first)
    fd = store_io().open_file(path, O_RDWR | O_CLOEXEC, 0)
    if fd < 0:
        return errno if errno != ENOENT else 0         # the queue was removed meanwhile
    if store_io().sync_data(fd) != 0:
        error = errno
    store_io().close_file(fd)
    return error


# -- reading --------------------------------------------------------------------------------------

cdef void extension_fresh(QueueExtension* e) noexcept nogil:
    e.queue = -1
    e.length = 0


cdef bint unit_at(QueueExtension* e, int64_t place, ExtensionUnit* unit) noexcept nogil:
    """The unit at a place of the window, if it is there as a whole."""
    cdef int64_t index = place - e.start
    cdef const uint8_t* at = e.bytes + index
    cdef int32_t size
    if index < 0 or index + EXTENSION_UNIT_HEAD > e.length:
        return False
    size = load_i16(at + EXTENSION_UNIT_SIZE)
    unit.bits_length = load_i16(at + EXTENSION_UNIT_MAP_LENGTH)
    if (unit.bits_length < 0 or size != EXTENSION_UNIT_HEAD + unit.bits_length
            or index + size > e.length):
        return False
    unit.tag_code = load_i64(at + EXTENSION_UNIT_TAG_CODE)
    unit.store_time_ms = load_i64(at + EXTENSION_UNIT_STORE_TIME)
    unit.bits = at + EXTENSION_UNIT_HEAD
    return True


cdef bint look(QueueExtension* e, int32_t queue, int64_t place, int64_t size,
               ExtensionUnit* unit) noexcept nogil:
    """Read a window of at most `size` bytes from `place` on; whether a unit is there."""
    cdef int64_t first = place // e.file_size * e.file_size
    cdef int fd = open_file(e, queue, first)
    cdef ssize_t got
    if fd < 0:
        return False
    e.queue = queue
    e.start = place
    e.length = 0
    got = store_io().read_at(fd, e.bytes, min(size, first + e.file_size - place), place - first)
    if got < 0:
        e.failure = errno
        return False
    e.length = <int32_t>got
    return unit_at(e, place, unit)


cdef bint extension_read(QueueExtension* e, int32_t queue, int64_t address,
                         ExtensionUnit* unit) noexcept nogil:
    cdef int64_t place = address - EXTENSION_ADDRESS_BASE
    if e.queue == queue and unit_at(e, place, unit):
        return True
    return (look(e, queue, place, EXTENSION_WINDOW, unit)
            or look(e, queue, place, EXTENSION_UNIT_MAX, unit))


cdef void extension_let_go(QueueExtension* e) noexcept nogil:
    cdef int32_t i
    for i in range(e.capacity):
        close_one(e, i)
