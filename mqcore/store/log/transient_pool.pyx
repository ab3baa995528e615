"""The transient pool and its commit thread (transient_pool.pxd has the rules)."""
from libc.errno cimport EAGAIN, EDQUOT, EINTR, ENOSPC, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset, strdup

from mqcore.atomics cimport (
    exchange_i32,
    full_fence,
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
    swap_i64,
)
from mqcore.clock cimport steady_ms, steady_us
from mqcore.invariants cimport invariant
from mqcore.layout cimport (
    PRODUCER_COUNT,
    REFUSAL_DISK_FULL,
    REFUSAL_NONE,
    REFUSAL_WRITE_FAILED,
    SLOT_DISPATCHER,
    SLOT_WRITER,
)
from mqcore.shm.segment cimport Shm, doorbell_hurry, doorbell_ring, followers_ring
from mqcore.store.io cimport PAGE, store_io, write_all_at
from mqcore.store.log.bell cimport bell_close, bell_make, bell_ring, bell_wait
from mqcore.store.log.checksums cimport (
    ChecksumFile,
    checksums_close,
    checksums_open,
    checksums_put,
    checksums_replace,
)
from mqcore.store.log.flush cimport FlushService, flush_hand_over, flush_stop, refusal_set
from mqcore.store.log.log_folders cimport log_create
from mqcore.store.log.prepare cimport prepare_give_way

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void* address, size_t length)
    int mlock(const void* address, size_t length)
    int memfd_create(const char* name, unsigned int flags)
    int PROT_NONE
    int PROT_READ
    int PROT_WRITE
    int MAP_SHARED
    int MAP_PRIVATE
    int MAP_ANONYMOUS
    int MAP_FIXED
    unsigned int MFD_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    int ftruncate(int fd, long size)
    int close(int fd)
    int usleep(unsigned int microseconds)

cdef enum:
    REQUEST_SLACK = 1 << 17           # blank record, properties that the writer adds: twice
    WRITTEN_BYTES = 1 << 20           # what one write takes: room comes back in such steps
    GATHER_MS = 1
    RETRY_MS = 200                    # after a write that failed
    BEHIND_MS = 5                     # while the flush service has no room for another segment
    STOP_RETRY_MS = 100
    DRAIN_LOOK_US = 200

cdef int64_t AWAKE = (<int64_t>1 << 62)


cdef uint8_t* map_twice(int64_t capacity) noexcept nogil:
    """`capacity` bytes of memory, and the same bytes once more behind them; NULL and errno."""
    cdef int fd = memfd_create("mqcore transient pool", MFD_CLOEXEC)
    cdef uint8_t* at = NULL
    cdef int half
    if fd < 0:
        return NULL
    if ftruncate(fd, capacity) == 0:
        at = <uint8_t*>mmap(NULL, 2 * capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if <long>at == -1:
        at = NULL
    if at != NULL:
        for half in range(2):
            if <long>mmap(at + half * capacity, capacity, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_FIXED, fd, 0) == -1:
                munmap(at, 2 * capacity)
                at = NULL
                break
    close(fd)
    return at


cdef int pool_open(TransientPool* pool, Shm* shm, FlushService* service, const char* folders,
                   int64_t capacity, int64_t end) noexcept nogil:
    cdef int i
    memset(pool, 0, sizeof(TransientPool))
    pool.fd = pool.bell = pool.checksums.fd = pool.checksums.folder_fd = -1
    for i in range(PRODUCER_COUNT):                    # half a ring is the longest request there is
        capacity = max(capacity, shm.head.appends[i].capacity + REQUEST_SLACK)
    pool.capacity = (capacity + PAGE - 1) // PAGE * PAGE
    pool.bytes = map_twice(pool.capacity)
    pool.folders = strdup(folders)
    if pool.bytes == NULL or pool.folders == NULL:
        return errno
    pool.locked = mlock(pool.bytes, pool.capacity) == 0
    pool.shm = shm
    pool.service = service
    pool.segment_size = shm.head.segment_size
    pool.written = pool.committed = pool.summed = end
    pool.store_time_ms = shm.log.last_store_time_ms
    pool.wanted = AWAKE
    pool.bell = bell_make()
    pool.base = -1
    return 0


cdef void pool_close(TransientPool* pool) noexcept nogil:
    if pool.bytes != NULL:
        munmap(pool.bytes, 2 * pool.capacity)
    if pool.fd >= 0:
        store_io().close_file(pool.fd)
    checksums_close(&pool.checksums)
    bell_close(pool.bell)
    free(pool.folders)


# -- the appender ----------------------------------------------------------------------------------


cdef bint pool_has_room(TransientPool* pool, int64_t end) noexcept nogil:
    if end <= load_i64_acquire(&pool.committed) + pool.capacity:                   # K1
        return True
    store_i32_release(&pool.appender_waits, 1)
    full_fence()                                       # the commit thread: committed, then this word
    return end <= load_i64_acquire(&pool.committed) + pool.capacity


cdef bint pool_end_segment(TransientPool* pool, int64_t base, int64_t end) noexcept nogil:
    """Nothing follows `end` in the segment at base; False: too many are on their way already."""
    cdef SegmentEnd* place = &pool.ends[pool.ends_put % POOL_ENDS]
    if pool.ends_put - load_i32_acquire(&pool.ends_taken) >= POOL_ENDS:
        return False
    place.base = base
    place.end = end
    store_i32_release(&pool.ends_put, pool.ends_put + 1)                           # K2
    return True


cdef void wake_if(TransientPool* pool, int64_t written) noexcept nogil:
    """Ring the commit thread's bell if it sleeps and waits for this much."""
    cdef int64_t wanted = load_i64_acquire(&pool.wanted)
    if written >= wanted and swap_i64(&pool.wanted, wanted, AWAKE):
        bell_ring(pool.bell)


cdef void pool_put(TransientPool* pool, int64_t end, int64_t store_time_ms) noexcept nogil:
    invariant("K1", end - load_i64_acquire(&pool.committed) <= pool.capacity)
    invariant("K2", pool.written <= end)
    store_i64_release(&pool.written, end)                                          # K2
    store_i64_release(&pool.store_time_ms, store_time_ms)
    full_fence()                                       # the commit thread: wanted, then written
    wake_if(pool, end)


cdef bint pool_drain(TransientPool* pool, int64_t wait_ms) noexcept nogil:
    cdef int64_t end_ms = steady_ms() + wait_ms
    while load_i64_acquire(&pool.shm.log.published) < pool.written:
        if steady_ms() >= end_ms:
            return False
        store_i32_release(&pool.hurry, 1)
        bell_ring(pool.bell)
        usleep(DRAIN_LOOK_US)
    return True


# -- the commit thread -----------------------------------------------------------------------------


cdef int open_next(TransientPool* pool, int64_t base) noexcept nogil:
    """The segment that is written from now on (K5); 0 or errno."""
    cdef int error
    cdef ChecksumFile checksums
    cdef int fd = log_create(pool.folders, base, pool.segment_size)
    if fd < 0:
        return errno
    error = checksums_open(&checksums, pool.folders, base, pool.segment_size, pool.committed, False)
    if error == 0:
        error = flush_hand_over(pool.service, fd, checksums.fd, base)
    if error:
        checksums_close(&checksums)
        store_io().close_file(fd)
        return error
    checksums_replace(&pool.checksums, &checksums)
    pool.summed = pool.committed
    if pool.fd >= 0:
        store_io().close_file(pool.fd)
    pool.fd = fd
    pool.base = base
    return 0


cdef void moved(TransientPool* pool, int64_t committed) noexcept nogil:
    store_i64_release(&pool.committed, committed)
    full_fence()                                       # the appender: appender_waits, then committed
    if load_i32_acquire(&pool.appender_waits) and exchange_i32(&pool.appender_waits, 0):
        doorbell_ring(&pool.shm.slots[SLOT_WRITER])


cdef int pool_commit_to(TransientPool* pool, int64_t target) noexcept nogil:
    """Everything below `target`, which lies behind a whole record, to the files; 0 or errno."""
    cdef int64_t end, size
    cdef SegmentEnd* left
    cdef int error
    while pool.committed < target:
        if pool.base < 0 or pool.committed >= pool.base + pool.segment_size:
            error = open_next(pool, pool.committed // pool.segment_size * pool.segment_size)
            if error:
                return error
        end = target
        left = NULL
        if pool.ends_taken < load_i32_acquire(&pool.ends_put):
            left = &pool.ends[pool.ends_taken % POOL_ENDS]
            if left.end > target:
                left = NULL
            else:
                end = left.end                                                     # K2
        if pool.summed < end:                                      # checksums.pxd, CS2
            error = checksums_put(&pool.checksums, pool_at(pool, pool.summed), end - pool.summed,
                                  pool.summed)
            if error:
                return error
            pool.summed = end
        while pool.committed < end:
            if load_i32_acquire(&pool.stop) == STOP_NOW:
                return EINTR
            size = min(<int64_t>WRITTEN_BYTES, end - pool.committed)
            if pool.prepare != NULL:
                prepare_give_way(pool.prepare, pool.committed + size)
            error = write_all_at(pool.fd, pool.bytes + pool.committed % pool.capacity, size,
                                 pool.committed - pool.base)
            if error:
                return error                                                       # K4
            moved(pool, pool.committed + size)
        if left != NULL:
            store_i32_release(&pool.ends_taken, pool.ends_taken + 1)
            moved(pool, pool.base + pool.segment_size)
            store_i64_release(&pool.shm.log.published_us, steady_us())
            store_i64_release(&pool.shm.log.published, pool.committed)             # K3: it is whole
    return 0


cdef int pool_commit(TransientPool* pool) noexcept nogil:
    """Write what there is and show it to readers; 0 or errno (K4), EAGAIN: the flush is behind."""
    cdef int64_t store_time_ms = load_i64_acquire(&pool.store_time_ms)
    cdef int64_t target = load_i64_acquire(&pool.written)
    cdef int error = pool_commit_to(pool, target)
    if error:
        if error == EINTR:
            return error
        if error != EAGAIN:
            store_i32_release(&pool.failure, error)
            if error != ENOSPC and error != EDQUOT:
                store_i64_release(&pool.failed_writes, pool.failed_writes + 1)
            refusal_set(pool.shm.log, pool.service, REFUSAL_DISK_FULL
                        if error == ENOSPC or error == EDQUOT else REFUSAL_WRITE_FAILED)
        return error
    if load_i32_acquire(&pool.shm.log.refusal) in (REFUSAL_DISK_FULL, REFUSAL_WRITE_FAILED):
        refusal_set(pool.shm.log, pool.service, REFUSAL_NONE)
    pool.commits += 1
    store_i64_release(&pool.shm.log.published_us, steady_us())
    store_i64_release(&pool.shm.log.published, target)                             # K3
    store_i64_release(&pool.shm.log.last_store_time_ms, store_time_ms)
    followers_ring(pool.shm)
    doorbell_hurry(&pool.shm.slots[SLOT_DISPATCHER])              # dispatch D6: it comes in batches
    return 0


cdef void sleep_until(TransientPool* pool, int64_t wanted, int64_t wait_ms) noexcept nogil:
    """Sleep until `written` is at `wanted`, or the time is over, or somebody rings."""
    store_i64_release(&pool.wanted, wanted)
    full_fence()                                       # the appender: written, then wanted
    if (load_i64_acquire(&pool.written) < wanted and not load_i32_acquire(&pool.stop)
            and not load_i32_acquire(&pool.hurry)):
        bell_wait(pool.bell, wait_ms)
    store_i64_release(&pool.wanted, AWAKE)


cdef bint is_due(TransientPool* pool, int64_t pending, int64_t since_ms) noexcept nogil:
    """K6."""
    return pending > 0 and (pending >= pool.least_bytes or since_ms >= pool.thorough_interval_ms
                            or load_i32_acquire(&pool.stop) or load_i32_acquire(&pool.hurry))


cdef void pool_run(TransientPool* pool) noexcept nogil:
    cdef int64_t last_ms = 0, now_ms, pending, wait_ms
    cdef int error
    cdef bint stopping = False
    while True:
        stopping = load_i32_acquire(&pool.stop) != 0
        now_ms = steady_ms()
        pending = load_i64_acquire(&pool.written) - pool.committed
        if is_due(pool, pending, now_ms - last_ms):
            error = pool_commit(pool)
            if error == 0:
                store_i32_release(&pool.hurry, 0)
                last_ms = steady_ms()
                if not stopping and pending < pool.capacity // 2:
                    bell_wait(pool.bell, GATHER_MS)
            elif stopping:
                if load_i32_acquire(&pool.stop) == STOP_NOW:
                    break
                usleep(1000 * STOP_RETRY_MS)
            else:
                bell_wait(pool.bell, BEHIND_MS if error == EAGAIN else RETRY_MS)
        elif stopping:
            break
        elif pending == 0:
            store_i32_release(&pool.hurry, 0)
            sleep_until(pool, pool.committed + 1, pool.interval_ms * 1000)
        else:
            wait_ms = min(pool.interval_ms, pool.thorough_interval_ms - (now_ms - last_ms))
            sleep_until(pool, pool.committed + pool.least_bytes, max(wait_ms, <int64_t>1))
    flush_stop(pool.service)                                                       # K5


cdef void pool_configure(TransientPool* pool, int64_t interval_ms, int64_t least_bytes,
                         int64_t thorough_interval_ms) noexcept nogil:
    store_i64_release(&pool.interval_ms, interval_ms)
    store_i64_release(&pool.least_bytes, least_bytes)
    store_i64_release(&pool.thorough_interval_ms, thorough_interval_ms)
    bell_ring(pool.bell)               # it may sleep for as long as the old interval


cdef void pool_stop(TransientPool* pool) noexcept nogil:
    if load_i32_acquire(&pool.stop) == 0:              # who has given up does not begin to wait again
        store_i32_release(&pool.stop, STOP_ASKED)
    bell_ring(pool.bell)


cdef void pool_give_up(TransientPool* pool) noexcept nogil:
    store_i32_release(&pool.stop, STOP_NOW)
    bell_ring(pool.bell)
