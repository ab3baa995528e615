# Which file a descriptor is of, for probes of the disk.
cdef extern from "<unistd.h>" nogil:
    ssize_t readlink(const char* path, char* buffer, size_t size)

cdef extern from "<stdio.h>" nogil:
    int snprintf(char* buffer, size_t size, const char* format, ...)

cdef enum:
    LINK_ROOM = 64                    # "/proc/self/fd/" and a number


cdef inline void fd_path(int fd, char* into, size_t room) noexcept nogil:
    """Its path; empty: it has none."""
    cdef char link[LINK_ROOM]
    cdef ssize_t length
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd)
    length = readlink(link, into, room - 1)
    into[length if length > 0 else 0] = 0
