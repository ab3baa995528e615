# One open file for each queue of a process: FOLDER/TOPIC/QUEUE ID/PLACE, all of one size; PLACE, in
# twenty digits, is where the file begins in the queue's bytes. The least recently used are closed
# first. Consume queues and their extensions are kept so; what stands in the files is theirs.
from libc.stdint cimport int32_t, int64_t

from mqcore.atomics cimport load_i32_acquire
from mqcore.layout cimport QueueEntry
from mqcore.store.log.view cimport LOG_PATH_MAX

cdef enum:
    FILE_NAME_LENGTH = 20             # digits of PLACE
    NAMES_ROOM = 256                  # of a path: topic, queue id and place behind the folder

cdef struct OpenFile:                 # of one queue
    int32_t fd_plus_one               # 0: not open
    int32_t dirty                     # written since the last sync
    int32_t life                      # the queue's removal_done when the file was opened
    int64_t first                     # where the file begins, in the queue's bytes
    int64_t use                       # when it was used last, in calls

cdef struct OpenFiles:
    QueueEntry* queues
    OpenFile* files                   # by queue number
    int32_t capacity
    int32_t open_count
    int32_t open_max
    bint writes                       # makes files and folders that are missing
    int64_t file_size                 # bytes
    int64_t use
    int failure                       # errno of the last call that failed
    int sync_failure                  # errno of a sync that failed: final, see open_file_sync
    char folder[LOG_PATH_MAX]

cdef int open_files_begin(OpenFiles* f, QueueEntry* queues, int32_t capacity, const char* folder,
                          int64_t file_size, int32_t open_max,
                          bint writes) noexcept nogil                     # 0 or errno
cdef void open_files_end(OpenFiles* f) noexcept nogil
# A descriptor of the queue's file that begins at `first`, good until the next call; -1: f.failure.
cdef int open_file_at(OpenFiles* f, int32_t queue, int64_t first) noexcept nogil
# `size` bytes at `place` of that file, which has room for them; 0 or errno.
cdef int open_file_write(OpenFiles* f, int32_t queue, int64_t first, const void* bytes, size_t size,
                         int64_t place) noexcept nogil
cdef void open_file_close(OpenFiles* f, int32_t queue) noexcept nogil
# The queue is about to be removed: closed, and what was written need not reach the disk.
cdef void open_file_forget(OpenFiles* f, int32_t queue) noexcept nogil
# The file at `first` counts as written since the last sync, whoever did it.
cdef void open_file_distrust(OpenFiles* f, int32_t queue, int64_t first) noexcept nogil
# Brings the queue's newest file to disk if it is dirty; for a thread beside too; 0 or errno. A sync that
# failed is final, as append A5 has it: from then on nothing counts as on disk, and every call says
# so. What is written is written all the same: the log has it, and a start after a crash writes it
# again.
cdef int open_file_sync(OpenFiles* f, int32_t queue) noexcept nogil
# The same for all queues below `count`; many dirty files at once, with all others of the file system.
cdef int open_files_sync(OpenFiles* f, int32_t count, bint together) noexcept nogil
# The queue's folder, in LOG_PATH_MAX bytes (names.pxd, O4); returns its length. Empty, and 0: there
# is none that lies below `folder`.
cdef int open_file_folder(char* path, const char* folder, const QueueEntry* entry) noexcept nogil
cdef void open_file_path(char* path, const char* folder, const QueueEntry* entry,
                         int64_t first) noexcept nogil

# The descriptor if that file of the queue's present life is open, else -1; opens nothing.
cdef inline int open_file_if_open(const OpenFiles* f, int32_t queue, int64_t first) noexcept nogil:
    cdef const OpenFile* file = &f.files[queue]
    if file.first == first and file.life == load_i32_acquire(&f.queues[queue].removal_done):
        return file.fd_plus_one - 1
    return -1
