"""The window through which verification reads the commit log (window.pxd has its rules)."""
from libc.errno cimport EINTR, ENOMEM, ENXIO, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset, strncpy

from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    BLANK_SIZE_MIN,
    MAGIC_MESSAGE,
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    RECORD_SIZE,
)
from mqcore.store.io cimport store_io
from mqcore.store.log.log_folders cimport log_open
from mqcore.store.log.view cimport LOG_PATH_MAX
from mqcore.store.record cimport (
    PARSE_BAD_POSITION,
    PARSE_BAD_SIZE,
    PARSE_RECORD,
    RecordView,
    record_check,
    record_parse,
)

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    long lseek(int fd, long offset, int whence)

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
    w.read_ahead = read_ahead
    w.bytes = <uint8_t*>realloc(NULL, read_ahead)
    w.capacity = read_ahead
    return 0 if w.bytes != NULL else ENOMEM


cdef void window_close(LogWindow* w) noexcept nogil:
    if w.fd >= 0:
        store_io().close_file(w.fd)
    w.fd = -1
    free(w.bytes)
    w.bytes = NULL


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
    if crc:
        return record_check(at, left, position, view)
    result = record_parse(at, left, view)
    if result == PARSE_RECORD and view.log_position != position:
        return PARSE_BAD_POSITION
    return result


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
