"""Writes zeros ahead of the commit log (prepare.pxd has its rules)."""
from libc.errno cimport ENOENT, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport strdup

from mqcore.atomics cimport (
    full_fence,
    load_i32_acquire,
    load_i64_acquire,
    store_i64_release,
)
from mqcore.layout cimport REFUSAL_NONE, LogState
from mqcore.store.io cimport WAIT_WRITE_WAIT, store_io, write_all_at
from mqcore.store.log.log_folders cimport log_create, log_open

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)
    long lseek(int fd, long offset, int whence)
    int SEEK_HOLE

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY, O_RDWR, O_CLOEXEC
    int sync_file_range(int fd, long offset, long length, unsigned int flags)

cdef extern from "<sys/statvfs.h>" nogil:
    struct statvfs:
        unsigned long f_bavail
        unsigned long f_frsize
    int fstatvfs(int fd, statvfs* figures)

cdef enum:
    ZEROS_BYTES = 1 << 20
    PIECE_BYTES = 1 << 16             # of one write: the appender's waits for the same file's lock
    AHEAD_BYTES = 128 << 20           # how far the zeros run ahead of the log's end
    MARGIN_BYTES = 4 << 20            # never nearer to the end than this
    ROOM_BYTES = 256 << 20            # what the zeros leave of a disk to everything else
    LOOK_US = 50000
    FULL_WAIT_US = 1000000            # after the disk refused
    GIVE_WAY_US = 20


cdef void prepare_open(PrepareService* service, LogState* state, const char* folders,
                       int64_t segment_size, int64_t end, bint to_disk) noexcept nogil:
    service.state = state
    service.segment_size = segment_size
    service.claim_from = -1
    service.claim_to = -1
    service.writing_to = end
    service.prepared = end
    service.to_disk = to_disk
    service.stop = 0
    service.folders = strdup(folders)


cdef void prepare_close(PrepareService* service) noexcept nogil:
    free(service.folders)


cdef void prepare_give_way(PrepareService* service, int64_t end) noexcept nogil:
    cdef int64_t claimed
    store_i64_release(&service.writing_to, end)
    full_fence()                                                         # P1
    while True:
        claimed = load_i64_acquire(&service.claim_from)
        if claimed < 0 or claimed >= end:
            return
        usleep(GIVE_WAY_US)


cdef bint zero_chunk(PrepareService* service, int fd, int64_t position, int64_t size,
                     const uint8_t* zeros) noexcept nogil:
    """Zeros at a log position; False: the disk refuses."""
    cdef int64_t offset = position % service.segment_size
    cdef int64_t done = 0, piece
    cdef int error = 0
    service.claim_to = position + size
    store_i64_release(&service.claim_from, position)
    full_fence()                                                         # P1
    if load_i64_acquire(&service.writing_to) <= position:
        while done < size and error == 0:
            piece = min(<int64_t>PIECE_BYTES, size - done)
            error = write_all_at(fd, zeros, piece, offset + done)
            done += piece
        if (error == 0 and service.to_disk
                and sync_file_range(fd, offset, size, WAIT_WRITE_WAIT) != 0):
            error = errno
    store_i64_release(&service.claim_from, -1)
    return error == 0


cdef bint has_room(int fd) noexcept nogil:
    """Whether the disk can spare a chunk: queues, index and settings need room of their own."""
    cdef statvfs figures
    if fstatvfs(fd, &figures) != 0:
        return False
    return <int64_t>(figures.f_bavail * figures.f_frsize) >= ROOM_BYTES + ZEROS_BYTES


cdef int next_segment(PrepareService* service, int64_t base, int64_t end) noexcept nogil:
    """The segment at `base`, made only behind one that is there (P3); -1 and errno: not now."""
    cdef int before, fd = log_open(service.folders, base, O_RDWR | O_CLOEXEC)
    if fd >= 0 or errno != ENOENT:
        return fd
    if base > end:
        before = log_open(service.folders, base - service.segment_size, O_RDONLY | O_CLOEXEC)
        if before < 0:
            return -1
        store_io().close_file(before)
    return log_create(service.folders, base, service.segment_size)


cdef int64_t first_hole(int fd, int64_t offset) noexcept nogil:
    """Up to where the blocks of a segment are written from `offset` on; `offset`: not known."""
    cdef int64_t hole = lseek(fd, offset, SEEK_HOLE)
    return offset if hole < 0 else hole


cdef void prepare_run(PrepareService* service) noexcept nogil:
    cdef uint8_t* zeros = <uint8_t*>calloc(1, ZEROS_BYTES)
    cdef int64_t end, position, size, base = -1
    cdef int fd = -1
    while zeros != NULL and service.folders != NULL and not load_i32_acquire(&service.stop):
        end = load_i64_acquire(&service.writing_to)
        if end < 0:
            usleep(LOOK_US)
            continue
        position = max(service.prepared, end + MARGIN_BYTES)
        if (position >= end + AHEAD_BYTES
                or load_i32_acquire(&service.state.refusal) != REFUSAL_NONE):
            usleep(LOOK_US)
            continue
        if position // service.segment_size != base:
            if fd >= 0:
                store_io().close_file(fd)
            base = position // service.segment_size
            fd = next_segment(service, base * service.segment_size, end)
            if fd >= 0 and service.to_disk:            # an earlier writer may have been here
                service.prepared = base * service.segment_size + first_hole(
                    fd, position - base * service.segment_size)
                continue
        size = min(<int64_t>ZEROS_BYTES, (base + 1) * service.segment_size - position)
        if fd >= 0 and not has_room(fd):                                 # P2
            usleep(LOOK_US)
            continue
        if fd < 0 or not zero_chunk(service, fd, position, size, zeros):
            base = -1
            if fd >= 0:
                store_io().close_file(fd)
            fd = -1
            usleep(FULL_WAIT_US)                                         # P2
            continue
        service.prepared = position + size
    if fd >= 0:
        store_io().close_file(fd)
    free(zeros)
