"""Writes and reads the checksums beside the commit log (checksums.pxd has their rules)."""
from libc.errno cimport EINTR, ENOENT, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from mqcore.endian cimport load_i32, load_u32, store_i32
from mqcore.invariants cimport invariant
from mqcore.layout cimport (
    BLANK_SIZE_MIN,
    CHECKSUM_ENTRY_CRC,
    CHECKSUM_ENTRY_END,
    CHECKSUM_ENTRY_SIZE,
    MAGIC_BLANK,
    RECORD_MAGIC,
    RECORD_SIZE,
)
from mqcore.store.crc32 cimport record_crc
from mqcore.store.io cimport PAGE, store_io, write_all_at
from mqcore.store.log.log_folders cimport (
    FOLDER_PATH_MAX,
    log_checksums_folder,
    segment_path,
)

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_RDWR
    int O_CREAT
    int O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    long lseek(int fd, long offset, int whence)
    int SEEK_END

cdef extern from "<sys/stat.h>" nogil:
    int mkdir(const char* path, unsigned int mode)

cdef extern from "<errno.h>" nogil:
    int EEXIST

cdef extern from *:
    """
    #include <sys/stat.h>
    #include <sys/vfs.h>
    /* Whether bytes that were handed to the disk are on it after a sync of another file: both lie on
       one device, on a file system that writes in place and whose sync empties the disk's cache. */
    static int mq_pushes(int fd, const char *beside) {
      struct statfs kind;
      struct stat own, other;
      if (fstatfs(fd, &kind) != 0 || fstat(fd, &own) != 0 || stat(beside, &other) != 0) return 0;
      if (own.st_dev != other.st_dev) return 0;
      return kind.f_type == 0xEF53 /* ext4 */ || kind.f_type == 0x58465342 /* xfs */ ||
             kind.f_type == 0x01021994 /* tmpfs: there is no disk */;
    }
    """
    int mq_pushes(int fd, const char* beside) noexcept nogil

cdef enum:
    PREPARE_BYTES = 256 << 10         # of zeros, written ahead and synced: 32,768 records


# -- who writes ------------------------------------------------------------------------------------


cdef int open_or_make(ChecksumFile* c, const char* folder, const char* path) noexcept nogil:
    """The file; a new one's name is to be synced. 0 or errno."""
    c.fd = store_io().open_file(path, O_RDWR | O_CLOEXEC, 0)
    if c.fd >= 0:
        return 0
    if errno != ENOENT:
        return errno
    if mkdir(folder, 0o755) != 0 and errno != EEXIST:
        return errno
    c.fd = store_io().open_file(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
    if c.fd >= 0 and c.to_disk:
        c.folder_fd = store_io().open_file(folder, O_RDONLY | O_CLOEXEC, 0)
    return errno if c.fd < 0 or (c.to_disk and c.folder_fd < 0) else 0


cdef int read_end(int fd, int64_t number, int64_t* end) noexcept nogil:
    """Where the record of an entry ends, 0: there is no entry; 0 or errno."""
    cdef uint8_t entry[CHECKSUM_ENTRY_SIZE]
    cdef ssize_t got
    memset(entry, 0, CHECKSUM_ENTRY_SIZE)
    while True:
        got = store_io().read_at(fd, entry, CHECKSUM_ENTRY_SIZE, number * CHECKSUM_ENTRY_SIZE)
        if got >= 0:
            break
        if errno != EINTR:
            return errno
    end[0] = load_u32(entry + CHECKSUM_ENTRY_END)
    return 0


cdef int find_count(ChecksumFile* c, int64_t wanted) noexcept nogil:
    """
    How many entries end at or before `wanted`, and where the last of them does; 0 or errno. Where one
    ends there, a wrong end of another does not hide it (CS6).
    """
    cdef int64_t low = 0, high = c.prepared // CHECKSUM_ENTRY_SIZE, middle, end = 0, number
    cdef int64_t all_of_them = high
    cdef int error
    while low < high:
        middle = (low + high) // 2
        error = read_end(c.fd, middle, &end)
        if error:
            return error
        if 0 < end <= wanted:
            low = middle + 1
        else:
            high = middle
    c.end = 0
    error = read_end(c.fd, low - 1, &c.end) if low else 0
    if error == 0 and c.end != wanted:
        for number in range(all_of_them):
            error = read_end(c.fd, number, &end)
            if error:
                return error
            if end == wanted:
                low = number + 1
                c.end = end
                break
    c.count = low
    return error


cdef int clear_behind(ChecksumFile* c) noexcept nogil:
    """Nothing but zeros behind the last entry (CS1); the file keeps its length: readers map it."""
    cdef uint8_t zeros[PAGE]
    cdef int64_t at = c.count * CHECKSUM_ENTRY_SIZE, part
    cdef int error = 0
    memset(zeros, 0, PAGE)
    while at < c.prepared and error == 0:
        part = min(<int64_t>PAGE, c.prepared - at)
        error = write_all_at(c.fd, zeros, part, at)
        at += part
    return error


cdef int checksums_open(ChecksumFile* c, const char* folders, int64_t base, int64_t segment_size,
                        int64_t end, bint to_disk) noexcept nogil:
    cdef char folder[FOLDER_PATH_MAX]
    cdef char path[FOLDER_PATH_MAX]
    cdef char log_folder[FOLDER_PATH_MAX]
    cdef int error
    c.fd = c.folder_fd = -1
    c.to_disk = to_disk
    if not log_checksums_folder(folders, base, folder, log_folder):
        return ENOENT
    segment_path(path, folder, base)
    error = open_or_make(c, folder, path)
    if error:
        checksums_close(c)
        return error
    c.base = base
    c.segment_size = segment_size
    c.on_disk = 0
    c.pushes = to_disk and mq_pushes(c.fd, log_folder)
    c.dirty = -1
    c.prepared = max(lseek(c.fd, 0, SEEK_END), <long>0)
    error = find_count(c, end - base)
    if error == 0:
        error = clear_behind(c)
    if error == 0 and c.end < end - base:
        set_entry(c.entries, end - base, 0)
        error = write_entries(c, 1, end - base)
    if error:
        checksums_close(c)
    return error


cdef void checksums_close(ChecksumFile* c) noexcept nogil:
    if c.fd >= 0:
        store_io().close_file(c.fd)
    if c.folder_fd >= 0:
        store_io().close_file(c.folder_fd)
    c.fd = c.folder_fd = -1


cdef void checksums_replace(ChecksumFile* c, ChecksumFile* other) noexcept nogil:
    checksums_close(c)
    memcpy(c, other, sizeof(ChecksumFile))


cdef inline void set_entry(uint8_t* at, int64_t end, uint32_t crc) noexcept nogil:
    store_i32(at + CHECKSUM_ENTRY_END, <int32_t>end)
    store_i32(at + CHECKSUM_ENTRY_CRC, <int32_t>crc)


cdef inline uint32_t crc_of(const uint8_t* record, int64_t length) noexcept nogil:
    cdef uint32_t crc = record_crc(record, length)
    return crc if crc else 0xFFFFFFFF           # 0 says that nothing is known


cdef int prepare(ChecksumFile* c, int64_t size) noexcept nogil:
    """CS4: zeros for the first `size` bytes and more; 0 or errno."""
    cdef uint8_t zeros[PAGE]
    cdef int64_t stop
    cdef int error
    memset(zeros, 0, PAGE)
    while c.prepared < size:
        stop = c.prepared + PREPARE_BYTES
        while c.prepared < stop:
            error = write_all_at(c.fd, zeros, PAGE, c.prepared)
            if error:
                return error
            c.prepared += PAGE
    return 0


cdef int write_entries(ChecksumFile* c, int64_t count, int64_t end) noexcept nogil:
    """The first `count` of c.entries, the last of which ends at `end`; 0 or errno."""
    cdef int64_t at = c.count * CHECKSUM_ENTRY_SIZE
    cdef int error = 0
    if count == 0:
        return 0
    if c.to_disk:
        error = prepare(c, at + count * CHECKSUM_ENTRY_SIZE)
    if error == 0:
        error = write_all_at(c.fd, c.entries, count * CHECKSUM_ENTRY_SIZE, at)
    if error:
        return error
    if c.dirty < 0:
        c.dirty = at
    c.count += count
    c.end = end
    return 0


cdef int checksums_put(ChecksumFile* c, const uint8_t* records, int64_t size,
                       int64_t position) noexcept nogil:
    cdef int64_t before = c.count, before_end = c.end, done = 0, staged = 0, length
    cdef int64_t offset = position - c.base, end
    cdef int error
    if c.end > offset:                          # closed, and the next segment was not to be had
        checksums_take_back(c, c.count - 1, offset)
    end = c.end
    while done < size:
        if staged == CHECKSUMS_AT_ONCE:
            error = write_entries(c, staged, end)
            if error:
                checksums_take_back(c, before, before_end)
                return error
            staged = 0
        if load_i32(records + done + RECORD_MAGIC) == MAGIC_BLANK:
            length = BLANK_SIZE_MIN
            end = c.segment_size
        else:
            length = load_i32(records + done + RECORD_SIZE)
            if length < BLANK_SIZE_MIN or length > size - done:
                length = size - done
            end = offset + done + length
        invariant("CS1", c.end < end)
        invariant("CS1", end <= c.segment_size)
        set_entry(c.entries + staged * CHECKSUM_ENTRY_SIZE, end, crc_of(records + done, length))
        done += length
        staged += 1
    error = write_entries(c, staged, end)
    if error:
        checksums_take_back(c, before, before_end)
    return error


cdef void checksums_take_back(ChecksumFile* c, int64_t count, int64_t end) noexcept nogil:
    c.count = count
    c.end = end


cdef int checksums_push(ChecksumFile* c) noexcept nogil:
    cdef int64_t at = c.dirty, end = c.count * CHECKSUM_ENTRY_SIZE
    if c.folder_fd >= 0:
        if store_io().sync_data(c.folder_fd) != 0:
            return errno
        store_io().close_file(c.folder_fd)
        c.folder_fd = -1
    if at < 0 or at >= end:
        return 0
    if c.pushes and end <= c.on_disk:
        if store_io().push_data(c.fd, at, end - at) != 0:
            return errno
    else:
        if store_io().sync_data(c.fd) != 0:
            return errno
        c.on_disk = c.prepared
    c.dirty = -1
    return 0


# -- who reads -------------------------------------------------------------------------------------


cdef int64_t checksum_end(const uint8_t* entries, int64_t number) noexcept nogil:
    return load_u32(entries + number * CHECKSUM_ENTRY_SIZE + CHECKSUM_ENTRY_END)


cdef inline bint lies_behind(const uint8_t* entries, int64_t number, int64_t start) noexcept nogil:
    cdef int64_t end = checksum_end(entries, number)
    return end > start or end == 0


cdef int64_t checksum_find(const uint8_t* entries, int64_t count, int64_t start,
                           int64_t* hint) noexcept nogil:
    """By steps that double from the hint on: a queue's next record is near in a log of few queues."""
    cdef int64_t low = 0, high = count, middle = hint[0], step = 1
    if 0 <= middle < count and lies_behind(entries, middle, start):
        high = middle
        while low < high:
            middle = max(high - step, 0)
            if not lies_behind(entries, middle, start):
                low = middle + 1
                break
            high = middle
            step *= 2
    elif 0 <= middle < count:
        low = middle + 1
        while low < high:
            middle = min(low + step, count) - 1
            if lies_behind(entries, middle, start):
                high = middle
                break
            low = middle + 1
            step *= 2
    while low < high:
        middle = (low + high) // 2
        if lies_behind(entries, middle, start):
            high = middle
        else:
            low = middle + 1
    hint[0] = low
    return low if low < count and checksum_end(entries, low) else count


cdef int judge_by_all(const uint8_t* entries, int64_t count, int64_t start, int64_t end, uint32_t own,
                      int64_t* hint) noexcept nogil:
    """CS6, of a record whose CRC is `own`: wherever an entry has its start or its end."""
    cdef int64_t number, before = 0, behind
    cdef uint32_t crc
    for number in range(count):
        behind = checksum_end(entries, number)
        if behind == end or (before == start and behind):
            crc = load_u32(entries + number * CHECKSUM_ENTRY_SIZE + CHECKSUM_ENTRY_CRC)
            if crc == own or (behind == end and before == start and crc
                              and (crc ^ own) & ((crc ^ own) - 1) == 0):
                hint[0] = number + 1
                return (CHECKSUM_RIGHT if crc == own and behind == end and before == start
                        else CHECKSUM_ASTRAY)
        before = behind
    return CHECKSUM_WRONG


cdef int checksum_judge(const uint8_t* entries, int64_t count, int64_t start, int64_t end,
                        const uint8_t* record, int64_t length, int64_t* hint) noexcept nogil:
    cdef int64_t number = checksum_find(entries, count, start, hint)
    cdef uint32_t crc, wrong
    if number >= count:
        return CHECKSUM_NONE
    crc = load_u32(entries + number * CHECKSUM_ENTRY_SIZE + CHECKSUM_ENTRY_CRC)
    if crc == 0:
        return CHECKSUM_UNKNOWN
    if checksum_end(entries, number) != end or (
            checksum_end(entries, number - 1) if number else 0) != start:
        return judge_by_all(entries, count, start, end, crc_of(record, length), hint)
    hint[0] = number + 1
    wrong = crc_of(record, length) ^ crc
    if wrong == 0:
        return CHECKSUM_RIGHT
    return CHECKSUM_ASTRAY if wrong & (wrong - 1) == 0 else CHECKSUM_WRONG
