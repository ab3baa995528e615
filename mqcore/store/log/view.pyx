"""Maps commit log segments for reading."""
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport strncpy

from mqcore.atomics cimport load_i64_acquire
from mqcore.layout cimport LogState
from mqcore.store.io cimport store_io
from mqcore.store.log.log_folders cimport log_open
from mqcore.store.record cimport (
    PARSE_BAD_POSITION,
    PARSE_RECORD,
    RecordView,
    record_check,
    record_parse,
)

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void* address, size_t length)
    int PROT_READ
    int MAP_SHARED

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_CLOEXEC


cdef void log_view_open(LogView* view, LogState* state, const char* folders,
                        int64_t segment_size) noexcept nogil:
    cdef int i
    view.state = state
    view.segment_size = segment_size
    view.use = 1
    view.failure = 0
    strncpy(view.folders, folders, LOG_PATH_MAX - 1)
    view.folders[LOG_PATH_MAX - 1] = 0
    for i in range(LOG_VIEW_PLACES):
        view.places[i].base = -1
        view.places[i].bytes = NULL
        view.places[i].use = 0


cdef void log_view_close(LogView* view) noexcept nogil:
    cdef int i
    for i in range(LOG_VIEW_PLACES):
        if view.places[i].bytes != NULL:
            munmap(<void*>view.places[i].bytes, view.segment_size)
            view.places[i].bytes = NULL
            view.places[i].base = -1


cdef void log_view_forget(LogView* view) noexcept nogil:
    cdef int64_t first = load_i64_acquire(&view.state.first)
    cdef MappedSegment* place
    cdef int i
    for i in range(LOG_VIEW_PLACES):
        place = &view.places[i]
        if place.bytes != NULL and place.base + view.segment_size <= first:
            munmap(<void*>place.bytes, view.segment_size)
            place.bytes = NULL
            place.base = -1


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
        if place.bytes != NULL:
            munmap(<void*>place.bytes, view.segment_size)
        place.base = base
        place.bytes = <const uint8_t*>bytes
    place.use = view.use
    return place.bytes + (position - base)


cdef const uint8_t* log_at(LogView* view, int64_t position, int64_t size, int64_t end) noexcept nogil:
    if position < load_i64_acquire(&view.state.first) or size < 0 or position + size > end:   # L1
        return NULL
    if position % view.segment_size + size > view.segment_size:
        return NULL
    return log_segment(view, position)


cdef int log_record(LogView* view, const uint8_t* at, int64_t size, int64_t position,
                    RecordView* record) noexcept nogil:
    cdef int result
    if position < load_i64_acquire(&view.state.begun):
        return record_check(at, size, position, record)
    result = record_parse(at, size, record)
    if result == PARSE_RECORD and record.log_position != position:
        return PARSE_BAD_POSITION
    return result
