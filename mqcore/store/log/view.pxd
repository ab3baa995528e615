# The commit log as readers see it: segments mapped on first touch, read-only, bounded by what the
# writer has published.
#
#   L1  Only bytes in [first, published) are handed out, and never across a segment's end.
#   L2  An address that log_at has given stays good until log_next_use was called and another
#       segment took its place: callers use it within one request.
#   L3  With `read_ahead` off, a touch of what is in memory never makes the kernel read on (a page that
#       an earlier reading marked would): who must not wait for the disk has a thread that reads.
from libc.stdint cimport int64_t, uint8_t

from mqcore.layout cimport LogState
from mqcore.store.record cimport RecordView

cdef enum:
    LOG_VIEW_PLACES = 1024           # mapped segments at a time; a power of two
    LOG_PATH_MAX = 4096

cdef struct MappedSegment:
    int64_t base                     # position of its first byte; -1: nothing here
    const uint8_t* bytes
    int64_t use                      # the request that used it last
    const uint8_t* checksums         # its entries (checksums.pxd), NULL: not mapped, or none
    int64_t checksums_count          # entries that there is room for; -1: there is no such file
    int64_t checksums_hint

cdef struct LogView:
    LogState* state
    int64_t segment_size
    int64_t use
    int failure                      # errno of the last segment that could not be mapped
    bint read_ahead                  # L3; on, until its owner says otherwise
    MappedSegment places[LOG_VIEW_PLACES]
    char folders[LOG_PATH_MAX]       # see log_folders.pxd

cdef void log_view_open(LogView* view, LogState* state, const char* folders,
                        int64_t segment_size) noexcept nogil
cdef void log_view_close(LogView* view) noexcept nogil
cdef inline void log_next_use(LogView* view) noexcept nogil:
    view.use += 1
# NULL: outside [first, end), across a segment's end, or not to be mapped (view.failure).
cdef const uint8_t* log_at(LogView* view, int64_t position, int64_t size, int64_t end) noexcept nogil
# Unmap what was deleted (its disk space is free only then): between requests, for L2 ends here.
cdef void log_view_forget(LogView* view) noexcept nogil
# What the checksums say of the `length` bytes at an address that log_segment or log_at has given for
# `position`, of a record that ends at log position `end`: a ChecksumVerdict (checksums.pxd).
cdef int log_checksum(LogView* view, const uint8_t* at, int64_t length, int64_t position,
                      int64_t end) noexcept nogil
# The entries of the segment of a position that log_segment has given, and their number; NULL: none.
cdef const uint8_t* log_checksums(LogView* view, int64_t position, int64_t* count) noexcept nogil
# They are another file now, or none.
cdef void log_checksums_forget(LogView* view, int64_t position) noexcept nogil
# Whether there is such a file, empty or not; after log_checksum.
cdef inline bint log_has_checksums(LogView* view, int64_t position) noexcept nogil:
    cdef int64_t number = position // view.segment_size
    cdef MappedSegment* place = &view.places[number & (LOG_VIEW_PLACES - 1)]
    return place.base == number * view.segment_size and place.checksums_count >= 0
# The checked record: its position, and all its bytes by its checksum or, without one, its body.
cdef int log_record_check(LogView* view, const uint8_t* at, int64_t available, int64_t position,
                          RecordView* record) noexcept nogil
# The record in `size` bytes that log_at has given for a position: ParseResult. It is checked when it
# was there before this run began (a clean start reads no log), or when it may come from the disk.
cdef int log_record(LogView* view, const uint8_t* at, int64_t size, int64_t position,
                    RecordView* record) noexcept nogil
# The segment's bytes from position on, whatever is published: for the writer's recovery.
cdef const uint8_t* log_segment(LogView* view, int64_t position) noexcept nogil
