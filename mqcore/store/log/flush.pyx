"""The async flush service."""
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport strdup

from mqcore.atomics cimport (
    full_fence,
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
)
from mqcore.clock cimport steady_ms, steady_us
from mqcore.layout cimport REFUSAL_FLUSH_FAILED, Latency, LogState
from mqcore.shm.latency cimport latency_add
from mqcore.store.log.bell cimport bell_close, bell_make, bell_ring, bell_wait
from mqcore.store.io cimport store_io
from mqcore.store.log.log_folders cimport log_create

cdef extern from "<unistd.h>" nogil:
    int dup(int fd)


cdef void refusal_set(LogState* state, FlushService* service, int32_t refusal) noexcept nogil:
    if load_i32_acquire(&state.refusal) == REFUSAL_FLUSH_FAILED:
        return                                                               # F2
    store_i32_release(&state.refusal, refusal)
    full_fence()       # the flush thread stores its failure, then its refusal: ours may have come last
    if service != NULL and load_i32_acquire(&service.failure):
        store_i32_release(&state.refusal, REFUSAL_FLUSH_FAILED)


cdef void flush_service_open(FlushService* service, LogState* state, Latency* times,
                             const char* folders, int64_t segment_size, int64_t interval_ms, int64_t least_bytes,
                             int64_t thorough_interval_ms) noexcept nogil:
    service.state = state
    service.times = times
    service.folders = strdup(folders)
    service.made = -1
    service.segment_size = segment_size
    service.interval_ms = interval_ms
    service.least_bytes = least_bytes
    service.thorough_interval_ms = thorough_interval_ms
    service.handed = 0
    service.consumed = 0
    service.stop = 0
    service.hurry = 0
    service.bell = bell_make()
    service.flushes = 0
    service.failure = 0


cdef void flush_service_close(FlushService* service) noexcept nogil:
    while service.consumed < service.handed:
        close_both(&service.segments[service.consumed % HANDOVER_PLACES])
        service.consumed += 1
    bell_close(service.bell)
    free(service.folders)


cdef void close_both(Handover* segment) noexcept nogil:
    store_io().close_file(segment.checksums_fd)
    store_io().close_file(segment.fd)


cdef int flush_hand_over(FlushService* service, int fd, int checksums_fd,
                         int64_t base) noexcept nogil:
    cdef Handover* place = &service.segments[service.handed % HANDOVER_PLACES]
    cdef int error
    if service.handed - load_i32_acquire(&service.consumed) >= HANDOVER_PLACES:
        store_i32_release(&service.hurry, 1)
        bell_ring(service.bell)
        return EAGAIN
    place.fd = dup(fd)
    if place.fd < 0:
        return errno
    place.checksums_fd = dup(checksums_fd)
    if place.checksums_fd < 0:
        error = errno
        store_io().close_file(place.fd)
        return error
    place.base = base
    store_i32_release(&service.handed, service.handed + 1)               # F1
    return 0


cdef bint sync_up_to(FlushService* service, int64_t target) noexcept nogil:
    """Sync every segment with bytes below target; the ones left behind are closed."""
    cdef Handover* segment
    cdef int64_t began_us
    while service.consumed < load_i32_acquire(&service.handed):
        segment = &service.segments[service.consumed % HANDOVER_PLACES]
        if segment.base >= target:
            return True
        service.flushes += 1
        began_us = steady_us()
        if (store_io().sync_data(segment.checksums_fd) != 0              # F1
                or store_io().sync_data(segment.fd) != 0):
            service.failure = errno
            store_i32_release(&service.state.refusal, REFUSAL_FLUSH_FAILED)   # F2
            return False
        latency_add(service.times, steady_us() - began_us, 1)
        if target < segment.base + service.segment_size:
            return True
        close_both(segment)
        store_i32_release(&service.consumed, service.consumed + 1)
    return True


cdef void make_ahead(FlushService* service) noexcept nogil:
    """F4. A disk that refuses is the appender's business, once it needs the segment."""
    cdef int32_t handed = load_i32_acquire(&service.handed)
    cdef int64_t next_base
    cdef int fd
    if handed == 0 or service.folders == NULL:
        return
    next_base = service.segments[(handed - 1) % HANDOVER_PLACES].base + service.segment_size
    if next_base <= service.made:
        return
    fd = log_create(service.folders, next_base, service.segment_size)
    if fd >= 0:
        store_io().close_file(fd)
        service.made = next_base


cdef void flush_stop(FlushService* service) noexcept nogil:
    store_i32_release(&service.stop, 1)
    bell_ring(service.bell)


cdef void flush_configure(FlushService* service, int64_t interval_ms, int64_t least_bytes,
                          int64_t thorough_interval_ms) noexcept nogil:
    store_i64_release(&service.interval_ms, interval_ms)
    store_i64_release(&service.least_bytes, least_bytes)
    store_i64_release(&service.thorough_interval_ms, thorough_interval_ms)
    bell_ring(service.bell)            # it may sleep for as long as the old interval


cdef void flush_run(FlushService* service) noexcept nogil:
    cdef int64_t last_ms = steady_ms()
    cdef int64_t thorough_ms = last_ms
    cdef int64_t now_ms, interval_ms, target, target_time_ms
    cdef bint stopping = False, hurry
    while not stopping:
        stopping = load_i32_acquire(&service.stop) != 0
        now_ms = steady_ms()
        hurry = stopping or load_i32_acquire(&service.hurry) != 0
        interval_ms = load_i64_acquire(&service.interval_ms)
        if not hurry and now_ms - last_ms < interval_ms:
            bell_wait(service.bell, interval_ms - (now_ms - last_ms))
            continue
        store_i32_release(&service.hurry, 0)
        if not stopping:
            make_ahead(service)
        last_ms = now_ms
        target_time_ms = load_i64_acquire(&service.state.last_store_time_ms)
        target = load_i64_acquire(&service.state.published)
        if target == service.state.flushed:
            continue
        if (not hurry and target - service.state.flushed < load_i64_acquire(&service.least_bytes)
                and now_ms - thorough_ms < load_i64_acquire(&service.thorough_interval_ms)):
            continue
        if not sync_up_to(service, target):
            return
        thorough_ms = now_ms
        store_i64_release(&service.state.flushed_store_time_ms, target_time_ms)
        store_i64_release(&service.state.flushed, target)
