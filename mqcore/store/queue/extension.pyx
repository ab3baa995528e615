"""Reads and writes consume queue extension files (extension.pxd has their rules)."""
from libc.errno cimport EFBIG, ENOENT, ENOMEM, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, strtoll
from libc.string cimport memcpy, memset, strlen, strncpy
from posix.fcntl cimport O_CLOEXEC, O_RDONLY, O_RDWR

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.endian cimport load_i16, load_i64, store_i16, store_i64
from mqcore.layout cimport CQ_ENTRY_SIZE, CQ_FILLER_RECORD_SIZE, QueueEntry
from mqcore.store.queue.consume_queue cimport QueueItem, entry_decode, queue_file_path
from mqcore.store.io cimport store_io
from mqcore.store.log.view cimport LOG_PATH_MAX
from mqcore.store.queue.open_files cimport (
    FILE_NAME_LENGTH,
    NAMES_ROOM,
    open_file_at,
    open_file_close,
    open_file_distrust,
    open_file_folder,
    open_file_forget,
    open_file_path,
    open_file_write,
    open_files_begin,
    open_files_end,
    open_files_sync,
)

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
    e.queue_file_entries = queue_file_entries
    e.queue = -1
    strncpy(e.queue_folder, queue_folder, LOG_PATH_MAX - NAMES_ROOM)
    e.ends = <ExtensionEnd*>calloc(capacity, sizeof(ExtensionEnd))
    e.bytes = <uint8_t*>malloc(EXTENSION_GATHER + EXTENSION_UNIT_MAX)
    if e.ends == NULL or e.bytes == NULL:
        return ENOMEM
    return open_files_begin(&e.open, queues, capacity, folder, file_size, open_max, writes)


cdef void extension_close(QueueExtension* e) noexcept nogil:
    open_files_end(&e.open)
    free(e.ends)
    free(e.bytes)
    e.ends = NULL
    e.bytes = NULL


# -- where a queue's units end --------------------------------------------------------------------

cdef int last_address(QueueExtension* e, int32_t queue, int64_t end,
                      int64_t* address) noexcept nogil:
    """The address in the last entry below `end` that has one, 0: none does; 0 or errno."""
    cdef uint8_t entries[LOOK_ENTRIES * CQ_ENTRY_SIZE]
    cdef char path[LOG_PATH_MAX]
    cdef int64_t least = load_i64_acquire(&e.open.queues[queue].min_offset)
    cdef int64_t file_first, first
    cdef ssize_t got
    cdef int32_t i
    cdef int fd
    cdef QueueItem item
    address[0] = 0
    while end > least:
        file_first = (end - 1) // e.queue_file_entries * e.queue_file_entries
        first = max(max(file_first, least), end - LOOK_ENTRIES)
        queue_file_path(path, e.queue_folder, &e.open.queues[queue], file_first)
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
    open_file_folder(path, e.open.folder, &e.open.queues[queue])
    folder = opendir(path)
    if folder == NULL:
        return 0
    while True:
        entry = readdir(folder)
        if entry == NULL:
            break
        if strlen(entry.d_name) == FILE_NAME_LENGTH:
            after = max(after, <int64_t>strtoll(entry.d_name, NULL, 10) + e.open.file_size)
    closedir(folder)
    return after


cdef int drop_behind(QueueExtension* e, int32_t queue, int64_t end) noexcept nogil:
    """No unit stays behind `end` (X3); 0 or errno."""
    cdef char path[LOG_PATH_MAX]
    cdef int64_t first = end // e.open.file_size * e.open.file_size
    cdef int fd, error = 0
    open_file_path(path, e.open.folder, &e.open.queues[queue], first)
    fd = store_io().open_file(path, O_RDWR | O_CLOEXEC, 0)
    if fd >= 0:
        if (store_io().truncate(fd, end - first) != 0
                or store_io().truncate(fd, e.open.file_size) != 0):
            error = errno
        store_io().close_file(fd)
    elif errno != ENOENT:
        error = errno
    while error == 0:
        first += e.open.file_size
        open_file_path(path, e.open.folder, &e.open.queues[queue], first)
        if unlink(path) != 0:
            return 0 if errno == ENOENT else errno
    return error


cdef int find_end(QueueExtension* e, int32_t queue) noexcept nogil:
    """Where a writer that does not know goes on (X3); 0 or errno."""
    cdef ExtensionEnd* known = &e.ends[queue]
    cdef int64_t max_offset = load_i64_acquire(&e.open.queues[queue].max_offset)
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
            end = (end // e.open.file_size + 1) * e.open.file_size
    elif max_offset > 0:
        end = after_last_file(e, queue)          # its entries are older than the extension, or gone
    open_file_close(&e.open, queue)
    error = drop_behind(e, queue, end)
    if error:
        return error
    open_file_distrust(&e.open, queue, end // e.open.file_size * e.open.file_size)
    known.place = end
    known.life = load_i32_acquire(&e.open.queues[queue].removal_done)
    known.known = 1
    return 0


# -- writing --------------------------------------------------------------------------------------

cdef int extension_begin(QueueExtension* e, int32_t queue) noexcept nogil:
    cdef ExtensionEnd* known = &e.ends[queue]
    cdef int error
    if not known.known or known.life != load_i32_acquire(&e.open.queues[queue].removal_done):
        extension_forget(e, queue)
        error = find_end(e, queue)
        if error:
            e.open.failure = error
            return error
    e.queue = queue
    e.length = 0
    e.start = e.end = known.place
    return 0


cdef int extension_append(QueueExtension* e, const ExtensionUnit* unit,
                          int64_t* address) noexcept nogil:
    cdef int64_t size = EXTENSION_UNIT_HEAD + unit.bits_length
    cdef int64_t room = e.open.file_size - e.end % e.open.file_size
    cdef uint8_t* at
    cdef int error
    if size > EXTENSION_UNIT_MAX or size > e.open.file_size - EXTENSION_END_ROOM:
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
    cdef int64_t first = e.start // e.open.file_size * e.open.file_size
    cdef int error
    if e.length == 0:
        return 0
    error = open_file_write(&e.open, e.queue, first, e.bytes, e.length, e.start - first)
    if error:
        return error
    e.start += e.length
    e.length = 0
    return 0


cdef void extension_keep(QueueExtension* e) noexcept nogil:
    e.ends[e.queue].place = e.end
    e.queue = -1


cdef void extension_forget(QueueExtension* e, int32_t queue) noexcept nogil:
    open_file_forget(&e.open, queue)
    e.ends[queue].known = 0


cdef int extension_sync(QueueExtension* e, int32_t count, bint together) noexcept nogil:
    return open_files_sync(&e.open, count, together)


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
    cdef int64_t first = place // e.open.file_size * e.open.file_size
    cdef int fd = open_file_at(&e.open, queue, first)
    cdef ssize_t got
    if fd < 0:
        return False
    e.queue = queue
    e.start = place
    e.length = 0
    got = store_io().read_at(fd, e.bytes, min(size, first + e.open.file_size - place),
                             place - first)
    if got < 0:
        e.open.failure = errno
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
    cdef int32_t queue
    for queue in range(e.open.capacity):
        open_file_close(&e.open, queue)
