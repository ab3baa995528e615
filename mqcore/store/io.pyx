"""System calls behind store_io."""
import os

from libc.errno cimport EINTR, ENOSPC, ESTALE, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset, strdup

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int fd, const void* data, size_t size, long offset)
    ssize_t pread(int fd, void* data, size_t size, long offset)
    int fdatasync(int fd)
    int syncfs(int fd)
    int ftruncate(int fd, long size)
    int close(int fd)

cdef extern from "<sys/stat.h>" nogil:
    ctypedef struct Status "struct stat":
        unsigned long st_dev
        unsigned long st_ino
    int c_stat "stat"(const char* path, Status* status)

cdef extern from *:
    """
    #include <errno.h>
    #define mq_set_errno(error) ((void)(errno = (error)))
    """
    void set_errno "mq_set_errno"(int error) noexcept nogil

cdef extern from "<fcntl.h>" nogil:
    int O_WRONLY, O_RDWR
    int c_open "open"(const char* path, int flags, ...)
    int fallocate(int fd, int mode, long offset, long length)
    int sync_file_range(int fd, long offset, long length, unsigned int flags)

cdef enum:
    PUNCH_HOLE_KEEP_SIZE = 3          # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


cdef char* owned_path = NULL          # of the store that this process writes to, NULL: of any
cdef unsigned long owned_device, owned_inode


cdef bint leads_elsewhere() noexcept nogil:
    cdef Status status
    return owned_path != NULL and (c_stat(owned_path, &status) != 0
                                   or status.st_dev != owned_device
                                   or status.st_ino != owned_inode)


cdef int real_open(const char* path, int flags, int mode) noexcept nogil:
    if flags & (O_WRONLY | O_RDWR) and leads_elsewhere():
        set_errno(ESTALE)
        return -1
    return c_open(path, flags, mode)


cdef ssize_t real_write(int fd, const void* data, size_t size, int64_t offset) noexcept nogil:
    return pwrite(fd, data, size, offset)


cdef ssize_t real_read(int fd, void* data, size_t size, int64_t offset) noexcept nogil:
    return pread(fd, data, size, offset)


cdef int real_sync(int fd) noexcept nogil:
    return fdatasync(fd)


cdef int real_sync_all(int fd) noexcept nogil:
    return syncfs(fd)


cdef int real_push(int fd, int64_t offset, int64_t size) noexcept nogil:
    return sync_file_range(fd, offset, size, WAIT_WRITE_WAIT)


cdef int real_truncate(int fd, int64_t size) noexcept nogil:
    return ftruncate(fd, size)


cdef int real_close(int fd) noexcept nogil:
    return close(fd)


cdef StoreIo real_io
real_io.open_file = real_open
real_io.write_at = real_write
real_io.read_at = real_read
real_io.sync_data = real_sync
real_io.sync_all = real_sync_all
real_io.push_data = real_push
real_io.truncate = real_truncate
real_io.close_file = real_close

cdef StoreIo* current = &real_io


cdef StoreIo* store_io() noexcept nogil:
    return current


cdef void io_replace(StoreIo* other) noexcept nogil:
    global current
    current = other if other != NULL else &real_io


cdef int write_all_at(int fd, const void* data, size_t size, int64_t offset) noexcept nogil:
    cdef const uint8_t* at = <const uint8_t*>data
    cdef ssize_t written
    while size > 0:
        written = current.write_at(fd, at, size, offset)
        if written < 0:
            if errno == EINTR:
                continue
            return errno
        if written == 0:
            return ENOSPC
        at += written
        size -= written
        offset += written
    return 0


cdef int wipe(int fd, int64_t offset, int64_t size) noexcept nogil:
    cdef uint8_t[PAGE] zeros
    cdef int64_t part
    cdef int error
    if size <= 0 or fallocate(fd, PUNCH_HOLE_KEEP_SIZE, offset, size) == 0:
        return 0
    memset(zeros, 0, PAGE)           # a file system that punches no holes
    while size > 0:
        part = min(size, <int64_t>PAGE)
        error = write_all_at(fd, zeros, part, offset)
        if error:
            return error
        offset += part
        size -= part
    return 0


def wipe_file(int fd, int64_t offset, int64_t size) -> None:
    """Zeros in [offset, offset + size) of a file, its length kept all the while. Raises OSError."""
    cdef int error
    with nogil:
        error = wipe(fd, offset, size)
    if error:
        raise OSError(error, os.strerror(error))


def own(bytes path, unsigned long device, unsigned long inode) -> None:
    """
    From now on this process, and those that it forks, open files for writing only while `path`
    leads to this folder; an empty path: always. Raises MemoryError.
    """
    global owned_path, owned_device, owned_inode
    free(owned_path)
    owned_path = NULL
    if path:
        owned_path = strdup(path)
        if owned_path == NULL:
            raise MemoryError
    owned_device, owned_inode = device, inode
