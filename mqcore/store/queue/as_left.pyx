"""Looks at what an earlier run left of the queues (as_left.pxd has the rules)."""
import os

from libc.stdint cimport int32_t, int64_t
from libc.string cimport strlen

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i32_release, store_i64_release
from mqcore.layout cimport CQ_ENTRY_SIZE, QueueEntry
from mqcore.shm.segment cimport Segment, Shm
from mqcore.store.log.view cimport LOG_PATH_MAX
from mqcore.store.queue.open_files cimport open_file_folder, open_file_path

cdef extern from "<sys/stat.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    cdef struct file_status "stat":
        unsigned int st_mode
        long st_size
        timespec st_mtim
        timespec st_ctim
    int stat_of "stat"(const char* path, file_status* status)
    int fstat(int fd, file_status* status)
    bint S_ISDIR(unsigned int mode)


cdef inline int64_t ns(const timespec* time) noexcept nogil:
    return time.tv_sec * <int64_t>1000000000 + time.tv_nsec


cdef bint folder_as_left(const char* folder, const QueueEntry* queue, int64_t left_ns) noexcept nogil:
    cdef char path[LOG_PATH_MAX]
    cdef file_status status
    return (open_file_folder(path, folder, queue) > 0 and stat_of(path, &status) == 0
            and S_ISDIR(status.st_mode) and ns(&status.st_ctim) <= left_ns)


cdef bint root_as_left(const char* folder, int64_t left_ns, bint in_place) noexcept nogil:
    cdef file_status status
    return (stat_of(folder, &status) == 0 and ns(&status.st_mtim) <= left_ns
            and (not in_place or ns(&status.st_ctim) <= left_ns))


cdef bint topic_as_left(const char* folder, const QueueEntry* queue, int64_t left_ns,
                        bint in_place) noexcept nogil:
    cdef char path[LOG_PATH_MAX]
    if open_file_folder(path, folder, queue) == 0:
        return False
    path[strlen(folder) + 1 + queue.topic_length] = 0
    return root_as_left(path, left_ns, in_place)


cdef bint status_as_left(const file_status* status, int64_t size, int64_t left_ns,
                         bint in_place) noexcept nogil:
    return (status.st_size == size and ns(&status.st_mtim) <= left_ns
            and (not in_place or ns(&status.st_ctim) <= left_ns))


cdef bint files_as_left(const char* folder, const QueueEntry* queue, int64_t file_entries,
                        int64_t least, int64_t most, int64_t left_ns, bint in_place) noexcept nogil:
    cdef char path[LOG_PATH_MAX]
    cdef file_status status
    cdef int64_t first = min(least, most - 1) // file_entries * file_entries
    while first < most:
        open_file_path(path, folder, queue, first * CQ_ENTRY_SIZE)
        if stat_of(path, &status) != 0 or not status_as_left(
                &status, file_entries * CQ_ENTRY_SIZE, left_ns, in_place):
            return False
        first += file_entries
    return True


cdef bint file_as_left(int fd, const QueueEntry* queue, int64_t file_entries) noexcept nogil:
    cdef int64_t left_ns = load_i64_acquire(&queue.left_ns)
    cdef file_status status
    if left_ns == 0:
        return True
    if fstat(fd, &status) == 0 and status_as_left(&status, file_entries * CQ_ENTRY_SIZE, left_ns,
                                                  True):
        return True
    return load_i64_acquire(&queue.left_ns) == 0       # before our dispatcher wrote to it: Y4


cdef void queue_look(const char* folder, QueueEntry* queue, int64_t file_entries) noexcept nogil:
    cdef int64_t left_ns = load_i64_acquire(&queue.left_ns)
    if left_ns != 0 and files_as_left(folder, queue, file_entries,
                                      load_i64_acquire(&queue.min_offset),
                                      load_i64_acquire(&queue.max_offset), left_ns, True):
        store_i64_release(&queue.left_ns, 0)


cdef class LeftQueues:
    """The pass over all queues, for threads of the dispatcher's process."""
    cdef Segment segment
    cdef Shm* shm
    cdef bytes folder
    cdef int64_t file_entries

    def __init__(self, Segment segment not None, bytes folder not None, int64_t file_entries):
        self.segment = segment
        self.shm = &segment.shm
        self.folder = folder
        self.file_entries = file_entries

    @property
    def count(self) -> int:
        """All queues."""
        return load_i32_acquire(&self.shm.head.queue_count)

    @property
    def left(self) -> int:
        """How many queues nobody has looked at, or found changed."""
        cdef int32_t number, count = 0
        for number in range(load_i32_acquire(&self.shm.head.queue_count)):
            count += load_i64_acquire(&self.shm.queues[number].left_ns) != 0
        return count

    def look(self, int32_t first, int32_t end, int32_t step) -> list[str]:
        """
        Look at every `step`th queue of those numbered from `first` to `end`; the folders of those
        that somebody has changed. Any number of threads may do so.
        """
        cdef const char* folder = self.folder
        cdef char path[LOG_PATH_MAX]
        cdef QueueEntry* queue
        cdef int32_t number = first
        cdef list changed = []
        end = min(end, load_i32_acquire(&self.shm.head.queue_count))
        with nogil:
            while number < end:
                queue = &self.shm.queues[number]
                number += step
                queue_look(folder, queue, self.file_entries)
                if load_i64_acquire(&queue.left_ns) != 0 and (
                        load_i32_acquire(&queue.removal_begun)
                        == load_i32_acquire(&queue.removal_done)):
                    open_file_folder(path, folder, queue)
                    with gil:
                        changed.append(os.fsdecode(<bytes>path))
        return changed

    def report(self, int32_t count) -> None:
        """The dispatcher's word for the supervisor: so many queues are not as they were left."""
        store_i32_release(&self.shm.log.queues_changed, count)
