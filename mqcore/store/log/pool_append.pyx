"""Appends to the transient pool (pool_append.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.atomics cimport load_i32_acquire
from mqcore.clock cimport steady_ms
from mqcore.endian cimport store_i32
from mqcore.layout cimport BLANK_SIZE_MIN, MAGIC_BLANK
from mqcore.store.log.appender cimport Appender
from mqcore.store.log.transient_pool cimport POOL_ENDS, pool_at, pool_end_segment, pool_has_room

cdef enum:
    POOL_WAIT_MS = 200                # requests wait so long for room in the pool


cdef bint roll_in_pool(Appender* a) noexcept nogil:
    cdef uint8_t* blank = pool_at(a.pool, a.position)
    if a.base >= 0:
        store_i32(blank, <int32_t>(a.base + a.segment_size - a.position))
        store_i32(blank + 4, MAGIC_BLANK)
        if not pool_end_segment(a.pool, a.base, a.position + BLANK_SIZE_MIN):
            return False
        a.base += a.segment_size
        a.position = a.base
    else:
        a.base = a.position // a.segment_size * a.segment_size
    return True


cdef bint has_pool_room(Appender* a, int64_t size) noexcept nogil:
    cdef int64_t start = a.position + a.staged
    if a.base >= 0 and not fits_segment(a, size):
        start = a.base + a.segment_size
        if a.pool.ends_put - load_i32_acquire(&a.pool.ends_taken) >= POOL_ENDS:
            a.pool_wanted = a.pool.written + a.pool.capacity     # when all is committed
            return False
    a.pool_wanted = start + size + BLANK_SIZE_MIN
    if not pool_has_room(a.pool, a.pool_wanted):
        return False
    a.pool_wanted = 0
    a.pool_full_ms = 0
    return True


cdef bint pool_keeps_waiting(Appender* a) noexcept nogil:
    if a.pool_full_ms == 0:
        a.pool_full_ms = steady_ms()
    return steady_ms() - a.pool_full_ms < POOL_WAIT_MS
