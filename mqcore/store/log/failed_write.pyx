"""A disk that refuses (failed_write.pxd)."""
from libc.errno cimport EDQUOT, ENOSPC, errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from mqcore.atomics cimport load_i32_acquire
from mqcore.clock cimport steady_ms
from mqcore.layout cimport (
    REFUSAL_DISK_FULL,
    REFUSAL_FLUSH_FAILED,
    REFUSAL_NONE,
    REFUSAL_WRITE_FAILED,
)
from mqcore.store.io cimport wipe, write_all_at
from mqcore.store.log.appender cimport Appender
from mqcore.store.log.checksums cimport checksums_put, checksums_take_back
from mqcore.store.log.flush cimport refusal_set

cdef extern from "<fcntl.h>" nogil:
    int fallocate(int fd, int mode, long offset, long length)

cdef enum:
    PROBE_INTERVAL_MS = 200
    PROBE_BYTES = 1 << 20
    PROBE_ZEROS = 4096
    WRITE_TRIES = 3                   # of one batch, before its requests are refused
    KEEP_SIZE = 1                     # FALLOC_FL_KEEP_SIZE


cdef int write_staged(Appender* a) noexcept nogil:
    """append A4: nobody knows of the bytes yet, so they may be written again."""
    cdef int64_t count = a.checksums.count, end = a.checksums.end
    cdef const uint8_t* bytes = a.in_ring
    cdef int error = 0, tries
    if bytes == NULL:
        bytes = a.staging
    for tries in range(WRITE_TRIES):
        error = checksums_put(&a.checksums, bytes, a.staged, a.position)
        if error == 0:
            error = write_all_at(a.fd, bytes, a.staged, a.position - a.base)
        if error:
            checksums_take_back(&a.checksums, count, end)
        if error == 0 or error == ENOSPC or error == EDQUOT:
            break
        a.failed_writes += 1
        a.failed_write = error
    return error


cdef void disk_refuses(Appender* a, int error, int otherwise) noexcept nogil:
    a.failure = error
    a.probe_ms = steady_ms() + PROBE_INTERVAL_MS
    if (error == ENOSPC or error == EDQUOT) and otherwise != REFUSAL_FLUSH_FAILED:
        refusal_set(a.shm.log, a.service, REFUSAL_DISK_FULL)
    else:
        refusal_set(a.shm.log, a.service, otherwise)


cdef bint leftovers_wipe(Appender* a) noexcept nogil:
    if a.unwiped > a.position:
        if wipe(a.fd, a.position - a.base, min(a.unwiped, a.base + a.segment_size) - a.position):
            refusal_set(a.shm.log, a.service, REFUSAL_WRITE_FAILED)
            return False
    a.unwiped = 0
    return True


cdef void disk_probe(Appender* a) noexcept nogil:
    """
    After a full disk, is there room for the next megabyte? After a failed write, can the place be
    written? Then take writes again.
    """
    cdef uint8_t[PROBE_ZEROS] zeros
    cdef int64_t at = a.position - a.base
    if load_i32_acquire(&a.shm.log.refusal) not in (REFUSAL_DISK_FULL, REFUSAL_WRITE_FAILED):
        return
    a.probe_ms = steady_ms() + PROBE_INTERVAL_MS
    if a.fd >= 0:
        if not leftovers_wipe(a):
            return
        if load_i32_acquire(&a.shm.log.refusal) == REFUSAL_WRITE_FAILED:
            memset(zeros, 0, PROBE_ZEROS)
            if write_all_at(a.fd, zeros, min(<int64_t>PROBE_ZEROS, a.segment_size - at), at):
                return
    if a.fd >= 0 and fallocate(a.fd, KEEP_SIZE, at, min(PROBE_BYTES, a.segment_size - at)) != 0:
        if errno == ENOSPC or errno == EDQUOT:
            return
    refusal_set(a.shm.log, a.service, REFUSAL_NONE)
