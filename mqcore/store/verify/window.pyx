"""The window through which verification reads the commit log (window.pxd has its rules)."""
from libc.errno cimport EINTR, ENOENT, ENOMEM, ENXIO, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset, strncpy
from posix.fcntl cimport O_CLOEXEC, O_RDONLY

from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    BLANK_SIZE_MIN,
    CHECKSUM_ENTRY_SIZE,
    MAGIC_MESSAGE,
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    RECORD_SIZE,
)
from mqcore.store.io cimport store_io
from mqcore.store.log.checksums cimport (
    CHECKSUM_ASTRAY,
    CHECKSUM_NONE,
    CHECKSUM_RIGHT,
    CHECKSUM_WRONG,
    checksum_end,
    checksum_judge,
)
from mqcore.store.log.log_folders cimport log_checksums_open, log_open
from mqcore.store.log.view cimport LOG_PATH_MAX
from mqcore.store.record cimport (
    PARSE_BAD_CHECKSUM,
    PARSE_BAD_POSITION,
    PARSE_BAD_SIZE,
    PARSE_NO_CHECKSUM,
    PARSE_RECORD,
    RecordView,
    record_check,
    record_parse,
)

cdef extern from "<unistd.h>" nogil:
    long lseek(int fd, long offset, int whence)
    int SEEK_END

cdef extern from *:
    """
    #ifndef SEEK_DATA
    #define SEEK_DATA 3
    #endif
    #include <string.h>
    /* the place of the first byte that is not zero, or -1 */
    static int64_t mq_nonzero(const uint8_t *bytes, int64_t length) {
      int64_t at = 0;
      uint64_t word;
      for (; at + 8 <= length; at += 8) {
        memcpy(&word, bytes + at, 8);
        if (word) break;
      }
      for (; at < length; at++)
        if (bytes[at]) return at;
      return -1;
    }
    """
    int SEEK_DATA
    int64_t mq_nonzero(const uint8_t* bytes, int64_t length) noexcept nogil


cdef int log_files_open(LogFiles* files, const char* folders, int32_t count) noexcept nogil:
    files.segments = <SegmentFile*>calloc(count if count else 1, sizeof(SegmentFile))
    files.count = count
    files.checksums = False
    strncpy(files.folders, folders, LOG_PATH_MAX - 1)
    files.folders[LOG_PATH_MAX - 1] = 0
    return 0 if files.segments != NULL else ENOMEM


cdef void log_files_close(LogFiles* files) noexcept nogil:
    free(files.segments)
    files.segments = NULL
    files.count = 0


cdef int32_t segment_of(const LogFiles* files, int64_t position) noexcept nogil:
    cdef int32_t low = 0, high = files.count, middle
    while low < high:
        middle = (low + high) // 2
        if files.segments[middle].base <= position:
            low = middle + 1
        else:
            high = middle
    low -= 1
    if low < 0 or position >= files.segments[low].base + files.segments[low].size:
        return -1
    return low


cdef int window_open(LogWindow* w, const LogFiles* files, int64_t read_ahead) noexcept nogil:
    memset(w, 0, sizeof(LogWindow))
    w.files = files
    w.segment = -1
    w.fd = -1
    w.checksums_of = -1
    w.read_ahead = read_ahead
    w.bytes = <uint8_t*>realloc(NULL, read_ahead)
    w.capacity = read_ahead
    return 0 if w.bytes != NULL else ENOMEM


cdef void window_close(LogWindow* w) noexcept nogil:
    if w.fd >= 0:
        store_io().close_file(w.fd)
    w.fd = -1
    free(w.bytes)
    free(w.checksums)
    w.bytes = w.checksums = NULL


cdef int turn_to(LogWindow* w, int32_t segment) noexcept nogil:
    """Open the segment's file; 0 or errno."""
    if w.segment == segment:
        return 0
    if w.fd >= 0:
        store_io().close_file(w.fd)
    w.segment = -1
    w.length = 0
    w.fd = log_open(w.files.folders, w.files.segments[segment].base, O_RDONLY | O_CLOEXEC)
    if w.fd < 0:
        return errno
    w.segment = segment
    return 0


cdef int64_t window_length(const LogWindow* w, int64_t position) noexcept nogil:
    if position < w.start or position >= w.start + w.length:
        return 0
    return w.start + w.length - position


cdef int fill(LogWindow* w, int64_t position, int64_t size) noexcept nogil:
    """Read from position on, at least `size` bytes; 0 or errno."""
    cdef int64_t base = w.files.segments[w.segment].base
    cdef int64_t wanted = min(max(size, w.read_ahead),
                              base + w.files.segments[w.segment].size - position)
    cdef uint8_t* larger
    cdef ssize_t got
    w.start = position
    w.length = 0
    if wanted > w.capacity:
        larger = <uint8_t*>realloc(w.bytes, wanted)
        if larger == NULL:
            return ENOMEM
        w.bytes = larger
        w.capacity = wanted
    while w.length < wanted:
        got = store_io().read_at(w.fd, w.bytes + w.length, wanted - w.length,
                                 position - base + w.length)
        if got < 0 and errno == EINTR:
            continue
        if got < 0:
            return 0 if w.length >= size else errno
        if got == 0:                   # the file became shorter meanwhile
            break
        w.length += got
    return 0


cdef const uint8_t* window_at(LogWindow* w, int64_t position, int64_t size) noexcept nogil:
    cdef int32_t segment
    if w.start <= position and position + size <= w.start + w.length:
        return w.bytes + (position - w.start)
    w.failure = 0
    segment = segment_of(w.files, position)
    if segment < 0 or position + size > (w.files.segments[segment].base
                                         + w.files.segments[segment].size):
        return NULL
    w.failure = turn_to(w, segment)
    if w.failure == 0:
        w.failure = fill(w, position, size)
    if w.failure or w.length < size:
        w.length = 0
        return NULL
    return w.bytes


cdef int read_checksums(LogWindow* w, int32_t segment) noexcept nogil:
    """The segment's entries into memory; 0 or errno."""
    cdef int64_t size, done = 0
    cdef ssize_t got = 1
    cdef int error = 0
    cdef int fd
    free(w.checksums)
    w.checksums = NULL
    w.checksums_count = w.checksums_hint = 0
    w.checksums_of = segment
    fd = log_checksums_open(w.files.folders, w.files.segments[segment].base, O_RDONLY | O_CLOEXEC)
    if fd < 0:
        return 0 if errno == ENOENT else errno
    size = lseek(fd, 0, SEEK_END) // CHECKSUM_ENTRY_SIZE * CHECKSUM_ENTRY_SIZE
    w.checksums = <uint8_t*>calloc(size + CHECKSUM_ENTRY_SIZE, 1)
    if w.checksums == NULL:
        error = ENOMEM
    while error == 0 and done < size and got > 0:
        got = store_io().read_at(fd, w.checksums + done, size - done, done)
        if got < 0 and errno != EINTR:
            error = errno
        done += max(got, <ssize_t>0)
        got = 1 if got < 0 else got
    store_io().close_file(fd)
    w.checksums_count = done // CHECKSUM_ENTRY_SIZE
    return error


cdef int judge(LogWindow* w, int32_t segment, const uint8_t* at, int64_t left,
               RecordView* view) noexcept nogil:
    """A parsed record by its checksum, or without one by its body."""
    cdef int64_t base = w.files.segments[segment].base
    cdef int64_t start = view.log_position - base
    cdef int verdict
    if w.files.checksums and w.checksums_of != segment:
        w.failure = read_checksums(w, segment)
        if w.failure:
            return READ_FAILED
    if not w.files.checksums or w.checksums == NULL:
        return record_check(at, left, view.log_position, view)
    verdict = checksum_judge(w.checksums, w.checksums_count, start, start + view.size, at,
                             view.size, &w.checksums_hint)
    if verdict == CHECKSUM_RIGHT:
        return PARSE_RECORD
    if verdict == CHECKSUM_WRONG or verdict == CHECKSUM_ASTRAY:
        return PARSE_BAD_CHECKSUM
    if verdict == CHECKSUM_NONE:
        return PARSE_NO_CHECKSUM
    return record_check(at, left, view.log_position, view)


cdef int window_record(LogWindow* w, int64_t position, bint crc, RecordView* view) noexcept nogil:
    cdef int32_t segment = segment_of(w.files, position)
    cdef int64_t left, size
    cdef const uint8_t* at
    cdef int result
    w.failure = 0
    if segment < 0:
        return PARSE_BAD_SIZE
    left = w.files.segments[segment].base + w.files.segments[segment].size - position
    if left < BLANK_SIZE_MIN:
        return PARSE_BAD_SIZE
    at = window_at(w, position, BLANK_SIZE_MIN)
    if at == NULL:
        return READ_FAILED if w.failure else PARSE_BAD_SIZE
    size = load_i32(at + RECORD_SIZE)
    if load_i32(at + RECORD_MAGIC) == MAGIC_MESSAGE:
        if size < RECORD_FIXED_SIZE or size > left or size > RECORD_BYTES_MAX:
            return PARSE_BAD_SIZE
        at = window_at(w, position, size)
        if at == NULL:
            return READ_FAILED if w.failure else PARSE_BAD_SIZE
    result = record_parse(at, left, view)
    if result == PARSE_RECORD and view.log_position != position:
        return PARSE_BAD_POSITION
    return judge(w, segment, at, left, view) if crc and result == PARSE_RECORD else result


cdef int64_t window_vouched(LogWindow* w, int64_t position) noexcept nogil:
    cdef int32_t segment = max(segment_of(w.files, position), 0)
    cdef int64_t base, number, start, end, length
    cdef const uint8_t* at
    while segment < w.files.count:
        base = w.files.segments[segment].base
        start = end = 0
        if w.checksums_of == segment or read_checksums(w, segment) == 0:
            for number in range(w.checksums_count):
                start = end
                end = checksum_end(w.checksums, number)
                length = BLANK_SIZE_MIN if end == w.files.segments[segment].size else end - start
                if base + start <= position or not 0 < length <= RECORD_BYTES_MAX:
                    continue
                at = window_at(w, base + start, length)
                if at != NULL and checksum_judge(w.checksums, w.checksums_count, start, end, at,
                                                 length, &w.checksums_hint) == CHECKSUM_RIGHT:
                    return base + start
        segment += 1
    return -1


cdef int64_t data_from(int fd, int64_t offset, int64_t size) noexcept nogil:
    cdef long found = lseek(fd, offset, SEEK_DATA)
    if found >= 0:
        return min(<int64_t>found, size)
    return size if errno == ENXIO else offset      # a hole up to the end; else: not supported


cdef int64_t window_nonzero(LogWindow* w, int64_t position, int64_t end) noexcept nogil:
    cdef int32_t segment
    cdef int64_t base, size, there, found
    cdef const uint8_t* at
    while position < end:
        segment = segment_of(w.files, position)
        if segment < 0:
            return -1
        base = w.files.segments[segment].base
        size = w.files.segments[segment].size
        w.failure = turn_to(w, segment)
        if w.failure:
            return position            # what cannot be read is not known to be empty
        position = base + data_from(w.fd, position - base, size)
        end = min(end, base + size)
        if position >= end:
            return -1
        there = min(end - position, w.read_ahead)
        at = window_at(w, position, there)
        if at == NULL:
            return position if w.failure else -1
        found = mq_nonzero(at, there)
        if found >= 0:
            return position + found
        position += there
    return -1
