"""The writer process's native loop around the append service, and its services' threads."""
import os

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc

from mqcore.atomics cimport (
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
)
from mqcore.clock cimport steady_ms
from mqcore.layout cimport (
    FIGURE_APPENDED_BYTES,
    FIGURE_APPENDS,
    FIGURE_BATCHES,
    FIGURE_FLUSHES,
    FIGURE_FLUSH_TIMEOUTS,
    FIGURE_NOT_REPLICATED,
    FIGURE_POOL_BYTES,
    LATENCY_FLUSH,
    REFUSAL_FLUSH_FAILED,
    SLOT_WRITER,
    WorkerSlot,
)
from mqcore.shm.latency cimport latency_of
from mqcore.shm.segment cimport Segment, Shm, doorbell_arm, doorbell_disarm
from mqcore.shm.waiter cimport Waiter, waiter_close, waiter_open, waiter_sleep
from mqcore.store.log.append cimport (
    appender_close,
    appender_finish,
    appender_has_work,
    appender_open,
    appender_drain,
    appender_turn,
)
from mqcore.store.log.appender cimport (
    FLUSH_ASYNC,
    FLUSH_SYNC,
    FLUSH_TRANSIENT_POOL,
    TURN_BYTES_MAX,
    Appender,
)
from mqcore.store.log.dropped cimport requests_drop
from mqcore.store.log.flush cimport (
    FlushService,
    flush_configure,
    flush_run,
    flush_service_close,
    flush_service_open,
    flush_stop,
)
from mqcore.store.log.group_commit cimport (
    GroupCommit,
    group_commit_close,
    group_commit_open,
    group_configure,
    group_stop,
    group_watch,
)
from mqcore.store.log.prepare cimport PrepareService, prepare_close, prepare_open, prepare_run
from mqcore.store.log.replica_gate cimport Gate, gate_configure, gate_open, gate_wait_ms
from mqcore.store.log.transient_pool cimport (
    TransientPool,
    pool_close,
    pool_configure,
    pool_give_up,
    pool_open,
    pool_run,
    pool_stop,
)
from mqcore.store.queue.multi_dispatch cimport MultiDispatch, multi_close, multi_enable, multi_open

cdef enum:
    POOL_LOOK_MS = 10                 # while a request waits for room in the pool
    REFUSAL_LOOK_MS = 200             # whether the disk takes writes again

MODES = {"async": FLUSH_ASYNC, "sync": FLUSH_SYNC, "transient-pool": FLUSH_TRANSIENT_POOL}


def sync_bytes_max(int64_t message_bytes_max) -> int:
    """The most that sync mode has written and not yet synced: one turn, in bytes."""
    return TURN_BYTES_MAX + 2 * (message_bytes_max + (128 << 10))


cdef class AppendLoop:
    """
    The writer process's work, without the GIL.

    log_folders: where the segments are, see log_folders.pxd; end: position in bytes where the log
    ends (from recovery); mode: "async", "sync" or "transient-pool"; the intervals in ms, sizes in
    bytes; wait_replicated: acknowledgements wait until others have the record (replica_gate.pxd),
    for slave_timeout_ms, while these are less than slave_fallbehind_bytes behind; follows_only: the
    log takes raw bytes, and nothing else (raw.pxd, A10); queue_file_entries: of a consume queue
    file (raw A7). Raises OSError.
    """
    cdef Segment segment
    cdef Appender* a
    cdef FlushService* service
    cdef PrepareService* prepare
    cdef GroupCommit* group
    cdef TransientPool* pool
    cdef MultiDispatch* multi
    cdef Gate* gate
    cdef Waiter waiter
    cdef bint waits
    cdef readonly int32_t removals_seen      # how many calls to remove queues were answered

    def __cinit__(self, Segment segment not None, bytes log_folders, str mode, int64_t end, *,
                  int64_t flush_interval_ms, int64_t flush_least_bytes,
                  int64_t flush_thorough_interval_ms, int64_t sync_timeout_ms,
                  int64_t commit_interval_ms, int64_t commit_least_bytes,
                  int64_t commit_thorough_interval_ms=200, int64_t pool_bytes=1 << 26,
                  bint warm_segments=False, bint show_unflushed=False,
                  bint wait_replicated=False, int64_t slave_timeout_ms=3000,
                  int64_t slave_fallbehind_bytes=1 << 28, bint follows_only=False,
                  int64_t queue_file_entries=300_000):
        cdef Shm* shm = &segment.shm
        cdef int flush_mode = MODES[mode]
        self.segment = segment
        self.a = <Appender*>calloc(1, sizeof(Appender))
        if self.a == NULL:
            raise MemoryError
        self.a.fd = self.a.folder_fd = self.a.checksums.fd = self.a.checksums.folder_fd = -1
        if flush_mode == FLUSH_SYNC:
            self.group = <GroupCommit*>calloc(1, sizeof(GroupCommit))
            if self.group == NULL:
                raise MemoryError
            group_commit_open(self.group, shm, self.a.results, self.a.producer, 0, sync_timeout_ms)
        else:
            self.service = <FlushService*>calloc(1, sizeof(FlushService))
            if self.service == NULL:
                raise MemoryError
            flush_service_open(self.service, shm.log,
                               latency_of(shm.latencies, SLOT_WRITER, LATENCY_FLUSH), log_folders,
                               shm.head.segment_size, flush_interval_ms, flush_least_bytes,
                               flush_thorough_interval_ms)
        if flush_mode == FLUSH_SYNC or warm_segments:
            self.prepare = <PrepareService*>calloc(1, sizeof(PrepareService))
            if self.prepare == NULL:
                raise MemoryError
            # where an empty log begins that follows another one is not known yet (raw A9)
            prepare_open(self.prepare, shm.log, log_folders, shm.head.segment_size,
                         end if end or not follows_only else -1, flush_mode == FLUSH_SYNC)
        error = 0
        if flush_mode == FLUSH_TRANSIENT_POOL:
            self.pool = <TransientPool*>calloc(1, sizeof(TransientPool))
            if self.pool == NULL:
                raise MemoryError
            error = pool_open(self.pool, shm, self.service, log_folders, pool_bytes, end)
            if error:
                raise OSError(error, f"transient pool of {pool_bytes} bytes: {os.strerror(error)}")
            self.pool.prepare = self.prepare
            self.pool.least_bytes = commit_least_bytes
            self.pool.interval_ms = commit_interval_ms
            self.pool.thorough_interval_ms = commit_thorough_interval_ms
        error = appender_open(self.a, shm, self.service, self.group, self.pool, log_folders,
                              flush_mode, end)
        if error:
            raise OSError(error, f"commit log cannot be opened: {os.strerror(error)}",
                          os.fsdecode(log_folders))
        self.multi = <MultiDispatch*>calloc(1, sizeof(MultiDispatch))
        if self.multi == NULL or multi_open(self.multi, shm):
            raise MemoryError
        self.a.multi = self.multi
        self.a.follows_only = follows_only
        self.a.queue_gap_max = queue_file_entries
        self.a.shows_unflushed = show_unflushed and flush_mode == FLUSH_SYNC
        if self.group != NULL:
            self.group.producers = self.a.producers
        if wait_replicated:
            self.gate = <Gate*>malloc(sizeof(Gate))
            if self.gate == NULL:
                raise MemoryError
            gate_open(self.gate, shm, slave_timeout_ms, slave_fallbehind_bytes)
            self.gate.rings_ahead = flush_mode == FLUSH_ASYNC
            self.a.gate = self.gate
            if self.group != NULL:
                self.group.gate = self.gate
        self.a.prepare = self.prepare if self.pool == NULL else NULL
        error = waiter_open(&self.waiter, shm.slots[SLOT_WRITER].bell)
        if error:
            raise OSError(error, "epoll")
        self.waits = True

    def __dealloc__(self):
        """Files and memory go; nothing is written: that is `finish`."""
        if self.multi != NULL:
            multi_close(self.multi)
        if self.pool != NULL:
            pool_close(self.pool)
        if self.a != NULL:
            appender_close(self.a)
        if self.prepare != NULL:
            prepare_close(self.prepare)
        if self.group != NULL:
            group_commit_close(self.group)
        if self.service != NULL:
            flush_service_close(self.service)
        if self.waits:
            waiter_close(&self.waiter)
        free(self.multi)
        free(self.gate)
        free(self.pool)
        free(self.a)
        free(self.prepare)
        free(self.group)
        free(self.service)

    def name_queues(self, bint light_queues, int32_t light_queue_count_max) -> None:
        """
        From now on records also get an offset in the queues that they name (multi_dispatch.pxd).

        light_queues: %LMQ%... have one queue, and at most light_queue_count_max of them are made.
        """
        multi_enable(self.multi, light_queues, light_queue_count_max)

    def configure(self, *, int64_t flush_interval_ms, int64_t flush_least_bytes,
                  int64_t flush_thorough_interval_ms, int64_t sync_timeout_ms,
                  int64_t commit_interval_ms, int64_t commit_least_bytes,
                  int64_t commit_thorough_interval_ms) -> None:
        """Other intervals and sizes from now on; the services look at them when they wake."""
        if self.service != NULL:
            flush_configure(self.service, flush_interval_ms, flush_least_bytes,
                            flush_thorough_interval_ms)
        if self.group != NULL:
            group_configure(self.group, sync_timeout_ms)
        if self.pool != NULL:
            pool_configure(self.pool, commit_interval_ms, commit_least_bytes,
                           commit_thorough_interval_ms)

    def configure_gate(self, int64_t slave_timeout_ms, int64_t slave_fallbehind_bytes) -> None:
        """Other limits of what waits for others, from now on."""
        if self.gate != NULL:
            gate_configure(self.gate, slave_timeout_ms, slave_fallbehind_bytes)

    @property
    def pool_locked(self) -> bool:
        """Whether the transient pool's memory can never be swapped; True where there is none."""
        return self.pool == NULL or self.pool.locked

    def publish_start(self, int64_t flushed) -> None:
        """Show readers where the log ends; flushed: up to where it is known to be on disk."""
        store_i64_release(&self.segment.shm.log.flushed, flushed)
        store_i64_release(&self.segment.shm.log.published, self.a.position)

    def drop_requests(self) -> None:
        """Answer what an earlier writer left in the rings: it is not appended again."""
        requests_drop(self.a)

    def run(self, int64_t slice_ms) -> None:
        """
        Append and sleep for `slice_ms`, or until a stop is asked for and nothing is waiting, or
        until queues are to be removed: see `removals_asked`.
        """
        cdef int64_t end_ms = steady_ms() + slice_ms
        cdef WorkerSlot* slot = &self.segment.shm.slots[SLOT_WRITER]
        cdef int64_t taken, timeout_ms
        with nogil:
            while True:
                taken = appender_turn(self.a)
                self.report(slot)
                if self.a.steady_ms >= end_ms or self.removals_wait():
                    break
                if taken > 0 and appender_has_work(self.a):
                    continue
                if load_i32_acquire(&slot.stop_requested):
                    break
                timeout_ms = end_ms - self.a.steady_ms
                if self.a.pool_wanted and timeout_ms > POOL_LOOK_MS:
                    timeout_ms = POOL_LOOK_MS
                if load_i32_acquire(&self.segment.shm.log.refusal) and timeout_ms > REFUSAL_LOOK_MS:
                    timeout_ms = REFUSAL_LOOK_MS
                if self.gate != NULL:
                    timeout_ms = gate_wait_ms(self.gate, self.a.producers, timeout_ms)
                doorbell_arm(slot)
                if not appender_has_work(self.a) and not self.removals_wait():
                    waiter_sleep(&self.waiter, <int>timeout_ms)
                doorbell_disarm(slot)

    cdef inline bint removals_wait(self) noexcept nogil:
        return load_i32_acquire(&self.segment.shm.log.removals_asked) != self.removals_seen

    def removals_asked(self) -> int:
        """How often the coordinator has called for a removal; to be given to `answer_removals`."""
        return load_i32_acquire(&self.segment.shm.log.removals_asked)

    def answer_removals(self, int32_t asked) -> None:
        """`run` does not stop again for calls up to `asked`, which came from `removals_asked`."""
        self.removals_seen = asked

    def restart_position(self) -> int:
        """
        Where queues that are removed now begin their new life: the position of the next record. -1
        while what came before cannot be written: ask again later. Between two calls of `run`.
        """
        cdef bint settled
        with nogil:
            drained = appender_drain(self.a)
        return self.a.position if drained else -1

    cdef void report(self, WorkerSlot* slot) noexcept nogil:
        slot.figures[FIGURE_APPENDS] = self.a.appends_count
        slot.figures[FIGURE_APPENDED_BYTES] = self.a.bytes_count
        slot.figures[FIGURE_BATCHES] = self.a.batches_count
        slot.figures[FIGURE_FLUSHES] = self.a.flushes_count + (
            self.service.flushes if self.service != NULL else 0)
        if self.pool != NULL:
            slot.figures[FIGURE_POOL_BYTES] = self.pool.written - load_i64_acquire(
                &self.pool.committed)
        if self.gate != NULL:
            slot.figures[FIGURE_NOT_REPLICATED] = self.gate.missed
        if self.group != NULL:
            slot.figures[FIGURE_FLUSH_TIMEOUTS] = load_i64_acquire(&self.group.timeouts)

    def has_work(self) -> bool:
        """Whether a request waits in a ring."""
        return appender_has_work(self.a)

    def finish(self) -> None:
        """Write what is staged; in sync mode also to disk. For the end, when no producer is left."""
        with nogil:
            appender_finish(self.a)

    def refusal(self) -> tuple[int, int]:
        """(Refusal, errno of what failed last)."""
        refusal = load_i32_acquire(&self.segment.shm.log.refusal)
        if self.service != NULL and refusal == REFUSAL_FLUSH_FAILED:
            return refusal, self.service.failure
        return refusal, self.a.failure if self.pool == NULL else load_i32_acquire(&self.pool.failure)

    def failed_writes(self) -> tuple[int, int]:
        """(how many writes of the log failed and were tried again, errno of the last)."""
        if self.pool != NULL:
            return (load_i64_acquire(&self.pool.failed_writes),
                    load_i32_acquire(&self.pool.failure))
        return (self.a.failed_writes, self.a.failed_write)

    def give_up(self) -> None:
        """After `stop_service`: what is in no file yet need not get there any more."""
        if self.pool != NULL:
            pool_give_up(self.pool)

    def pool_bytes_waiting(self) -> int:
        """Bytes of acknowledged records in the transient pool that are not in a file yet."""
        if self.pool == NULL:
            return 0
        return self.pool.written - load_i64_acquire(&self.segment.shm.log.published)

    def flush_timeouts(self) -> int:
        """How many answers have said FLUSH_DISK_TIMEOUT; for the log."""
        return load_i64_acquire(&self.group.timeouts) if self.group != NULL else 0

    def services(self) -> tuple[str, ...]:
        """What `run_service` runs in this mode, each in a thread of its own."""
        return (("commit",) * (self.pool != NULL) + ("flush",) * (self.service != NULL)
                + ("prepare",) * (self.prepare != NULL) + ("watch",) * (self.group != NULL))

    def run_service(self, str name="flush") -> None:
        """
        One service's whole life, until `stop_service`: "commit" writes what is in the transient
        pool, "flush" brings the log to disk behind the appends, "prepare" writes zeros ahead of
        them, "watch" answers for a sync that takes long. Raises ValueError for one that this mode
        does not have.
        """
        if name not in self.services():
            raise ValueError(f"service {name}: expected one of {', '.join(self.services())}")
        if name == "commit":
            with nogil:
                pool_run(self.pool)
        elif name == "flush":
            with nogil:
                flush_run(self.service)
        elif name == "prepare":
            with nogil:
                prepare_run(self.prepare)
        else:
            with nogil:
                group_watch(self.group)

    def stop_service(self) -> None:
        """
        Ask the services to end: the commit service ends after its last commit and then asks the
        flush service, which ends after its last sync.
        """
        if self.pool != NULL:
            pool_stop(self.pool)
        elif self.service != NULL:
            flush_stop(self.service)
        if self.prepare != NULL:
            store_i32_release(&self.prepare.stop, 1)
        if self.group != NULL:
            group_stop(self.group)
