# Where the commit log lies: in one folder, or in several (store.md 6.7).
#
# `folders` names them in one text, a path a line, sorted; "-" before a path: nothing new goes there.
# The last line may name the folder of checksums, behind "+"; else it is `checksums` beside the first.
#
#   W1  A segment is where it is: it is looked for in every folder, and made only where none has it.
#   W2  Segment number i = base / size goes to the (i mod n)-th of the n folders that take new ones and
#       are not fuller than FOLDER_FULL_PERCENT; when all are, of all that take new ones.
from libc.stdint cimport int64_t

cdef enum:
    LOG_FOLDERS_MAX = 64
    FOLDER_PATH_MAX = 4096
    FOLDER_FULL_PERCENT = 85

# A file descriptor, or -1 and errno (ENOENT: no folder has it).
cdef int log_open(const char* folders, int64_t base, int flags) noexcept nogil
# For writing, with its whole length; made if need be. A file descriptor, or -1 and errno.
cdef int log_create(const char* folders, int64_t base, int64_t size) noexcept nogil
# The folder of a segment that is there: a file descriptor for a sync of its name, or -1 and errno.
cdef int log_folder_open(const char* folders, int64_t base) noexcept nogil
# The folder for checksums (checksums.pxd), and the one that has the segment; False: none has it. Both
# of FOLDER_PATH_MAX bytes.
cdef bint log_checksums_folder(const char* folders, int64_t base, char* checksums,
                               char* folder) noexcept nogil
# Of the checksums of a segment: a file descriptor, or -1 and errno.
cdef int log_checksums_open(const char* folders, int64_t base, int flags) noexcept nogil
cdef void segment_path(char* path, const char* folder, int64_t base) noexcept nogil
