"""Finds and makes commit log segments in one or several folders (log_folders.pxd)."""
from libc.errno cimport ENOENT, errno
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, strchr, strcpy, strlen, strrchr

from mqcore.store.io cimport store_io

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_RDWR
    int O_CREAT
    int O_CLOEXEC

cdef extern from "<sys/statvfs.h>" nogil:
    struct statvfs_figures "statvfs":
        unsigned long f_blocks
        unsigned long f_bfree
        unsigned long f_bavail
    int statvfs(const char* path, statvfs_figures* figures)

cdef extern from *:
    """
    #include <errno.h>
    #define mq_fail_with(value) (errno = (value), -1)
    """
    int fail_with "mq_fail_with"(int error) noexcept nogil

cdef struct Folder:
    bint takes_new
    char path[FOLDER_PATH_MAX]


cdef void segment_path(char* path, const char* folder, int64_t base) noexcept nogil:
    snprintf(path, FOLDER_PATH_MAX, "%s/%020lld", folder, <long long>base)


cdef const char* next_folder(const char* at, Folder* folder) noexcept nogil:
    """The folder that begins at `at`; returns where the next one begins, NULL: there is none."""
    cdef const char* end = strchr(at, 10)
    cdef size_t length = <size_t>(end - at) if end != NULL else strlen(at)
    folder.takes_new = at[0] != c'-'
    if not folder.takes_new:
        at += 1
        length -= 1
    if length > FOLDER_PATH_MAX - 32:
        length = FOLDER_PATH_MAX - 32
    memcpy(folder.path, at, length)
    folder.path[length] = 0
    return end + 1 if end != NULL and end[1] != c'+' else NULL


cdef int find(const char* folders, int64_t base, int flags, Folder* folder) noexcept nogil:
    """W1: the segment's descriptor and folder, or -1 and errno."""
    cdef char path[FOLDER_PATH_MAX]
    cdef const char* at = folders
    cdef int fd
    while at != NULL:
        at = next_folder(at, folder)
        segment_path(path, folder.path, base)
        fd = store_io().open_file(path, flags, 0)
        if fd >= 0 or errno != ENOENT:
            return fd
    return fail_with(ENOENT)


cdef int log_open(const char* folders, int64_t base, int flags) noexcept nogil:
    cdef Folder folder
    return find(folders, base, flags, &folder)


cdef bint is_full(const char* path) noexcept nogil:
    """Used of what we may use, in whole percent rounded up, as store.md 6.6 counts."""
    cdef statvfs_figures disk
    cdef double used
    if statvfs(path, &disk) != 0 or disk.f_blocks == 0:
        return False
    used = <double>(disk.f_blocks - disk.f_bfree)
    return 100 * used > FOLDER_FULL_PERCENT * (used + <double>disk.f_bavail)


cdef int choose(const char* folders, int64_t number, bint may_be_full,
                Folder* folder) noexcept nogil:
    """W2: how many folders take new segments; `folder` is the one for segment `number`."""
    cdef const char* at = folders
    cdef int count = 0
    cdef int64_t wanted = 0
    cdef bint fits[LOG_FOLDERS_MAX]
    cdef int i = 0
    while at != NULL and i < LOG_FOLDERS_MAX:
        at = next_folder(at, folder)
        fits[i] = folder.takes_new and (may_be_full or not is_full(folder.path))
        count += fits[i]
        i += 1
    if count == 0:
        return 0
    wanted = number % count
    at = folders
    i = 0
    while at != NULL:
        at = next_folder(at, folder)
        if fits[i]:
            if wanted == 0:
                break
            wanted -= 1
        i += 1
    return count


cdef int log_create(const char* folders, int64_t base, int64_t size) noexcept nogil:
    cdef Folder folder
    cdef char path[FOLDER_PATH_MAX]
    cdef int fd = find(folders, base, O_RDWR | O_CLOEXEC, &folder)
    cdef int error
    if fd < 0:
        if errno != ENOENT:
            return -1
        if (choose(folders, base // size, False, &folder) == 0
                and choose(folders, base // size, True, &folder) == 0):
            return fail_with(ENOENT)
        segment_path(path, folder.path, base)
        fd = store_io().open_file(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        if fd < 0:
            return -1
    if store_io().truncate(fd, size) != 0:
        error = errno
        store_io().close_file(fd)
        return fail_with(error)
    return fd


cdef int log_folder_open(const char* folders, int64_t base) noexcept nogil:
    cdef Folder folder
    cdef int fd = find(folders, base, O_RDONLY | O_CLOEXEC, &folder)
    if fd < 0:
        return -1
    store_io().close_file(fd)
    return store_io().open_file(folder.path, O_RDONLY | O_CLOEXEC, 0)


cdef void checksums_folder(const char* folders, char* checksums) noexcept nogil:
    cdef Folder first
    cdef const char* named = strrchr(folders, 10)
    cdef int64_t length
    if named != NULL and named[1] == c'+':
        snprintf(checksums, FOLDER_PATH_MAX - 32, "%s", named + 2)
        return
    next_folder(folders, &first)
    length = strlen(first.path)
    while length > 1 and first.path[length - 1] == c'/':
        length -= 1
    while length > 0 and first.path[length - 1] != c'/':
        length -= 1
    first.path[length] = 0
    snprintf(checksums, FOLDER_PATH_MAX, "%schecksums", first.path)


cdef bint log_checksums_folder(const char* folders, int64_t base, char* checksums,
                               char* folder) noexcept nogil:
    cdef Folder found
    cdef int fd = find(folders, base, O_RDONLY | O_CLOEXEC, &found)
    if fd < 0:
        return False
    store_io().close_file(fd)
    strcpy(folder, found.path)
    checksums_folder(folders, checksums)
    return True


cdef int log_checksums_open(const char* folders, int64_t base, int flags) noexcept nogil:
    cdef char checksums[FOLDER_PATH_MAX]
    cdef char path[FOLDER_PATH_MAX]
    checksums_folder(folders, checksums)
    segment_path(path, checksums, base)
    return store_io().open_file(path, flags, 0)


# -- for Python ------------------------------------------------------------------------------------


def open_segment(bytes folders not None, int64_t base, int flags) -> int:
    """
    The segment that begins at log position `base`, in whichever of the folders has it, opened with
    `flags` as for os.open. Raises OSError (FileNotFoundError: none has it).
    """
    cdef int fd = log_open(folders, base, flags)
    if fd < 0:
        raise OSError(errno, "commit log segment cannot be opened", f"{base:020d}")
    return fd


def make_segment(bytes folders not None, int64_t base, int64_t size) -> int:
    """As `open_segment` for writing; made with `size` bytes if there is none. Raises OSError."""
    cdef int fd = log_create(folders, base, size)
    if fd < 0:
        raise OSError(errno, "commit log segment cannot be made", f"{base:020d}")
    return fd
