# The one door to the disk: every open, write, sync, truncate and rename of the store goes through
# `store_io`, so that a test can put a recorder or a failing disk in its place (io_replace).
#
# Results are those of the system calls: -1 and errno, or a count that may be short.
from libc.stdint cimport int64_t

cdef enum:
    PAGE = 4096                       # of memory, and of a file there
    WAIT_WRITE_WAIT = 7               # SYNC_FILE_RANGE_WAIT_BEFORE | WRITE | WAIT_AFTER

cdef struct StoreIo:
    int (*open_file)(const char* path, int flags, int mode) noexcept nogil
    ssize_t (*write_at)(int fd, const void* data, size_t size, int64_t offset) noexcept nogil
    ssize_t (*read_at)(int fd, void* data, size_t size, int64_t offset) noexcept nogil
    int (*sync_data)(int fd) noexcept nogil
    int (*sync_all)(int fd) noexcept nogil                    # the whole file system that fd is in
    # Bytes of blocks that were on the disk before are given to it: on it after the next sync of any
    # file of the same disk (log/checksums.pxd, CS4)
    int (*push_data)(int fd, int64_t offset, int64_t size) noexcept nogil
    int (*truncate)(int fd, int64_t size) noexcept nogil
    int (*close_file)(int fd) noexcept nogil

cdef StoreIo* store_io() noexcept nogil
cdef void io_replace(StoreIo* other) noexcept nogil          # NULL: the real disk again

# The whole of `size` bytes or an errno: short writes and EINTR are carried on.
cdef int write_all_at(int fd, const void* data, size_t size, int64_t offset) noexcept nogil
# Zeros in [offset, offset + size) of a file that is longer, its length kept; 0 or errno.
cdef int wipe(int fd, int64_t offset, int64_t size) noexcept nogil
