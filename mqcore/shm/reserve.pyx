"""Allocates pages of the shared memory before they are touched (reserve.pxd)."""
from libc.errno cimport EINTR
from libc.stdint cimport int64_t, uint8_t

from mqcore.shm.segment cimport Shm

cdef extern from "<fcntl.h>" nogil:
    int posix_fallocate(int fd, long offset, long length)

cdef enum:
    STEP_BYTES = 256 << 10            # asked for at a time


cdef bint shm_grow(Shm* shm, const void* table, int64_t entry_size, int64_t number) noexcept nogil:
    cdef const uint8_t* at = <const uint8_t*>table + number * entry_size
    cdef int64_t start = at - shm.base
    # the steps up to the entry before it were granted when that was added, maybe by a predecessor
    if number > 0 and (start + entry_size - 1) // STEP_BYTES == (start - 1) // STEP_BYTES:
        return True
    return shm_reserve(shm, at, entry_size)


cdef bint shm_reserve(Shm* shm, const void* at, int64_t size) noexcept nogil:
    cdef int64_t start = (<const uint8_t*>at - shm.base) // STEP_BYTES * STEP_BYTES
    cdef int64_t end = (<const uint8_t*>at - shm.base + size + STEP_BYTES - 1) // STEP_BYTES * STEP_BYTES
    cdef int error = EINTR
    if shm.memory < 0 or size <= 0:
        return True
    while error == EINTR:
        error = posix_fallocate(shm.memory, start, min(end, shm.head.total_size) - start)
    return error == 0
