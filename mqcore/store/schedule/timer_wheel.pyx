"""The timer wheel's files (timer_wheel.pxd has its rules)."""
from libc.errno cimport EEXIST, EFBIG, EIO, ENOENT, errno
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memset

from mqcore.atomics cimport release_fence
from mqcore.endian cimport load_i32, load_i64, store_i32, store_i64
from mqcore.store.io cimport store_io

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void* address, size_t length)
    int msync(void* address, size_t length, int flags)
    int PROT_READ
    int PROT_WRITE
    int MAP_SHARED
    int MS_SYNC

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_CLOEXEC
    int posix_fallocate(int fd, long offset, long length)

cdef extern from "<sys/stat.h>" nogil:
    int mkdir(const char* path, unsigned int mode)

cdef extern from "<dirent.h>" nogil:
    ctypedef struct LogFolder "DIR":
        pass
    cdef struct LogFolderEntry "dirent":
        char d_name[256]
    LogFolder* opendir(const char* path)
    LogFolderEntry* readdir(LogFolder* folder)
    int closedir(LogFolder* folder)

cdef extern from "<unistd.h>" nogil:
    long lseek(int fd, long offset, int whence)
    int SEEK_END
    int unlink(const char* path)
    int access(const char* path, int mode)
    int F_OK

cdef enum:
    SLOT_SECOND = 0
    SLOT_FIRST = 8
    SLOT_LAST = 16
    SLOT_UNITS = 24
    UNIT_SIZE = 0
    UNIT_PREVIOUS = 4
    UNIT_MAGIC = 12
    UNIT_WRITE_TIME = 16
    UNIT_DELAY = 24
    UNIT_LOG_POSITION = 28
    UNIT_RECORD_SIZE = 36
    UNIT_TOPIC_HASH = 40
    UNIT_STATE = 44                    # state in the lowest bits, above them the second
    STATE_BITS = 2
    STATE_MASK = (1 << STATE_BITS) - 1
    CHECK_SIZE = 4096
    CHECK_SECOND = 0
    CHECK_END = 8
    CHECK_OFFSET = 16
    CHECK_MASTER_OFFSET = 24
    CHECK_OUR_SECOND = 2048            # the same again: they differ when another broker wrote since
    CHECK_OUR_OFFSET = 2056
    BLANK_SIZE = 8                     # size and magic of what ends a file
    WHEEL_SIZE = WHEEL_SLOTS * WHEEL_SLOT_SIZE
    MODE = 0o644
    FOLDER_MODE = 0o755

cdef uint32_t BLANK_MAGIC = 0xBBCCDDEE ^ 1880681594


cdef uint8_t* map_file(const char* path, int64_t size, bint may_make, int* error) noexcept nogil:
    """A whole file, allocated and mapped (TW3); NULL: error, EIO for one that is shorter or longer."""
    cdef int fd = store_io().open_file(path, O_RDWR | O_CLOEXEC | (O_CREAT if may_make else 0), MODE)
    cdef void* bytes
    cdef long found
    if fd < 0:
        error[0] = errno
        return NULL
    found = lseek(fd, 0, SEEK_END)
    error[0] = posix_fallocate(fd, 0, size) if found == size or (found == 0 and may_make) else EIO
    if error[0]:
        store_io().close_file(fd)
        return NULL
    bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    error[0] = errno if <long>bytes == -1 else 0
    store_io().close_file(fd)
    return NULL if error[0] else <uint8_t*>bytes


cdef int make_folder(const TimerWheel* wheel, const char* name) noexcept nogil:
    cdef char path[TIMER_PATH_MAX + 64]
    snprintf(path, sizeof(path), b"%s/%s", wheel.root, name)
    return 0 if mkdir(path, FOLDER_MODE) == 0 or errno == EEXIST else errno


cdef void file_path(const TimerWheel* wheel, int64_t number, char* path, size_t size) noexcept nogil:
    snprintf(path, size, b"%s/timerlog/%020lld", wheel.root, <long long>(number * TIMER_FILE_SIZE))


cdef int map_more(TimerWheel* wheel, bint may_make) noexcept nogil:
    """The file behind the last one; 0 or errno."""
    cdef char path[TIMER_PATH_MAX + 64]
    cdef int error = 0
    if wheel.file_count == TIMER_FILES_MAX:
        return EFBIG
    file_path(wheel, wheel.first_file + wheel.file_count, path, sizeof(path))
    wheel.files[wheel.file_count] = map_file(path, TIMER_FILE_SIZE, may_make, &error)
    if wheel.files[wheel.file_count] != NULL:
        wheel.file_count += 1
    return error


cdef inline uint8_t* unit_at(const TimerWheel* wheel, int64_t position) noexcept nogil:
    cdef int64_t file = position // TIMER_FILE_SIZE - wheel.first_file
    if position < 0 or not 0 <= file < wheel.file_count or (
            position % TIMER_FILE_SIZE > TIMER_FILE_SIZE - TIMER_UNIT_SIZE):
        return NULL
    return wheel.files[file] + position % TIMER_FILE_SIZE


cdef inline uint8_t* slot_of(const TimerWheel* wheel, int64_t second) noexcept nogil:
    return wheel.slots + second % WHEEL_SLOTS * WHEEL_SLOT_SIZE


cdef bint wheel_unit(const TimerWheel* wheel, int64_t position, TimerUnit* unit) noexcept nogil:
    cdef const uint8_t* at = unit_at(wheel, position)
    if at == NULL or load_i32(at + UNIT_SIZE) != TIMER_UNIT_SIZE:
        return False
    unit.position = position
    unit.previous = load_i64(at + UNIT_PREVIOUS)
    unit.magic = load_i32(at + UNIT_MAGIC)
    unit.due_ms = load_i64(at + UNIT_WRITE_TIME) + load_i32(at + UNIT_DELAY)
    unit.log_position = load_i64(at + UNIT_LOG_POSITION)
    unit.size = load_i32(at + UNIT_RECORD_SIZE)
    unit.topic_hash = load_i32(at + UNIT_TOPIC_HASH)
    unit.state = load_i64(at + UNIT_STATE)
    unit.second = unit.state >> STATE_BITS
    if unit.second == 0:               # a stock broker's
        unit.second = (unit.due_ms - 1) // 1000
    unit.state &= STATE_MASK
    return True


cdef int64_t wheel_behind(const TimerWheel* wheel, int64_t position) noexcept nogil:
    position = max(position + TIMER_UNIT_SIZE, wheel.first_file * TIMER_FILE_SIZE)
    if position % TIMER_FILE_SIZE > TIMER_FILE_SIZE - TIMER_UNIT_SIZE:
        position += TIMER_FILE_SIZE - position % TIMER_FILE_SIZE
    return position


cdef void wheel_mark(TimerWheel* wheel, int64_t position, int64_t state) noexcept nogil:
    cdef uint8_t* at = unit_at(wheel, position)
    if at != NULL:
        store_i64(at + UNIT_STATE, load_i64(at + UNIT_STATE) | state)


cdef void link(TimerWheel* wheel, int64_t second, int64_t position) noexcept nogil:
    cdef uint8_t* slot = slot_of(wheel, second)
    if load_i64(slot + SLOT_SECOND) != second:
        store_i64(slot + SLOT_FIRST, position)
        store_i32(slot + SLOT_UNITS, 0)
        store_i64(slot + SLOT_LAST, -1)
        release_fence()
        store_i64(slot + SLOT_SECOND, second)
    store_i32(slot + SLOT_UNITS, load_i32(slot + SLOT_UNITS) + 1)
    release_fence()                                                                   # TW1
    store_i64(slot + SLOT_LAST, position)
    wheel.last_second = max(wheel.last_second, second)


cdef int64_t wheel_last(const TimerWheel* wheel, int64_t second) noexcept nogil:
    cdef const uint8_t* slot = slot_of(wheel, second)
    return load_i64(slot + SLOT_LAST) if load_i64(slot + SLOT_SECOND) == second else -1


cdef int32_t wheel_units(const TimerWheel* wheel, int64_t second) noexcept nogil:
    cdef const uint8_t* slot = slot_of(wheel, second)
    return load_i32(slot + SLOT_UNITS) if load_i64(slot + SLOT_SECOND) == second else 0


cdef void wheel_clear(TimerWheel* wheel, int64_t second) noexcept nogil:
    cdef uint8_t* slot = slot_of(wheel, second)
    if load_i64(slot + SLOT_SECOND) == second:
        store_i64(slot + SLOT_SECOND, 0)
        store_i64(slot + SLOT_LAST, -1)
        store_i64(slot + SLOT_FIRST, -1)
        store_i32(slot + SLOT_UNITS, 0)


cdef void wheel_drop_settled(TimerWheel* wheel, int64_t second) noexcept nogil:
    cdef uint8_t* slot = slot_of(wheel, second)
    cdef int64_t position = wheel_last(wheel, second), kept = -1
    cdef int32_t count = 0
    cdef TimerUnit unit
    while position >= 0 and wheel_unit(wheel, position, &unit):
        position = unit.previous
        if unit.state & UNIT_SETTLED:
            continue
        if kept < 0:
            store_i64(slot + SLOT_LAST, unit.position)
        else:
            store_i64(unit_at(wheel, kept) + UNIT_PREVIOUS, unit.position)
        kept = unit.position
        count += 1
    if kept < 0:
        wheel_clear(wheel, second)
        return
    store_i64(unit_at(wheel, kept) + UNIT_PREVIOUS, -1)
    store_i64(slot + SLOT_FIRST, kept)
    store_i32(slot + SLOT_UNITS, count)


cdef int64_t wheel_next(const TimerWheel* wheel, int64_t second) noexcept nogil:
    while second <= wheel.last_second:
        if wheel_units(wheel, second) > 0:
            return second
        second += 1
    return INT64_MAX


cdef int64_t place_for_unit(TimerWheel* wheel) noexcept nogil:
    """Where the next unit may stand, with a file under it; or -errno."""
    cdef int64_t left = TIMER_FILE_SIZE - wheel.end % TIMER_FILE_SIZE
    cdef uint8_t* at
    cdef int error
    if left < TIMER_UNIT_SIZE + BLANK_SIZE:
        at = wheel.files[wheel.file_count - 1] + TIMER_FILE_SIZE - left
        store_i32(at, <int32_t>left)
        store_i32(at + 4, <int32_t>BLANK_MAGIC)
        wheel.end += left
    if wheel.end // TIMER_FILE_SIZE - wheel.first_file >= wheel.file_count:
        error = map_more(wheel, True)
        if error:
            return -error
    return wheel.end


cdef int64_t wheel_add(TimerWheel* wheel, const TimerUnit* unit, int64_t now_ms) noexcept nogil:
    cdef int64_t position = place_for_unit(wheel)
    cdef uint8_t* at
    if position < 0:
        return position
    at = unit_at(wheel, position)
    store_i64(at + UNIT_PREVIOUS, wheel_last(wheel, unit.second))
    store_i32(at + UNIT_MAGIC, unit.magic)
    store_i64(at + UNIT_WRITE_TIME, now_ms)
    store_i32(at + UNIT_DELAY, <int32_t>min(max(unit.due_ms - now_ms, <int64_t>INT32_MIN),
                                            <int64_t>INT32_MAX))
    store_i64(at + UNIT_LOG_POSITION, unit.log_position)
    store_i32(at + UNIT_RECORD_SIZE, unit.size)
    store_i32(at + UNIT_TOPIC_HASH, unit.topic_hash)
    store_i64(at + UNIT_STATE, unit.second << STATE_BITS | unit.state)
    release_fence()
    store_i32(at + UNIT_SIZE, TIMER_UNIT_SIZE)
    wheel.end = position + TIMER_UNIT_SIZE
    wheel.last_log_position, wheel.last_size = unit.log_position, unit.size
    release_fence()
    link(wheel, unit.second, position)
    store_i64(wheel.check + CHECK_END, wheel.end)
    return position


# -- open and close --------------------------------------------------------------------------------


cdef void drop_files(const TimerWheel* wheel) noexcept nogil:
    """All of the timer log: of a file that stays, units would be taken for those of a new wheel."""
    cdef char path[TIMER_PATH_MAX + 320]
    cdef LogFolder* folder
    cdef LogFolderEntry* entry
    snprintf(path, sizeof(path), b"%s/timerlog", wheel.root)
    folder = opendir(path)
    if folder == NULL:
        return
    while True:
        entry = readdir(folder)
        if entry == NULL:
            break
        snprintf(path, sizeof(path), b"%s/timerlog/%s", wheel.root, entry.d_name)
        unlink(path)                   # not of the folders `.` and `..`
    closedir(folder)


cdef int find_end(TimerWheel* wheel) noexcept nogil:
    """The unit behind the last one, from what `timercheck` says on; the last unit is linked (TW1)."""
    cdef TimerUnit unit
    cdef int64_t last = -1, before
    wheel.end = load_i64(wheel.check + CHECK_END)
    if not 0 <= wheel.end - wheel.first_file * TIMER_FILE_SIZE <= (
            <int64_t>wheel.file_count * TIMER_FILE_SIZE):
        return EIO
    if wheel.end % TIMER_FILE_SIZE >= TIMER_UNIT_SIZE:
        last = wheel.end - TIMER_UNIT_SIZE
    elif wheel.end > wheel.first_file * TIMER_FILE_SIZE:
        last = (wheel.end // TIMER_FILE_SIZE * TIMER_FILE_SIZE
                - TIMER_FILE_SIZE % TIMER_UNIT_SIZE - TIMER_UNIT_SIZE)
    if last >= 0 and not wheel_unit(wheel, last, &unit):
        last = -1
    while wheel_unit(wheel, wheel.end, &unit) and unit.log_position > 0:
        last = wheel.end
        wheel.end += TIMER_UNIT_SIZE
    wheel.last_log_position = -1
    if last < 0:
        return 0
    if not wheel_unit(wheel, last, &unit):
        return EIO
    wheel.last_log_position, wheel.last_size = unit.log_position, unit.size
    before = wheel_last(wheel, unit.second)
    if before == unit.previous and not unit.state & UNIT_SETTLED and before != last:
        link(wheel, unit.second, last)
    store_i64(wheel.check + CHECK_END, wheel.end)
    return 0


cdef int find_files(TimerWheel* wheel) noexcept nogil:
    """The first file is the one that the first unsettled slot, or `timercheck`, speaks of; 0 or errno."""
    cdef char path[TIMER_PATH_MAX + 64]
    cdef int64_t number = load_i64(wheel.check + CHECK_END) // TIMER_FILE_SIZE
    cdef int error
    wheel.first_file = number
    while wheel.first_file > 0:
        file_path(wheel, wheel.first_file - 1, path, sizeof(path))
        if access(path, F_OK):
            break
        wheel.first_file -= 1
    while True:
        error = map_more(wheel, False)
        if error == ENOENT:
            return 0
        if error:
            return error


cdef void find_last_second(TimerWheel* wheel) noexcept nogil:
    cdef int64_t i, second
    wheel.last_second = -1
    for i in range(WHEEL_SLOTS):
        second = load_i64(wheel.slots + i * WHEEL_SLOT_SIZE + SLOT_SECOND)
        if second >= 0 and second % WHEEL_SLOTS == i and (
                load_i64(wheel.slots + i * WHEEL_SLOT_SIZE + SLOT_LAST) >= 0):
            wheel.last_second = max(wheel.last_second, second)


cdef int open_files(TimerWheel* wheel, bint fresh) noexcept nogil:
    cdef char path[TIMER_PATH_MAX + 64]
    cdef int error = make_folder(wheel, b"timerlog")
    if not error:
        error = make_folder(wheel, b"config")
    if error:
        return error
    snprintf(path, sizeof(path), b"%s/config/timercheck", wheel.root)
    if fresh:
        unlink(path)
        drop_files(wheel)
    wheel.check = map_file(path, CHECK_SIZE, True, &error)
    if error:
        return error
    snprintf(path, sizeof(path), b"%s/timerwheel", wheel.root)
    if fresh:
        unlink(path)
    wheel.slots = map_file(path, WHEEL_SIZE, fresh, &error)
    if error:
        return error
    error = find_files(wheel)
    if not error and not fresh:
        error = find_end(wheel)
    if not error:
        find_last_second(wheel)
    return error


cdef int wheel_open(TimerWheel* wheel, const char* root, bint fresh) noexcept nogil:
    cdef int error
    memset(wheel, 0, sizeof(TimerWheel))
    wheel.last_log_position = wheel.last_second = -1
    snprintf(wheel.root, sizeof(wheel.root), b"%s", root)
    error = open_files(wheel, fresh)
    if error:
        wheel_close(wheel)
    return error


cdef void wheel_close(TimerWheel* wheel) noexcept nogil:
    cdef int32_t i
    for i in range(wheel.file_count):
        munmap(wheel.files[i], TIMER_FILE_SIZE)
    wheel.file_count = 0
    if wheel.check != NULL:
        munmap(wheel.check, CHECK_SIZE)
    if wheel.slots != NULL:
        munmap(wheel.slots, WHEEL_SIZE)
    wheel.check = wheel.slots = NULL


# -- notes and room --------------------------------------------------------------------------------


cdef void wheel_note(TimerWheel* wheel, int64_t second, int64_t queue_offset) noexcept nogil:
    store_i64(wheel.check + CHECK_SECOND, second * 1000)
    store_i64(wheel.check + CHECK_OFFSET, queue_offset)
    store_i64(wheel.check + CHECK_MASTER_OFFSET, queue_offset)
    store_i64(wheel.check + CHECK_OUR_SECOND, second * 1000)
    store_i64(wheel.check + CHECK_OUR_OFFSET, queue_offset)


cdef int64_t wheel_noted_second(const TimerWheel* wheel) noexcept nogil:
    return load_i64(wheel.check + CHECK_SECOND) // 1000


cdef int64_t wheel_noted_offset(const TimerWheel* wheel) noexcept nogil:
    return min(load_i64(wheel.check + CHECK_OFFSET), load_i64(wheel.check + CHECK_MASTER_OFFSET))


cdef bint is_over(const TimerWheel* wheel, int64_t second) noexcept nogil:
    """Whether all units of the first file are of seconds before `second`."""
    cdef TimerUnit unit
    cdef int64_t position = wheel.first_file * TIMER_FILE_SIZE
    cdef int64_t end = position + TIMER_FILE_SIZE
    while wheel_unit(wheel, position, &unit):
        if unit.second >= second:
            return False
        position += TIMER_UNIT_SIZE
    return position < end


cdef void wheel_trim(TimerWheel* wheel, int64_t second) noexcept nogil:
    cdef char path[TIMER_PATH_MAX + 64]
    cdef int32_t i
    while wheel.file_count > 1 and is_over(wheel, second):
        munmap(wheel.files[0], TIMER_FILE_SIZE)
        file_path(wheel, wheel.first_file, path, sizeof(path))
        unlink(path)
        wheel.first_file += 1
        wheel.file_count -= 1
        for i in range(wheel.file_count):
            wheel.files[i] = wheel.files[i + 1]


cdef int wheel_sync(TimerWheel* wheel) noexcept nogil:
    """To the disk; 0 or errno."""
    cdef int32_t i
    for i in range(wheel.file_count):
        if msync(wheel.files[i], TIMER_FILE_SIZE, MS_SYNC):
            return errno
    if msync(wheel.slots, WHEEL_SIZE, MS_SYNC) or msync(wheel.check, CHECK_SIZE, MS_SYNC):
        return errno
    return 0
