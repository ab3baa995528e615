# How verification reads a commit log at rest: through a window of one segment, with read calls.
#
#   VW1  Nothing is mapped: a disk that cannot read is an errno (window.failure), never a signal,
#        and a segment that is shorter than the others ends where its file ends.
#   VW2  An address stays good until the next call with the same window.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.log.view cimport LOG_PATH_MAX
from mqcore.store.record cimport RecordView

cdef enum:
    RECORD_BYTES_MAX = 64 << 20       # far above what a frame can carry: a larger size is damage
    READ_AHEAD = 1 << 19              # stays in the processor's second cache
    TURN_BYTES = 64 << 20             # between two looks at the interpreter's signals
    READ_FAILED = -100                # beside ParseResult

cdef struct SegmentFile:
    int64_t base                      # log position of its first byte, as its name says
    int64_t size                      # bytes of the file

cdef struct LogFiles:
    SegmentFile* segments             # ascending
    int32_t count
    bint checksums                    # those beside the log hold (checksums.pxd, CS5)
    char folders[LOG_PATH_MAX]        # see log_folders.pxd

cdef struct LogWindow:
    const LogFiles* files
    int32_t segment                   # whose file is open, -1: none
    int fd
    int64_t start                     # log position of bytes[0]
    int64_t length                    # bytes that are there
    int64_t capacity
    int64_t read_ahead                # bytes read at a time
    uint8_t* bytes
    int failure                       # errno of the last read or open that failed, 0: none did
    uint8_t* checksums                # of the segment checksums_of, all entries; NULL: none
    int64_t checksums_count
    int64_t checksums_hint
    int32_t checksums_of              # -1: of none yet

cdef int log_files_open(LogFiles* files, const char* folders, int32_t count) noexcept nogil
cdef void log_files_close(LogFiles* files) noexcept nogil
cdef int32_t segment_of(const LogFiles* files, int64_t position) noexcept nogil     # -1: in none
cdef int window_open(LogWindow* w, const LogFiles* files, int64_t read_ahead) noexcept nogil
cdef void window_close(LogWindow* w) noexcept nogil
# `size` bytes at a position; NULL: they are not in one file, or failure.
cdef const uint8_t* window_at(LogWindow* w, int64_t position, int64_t size) noexcept nogil
# How many of the bytes from position on are in the window.
cdef int64_t window_length(const LogWindow* w, int64_t position) noexcept nogil
# The record at a position, checked as recovery does, by its checksum or without one by its body; a
# ParseResult or READ_FAILED.
cdef int window_record(LogWindow* w, int64_t position, bint crc, RecordView* view) noexcept nogil
# The first position behind this one where a record, or a blank one, lies as its checksum says; -1: none.
cdef int64_t window_vouched(LogWindow* w, int64_t position) noexcept nogil
# The first byte in [position, end) of one segment that is not zero, or -1; holes are not read.
cdef int64_t window_nonzero(LogWindow* w, int64_t position, int64_t end) noexcept nogil
# Where data lies in [offset, size) of a file, offset in a hole or not; size: nowhere.
cdef int64_t data_from(int fd, int64_t offset, int64_t size) noexcept nogil
