"""Maps commit log segments for reading."""
from libc.errno cimport ENOENT, errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport strncpy

from mqcore.atomics cimport load_i64_acquire
from mqcore.layout cimport CHECKSUM_ENTRY_SIZE, LogState
from mqcore.store.io cimport store_io
from mqcore.store.log.checksums cimport (
    CHECKSUM_NONE,
    CHECKSUM_RIGHT,
    CHECKSUM_WRONG,
    checksum_end,
    checksum_judge,
)
from mqcore.store.log.log_folders cimport log_checksums_open, log_open
from mqcore.store.record cimport (
    PARSE_BAD_CHECKSUM,
    PARSE_BAD_POSITION,
    PARSE_RECORD,
    RecordView,
    record_check,
    record_parse,
)

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void* address, size_t length)
    int madvise(void* address, size_t length, int advice)
    int MADV_RANDOM
    int PROT_READ
    int MAP_SHARED

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    long lseek(int fd, long offset, int whence)
    int SEEK_END

cdef enum:
    CHECKED_BEHIND_BYTES = 16 << 20    # of the log: what is nearer to its end is in memory


cdef void log_view_open(LogView* view, LogState* state, const char* folders,
                        int64_t segment_size) noexcept nogil:
    cdef int i
    view.state = state
    view.segment_size = segment_size
    view.use = 1
    view.failure = 0
    view.read_ahead = True
    strncpy(view.folders, folders, LOG_PATH_MAX - 1)
    view.folders[LOG_PATH_MAX - 1] = 0
    for i in range(LOG_VIEW_PLACES):
        view.places[i].base = -1
        view.places[i].bytes = NULL
        view.places[i].use = 0
        view.places[i].checksums = NULL


cdef void unmap_checksums(MappedSegment* place) noexcept nogil:
    if place.checksums != NULL:
        munmap(<void*>place.checksums, place.checksums_count * CHECKSUM_ENTRY_SIZE)
    place.checksums = NULL
    place.checksums_count = 0
    place.checksums_hint = 0


cdef void unmap(LogView* view, MappedSegment* place) noexcept nogil:
    unmap_checksums(place)
    munmap(<void*>place.bytes, view.segment_size)
    place.bytes = NULL
    place.base = -1


cdef void log_view_close(LogView* view) noexcept nogil:
    cdef int i
    for i in range(LOG_VIEW_PLACES):
        if view.places[i].bytes != NULL:
            unmap(view, &view.places[i])


cdef void log_view_forget(LogView* view) noexcept nogil:
    cdef int64_t first = load_i64_acquire(&view.state.first)
    cdef MappedSegment* place
    cdef int i
    for i in range(LOG_VIEW_PLACES):
        place = &view.places[i]
        if place.bytes != NULL and place.base + view.segment_size <= first:
            unmap(view, place)


cdef const uint8_t* log_segment(LogView* view, int64_t position) noexcept nogil:
    cdef int64_t number = position // view.segment_size
    cdef int64_t base = number * view.segment_size
    cdef MappedSegment* place = &view.places[number & (LOG_VIEW_PLACES - 1)]
    cdef void* bytes
    cdef int fd
    view.failure = 0
    if place.base != base:
        if place.bytes != NULL and place.use == view.use:              # L2
            return NULL
        fd = log_open(view.folders, base, O_RDONLY | O_CLOEXEC)
        if fd < 0:
            view.failure = errno
            return NULL
        bytes = mmap(NULL, view.segment_size, PROT_READ, MAP_SHARED, fd, 0)
        if <long>bytes == -1:
            view.failure = errno
            store_io().close_file(fd)
            return NULL
        store_io().close_file(fd)
        if not view.read_ahead:
            madvise(bytes, view.segment_size, MADV_RANDOM)             # L3; advice cannot fail it
        if place.bytes != NULL:
            unmap(view, place)
        place.base = base
        place.checksums_count = 0
        place.bytes = <const uint8_t*>bytes
    place.use = view.use
    return place.bytes + (position - base)


cdef const uint8_t* log_at(LogView* view, int64_t position, int64_t size, int64_t end) noexcept nogil:
    if position < load_i64_acquire(&view.state.first) or size < 0 or position + size > end:   # L1
        return NULL
    if position % view.segment_size + size > view.segment_size:
        return NULL
    return log_segment(view, position)


cdef void map_checksums(LogView* view, MappedSegment* place) noexcept nogil:
    cdef int fd = log_checksums_open(view.folders, place.base, O_RDONLY | O_CLOEXEC)
    cdef int64_t count
    cdef void* bytes
    if fd < 0:
        if errno == ENOENT and place.checksums == NULL:
            place.checksums_count = -1
        return
    count = lseek(fd, 0, SEEK_END) // CHECKSUM_ENTRY_SIZE
    if count > place.checksums_count:
        bytes = mmap(NULL, count * CHECKSUM_ENTRY_SIZE, PROT_READ, MAP_SHARED, fd, 0)
        if <long>bytes != -1:
            unmap_checksums(place)
            place.checksums = <const uint8_t*>bytes
            place.checksums_count = count
    store_io().close_file(fd)


cdef const uint8_t* log_checksums(LogView* view, int64_t position, int64_t* count) noexcept nogil:
    cdef int64_t number = position // view.segment_size
    cdef MappedSegment* place = &view.places[number & (LOG_VIEW_PLACES - 1)]
    count[0] = 0
    if place.base != number * view.segment_size:
        return NULL
    if place.checksums_count >= 0:
        map_checksums(view, place)
    if place.checksums != NULL:
        count[0] = place.checksums_count
    return place.checksums


cdef void log_checksums_forget(LogView* view, int64_t position) noexcept nogil:
    cdef int64_t number = position // view.segment_size
    cdef MappedSegment* place = &view.places[number & (LOG_VIEW_PLACES - 1)]
    if place.base == number * view.segment_size:
        unmap_checksums(place)


cdef int log_checksum(LogView* view, const uint8_t* at, int64_t length, int64_t position,
                      int64_t end) noexcept nogil:
    cdef int64_t number = position // view.segment_size
    cdef MappedSegment* place = &view.places[number & (LOG_VIEW_PLACES - 1)]
    cdef int64_t last
    if place.base != number * view.segment_size or place.checksums_count < 0:
        return CHECKSUM_NONE
    last = (checksum_end(place.checksums, place.checksums_count - 1) if place.checksums_count
            else 1)
    if last and last < end - place.base:               # the file has grown, or was not mapped yet
        map_checksums(view, place)
    if place.checksums == NULL:
        return CHECKSUM_NONE
    return checksum_judge(place.checksums, place.checksums_count, position - place.base,
                          end - place.base, at, length, &place.checksums_hint)


cdef int log_record_check(LogView* view, const uint8_t* at, int64_t available, int64_t position,
                          RecordView* record) noexcept nogil:
    cdef int result = record_parse(at, available, record)
    cdef int verdict
    if result != PARSE_RECORD:
        return result
    if record.log_position != position:
        return PARSE_BAD_POSITION
    verdict = log_checksum(view, at, record.size, position, position + record.size)
    if verdict == CHECKSUM_RIGHT:
        return PARSE_RECORD
    if verdict == CHECKSUM_WRONG:
        return PARSE_BAD_CHECKSUM
    return record_check(at, available, position, record)


cdef int log_record(LogView* view, const uint8_t* at, int64_t size, int64_t position,
                    RecordView* record) noexcept nogil:
    cdef int result
    if (position < load_i64_acquire(&view.state.begun)
            or load_i64_acquire(&view.state.published) - position > CHECKED_BEHIND_BYTES):
        return log_record_check(view, at, size, position, record)
    result = record_parse(at, size, record)
    if result == PARSE_RECORD and record.log_position != position:
        return PARSE_BAD_POSITION
    return result
