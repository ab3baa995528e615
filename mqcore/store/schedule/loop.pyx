"""The scheduler process's native loop around delivery (delivery.pxd), and its Python shell."""
from dataclasses import dataclass

from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i32_release, store_i64_release
from mqcore.clock cimport steady_ms, wall_ms
from mqcore.layout cimport (
    LISTENER_SCHEDULER,
    DELAY_LEVEL_MAX,
    PRODUCER_SCHEDULER,
    SCHEDULE_AHEAD_MAX,
    SLOT_SCHEDULER,
    ScheduleState,
)
from mqcore.shm.segment cimport Segment, Shm, doorbell_arm, doorbell_disarm, shm_consumer
from mqcore.shm.store_clock cimport store_clock_look, store_clock_steady_of
from mqcore.shm.waiter cimport Waiter, waiter_close, waiter_open, waiter_sleep
from mqcore.store.log.append_end cimport append_end_open
from mqcore.store.queue.consume_queue cimport (
    queue_files_close,
    queue_files_forget,
    queue_files_open,
)
from mqcore.store.log.view cimport log_view_close, log_view_forget, log_view_open
from mqcore.store.schedule.delivery cimport schedule_has_work, schedule_is_quiet, schedule_turn
from mqcore.store.schedule.book cimport BOOK_OFFSET_BITS, book_attach, book_move, book_settle
from mqcore.store.schedule.timer cimport (
    timer_begin,
    timer_close,
    timer_end,
    timer_load,
    timer_publish,
    timer_resume,
    timer_safe,
    timer_trusts,
)
from mqcore.store.schedule.levels cimport (
    PHASE_DELIVERING,
    PHASE_ENDING,
    Level,
    Scheduler,
    level_begin,
    levels_find_queues,
)

cdef enum:
    OPEN_FILES_MAX = 128              # queue files; there are 64 levels


@dataclass(frozen=True)
class Snapshot:
    """
    How far the levels are: the arguments of `load`, and the end of the log at that time, in bytes.
    It is true of a store only once the log is on disk up to that end.
    """

    offsets: dict[int, int]
    position: int
    ahead: list[tuple[int, int]]
    end: int
    timer: tuple[int, int, bool] = (0, 0, True)    # the arguments of `load_timer` (timer TM5)


cdef class ScheduleLoop:
    """
    The scheduler's work, without the GIL.

    segment: the run's shared memory; log_folder, queue_folder: where the files are; file_entries:
    entries of a consume queue file; delays_ms: of level 1, 2, ...; store_root: the store's folder,
    where the timer wheel is, b"": no message has a time of delivery. Raises OSError.
    """
    cdef Segment segment
    cdef Scheduler* s
    cdef Waiter waiter
    cdef bint waits
    cdef int32_t trims_seen

    def __cinit__(self, Segment segment not None, bytes log_folder, bytes queue_folder, *,
                  int64_t file_entries, delays_ms, bytes store_root=b""):
        cdef Shm* shm = &segment.shm
        cdef int32_t i
        if not 1 <= len(delays_ms) <= DELAY_LEVEL_MAX:
            raise ValueError(f"delays_ms: 1 to {DELAY_LEVEL_MAX} levels, not {len(delays_ms)}")
        self.segment = segment
        self.s = <Scheduler*>calloc(1, sizeof(Scheduler))
        if self.s == NULL:
            raise MemoryError
        self.s.shm = shm
        self.s.slot = &shm.slots[SLOT_SCHEDULER]
        self.s.level_count = <int32_t>len(delays_ms)
        for i in range(DELAY_LEVEL_MAX + 1):
            self.s.levels[i].queue = -1
        timer_begin(self.s, store_root)
        for i in range(self.s.level_count):
            self.s.levels[i].delay_ms = delays_ms[i]
        log_view_open(&self.s.log, shm.log, log_folder, shm.head.segment_size)
        if queue_files_open(&self.s.queues, shm.queues, shm.head.queue_capacity, queue_folder,
                            file_entries, OPEN_FILES_MAX, False):
            raise MemoryError
        append_end_open(&self.s.appends, shm, PRODUCER_SCHEDULER, self.s.slot.incarnation)
        shm_consumer(shm, &shm.head.arrivals[LISTENER_SCHEDULER], &self.s.arrivals)
        book_attach(&self.s.book, shm.schedule)
        error = waiter_open(&self.waiter, self.s.slot.bell)
        if error:
            raise OSError(error, "epoll")
        self.waits = True

    def __dealloc__(self):
        if self.s != NULL:
            timer_close(self.s)
            log_view_close(&self.s.log)
            if self.s.queues.open.files != NULL:
                queue_files_close(&self.s.queues)
            free(self.s)
        if self.waits:
            waiter_close(&self.waiter)

    def set_delays(self, delays_ms) -> None:
        """
        Other delays from now on: what is stored later waits so long. There are as many levels as
        there ever were in this process, so that what was stored in one that went is delivered.
        """
        cdef int32_t i
        cdef Level* level
        if not 1 <= len(delays_ms) <= DELAY_LEVEL_MAX:
            raise ValueError(f"delays_ms: 1 to {DELAY_LEVEL_MAX} levels, not {len(delays_ms)}")
        for i in range(<int32_t>len(delays_ms)):
            level = &self.s.levels[i]
            level.delay_ms = delays_ms[i]
            if i >= self.s.level_count:
                level_begin(&self.s.book, level, i)
        self.s.level_count = max(self.s.level_count, <int32_t>len(delays_ms))

    # -- the book ----------------------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """Whether this run's shared memory says how far each level is: else `load` it."""
        return load_i32_acquire(&self.s.book.state.level_count) > 0

    def load(self, offsets: dict[int, int], int64_t position, ahead=()) -> None:
        """
        A run begins. offsets: level, from 1 -> the next queue offset to be delivered; ahead:
        (level, queue offset) of later ones that are delivered; position: of the log, in bytes:
        what was delivered behind it may be missing in both. -1: they are exact. One beyond the
        log: they speak of another, longer one, and all of this one is asked.
        """
        cdef int64_t published = load_i64_acquire(&self.s.shm.log.published)
        cdef int64_t offset
        cdef int32_t queue
        if position > published:
            offsets, ahead, position = {}, (), 0
        levels_find_queues(self.s)
        for level in range(1, DELAY_LEVEL_MAX + 1):
            offset = offsets.get(level, 0)
            if level <= self.s.level_count:
                queue = self.s.levels[level - 1].queue
                if queue < 0:
                    offset = 0                    # there is no such queue: its range is empty
                else:                             # the search begins with what is there
                    offset = max(offset, load_i64_acquire(&self.s.shm.queues[queue].min_offset))
            book_move(&self.s.book, level - 1, offset)
        for level, offset in ahead:
            if self.s.book.ahead_count < SCHEDULE_AHEAD_MAX and self.s.levels[level - 1].queue >= 0:
                book_settle(&self.s.book, level - 1, offset)
        store_i64_release(&self.s.book.state.settled_position,
                          position if position >= 0 else published)
        timer_publish(self.s)
        store_i32_release(&self.s.book.state.level_count, self.s.level_count)

    def resume_timer(self) -> None:
        """The words of the process before this one in the same run."""
        timer_resume(self.s)

    def load_timer(self, int64_t second, int64_t queue_offset, bint trusted) -> None:
        """
        The words of an earlier run about the timer (timer TM5): the first second that was not settled, since
        1970, and the queue offset below which that is true. trusted: the wheel's files are that run's.
        Raises ValueError.
        """
        if second < 0 or queue_offset < 0:
            raise ValueError(f"second {second}, queue offset {queue_offset}: expected 0 or more")
        timer_load(self.s, second, queue_offset, trusted)

    def set_collected_max(self, int32_t count) -> None:
        """For tests: how many messages of a second are in memory (timer TM7)."""
        self.s.timer.collected_max = count

    @property
    def timer_error(self) -> int:
        """The errno with which the wheel's files failed last, 0: they do not fail."""
        return self.s.timer.error

    def snapshot(self) -> Snapshot:
        """The book as it is, for `load` in a later run."""
        cdef ScheduleState* state = self.s.book.state
        cdef int64_t mask = (<int64_t>1 << BOOK_OFFSET_BITS) - 1
        cdef int64_t second, queue_offset, position
        timer_safe(self.s, &second, &queue_offset, &position)
        return Snapshot(
            {level + 1: state.offsets[level] for level in range(DELAY_LEVEL_MAX)
             if state.offsets[level] > 0},
            min(state.settled_position, position),
            [(state.ahead[i] >> BOOK_OFFSET_BITS, state.ahead[i] & mask)
             for i in range(SCHEDULE_AHEAD_MAX if self.s.book.ahead_count else 0)
             if state.ahead[i]],
            max(load_i64_acquire(&self.s.shm.log.published), state.settled_position),
            (second, queue_offset, bool(timer_trusts(self.s))))

    @property
    def flushed(self) -> int:
        """Up to where the log is on disk, a position in bytes."""
        return load_i64_acquire(&self.s.shm.log.flushed)

    # -- life --------------------------------------------------------------------------------------

    def run(self, int64_t slice_ms) -> None:
        """Deliver and sleep for `slice_ms`, or until a stop is asked for."""
        cdef int64_t end_ms = steady_ms() + slice_ms
        cdef int64_t wake_ms, done, left_ms, now_ms
        cdef int32_t trims = load_i32_acquire(&self.s.shm.log.trims)
        log_view_forget(&self.s.log)
        if trims != self.trims_seen:
            self.trims_seen = trims
            queue_files_forget(&self.s.queues)
        with nogil:
            levels_find_queues(self.s)
            while True:
                now_ms = steady_ms()
                done = schedule_turn(self.s, now_ms, now_ms, &wake_ms)
                left_ms = end_ms - steady_ms()
                self.s.slot.beat_ms = wall_ms()
                if left_ms <= 0:
                    break
                if self.s.phase != PHASE_ENDING and load_i32_acquire(&self.s.slot.stop_requested):
                    break
                if self.s.phase == PHASE_ENDING and schedule_is_quiet(self.s):
                    break
                if done > 0:
                    continue
                doorbell_arm(self.s.slot)
                if not schedule_has_work(self.s):
                    if wake_ms < INT64_MAX:
                        left_ms = min(left_ms, wake_ms - steady_ms())
                    waiter_sleep(&self.waiter, <int>max(left_ms, 0))
                doorbell_disarm(self.s.slot)

    def turn(self, int64_t now_ms, int64_t steady) -> tuple[int, int]:
        """
        For tests: one turn when the store clock shows now_ms. (done, when to turn again or -1).
        steady: the clock of the pauses after a refusal.
        """
        cdef int64_t wake_ms, at
        levels_find_queues(self.s)
        store_clock_look(self.s.shm.clock, &self.s.clock)
        at = store_clock_steady_of(&self.s.clock, now_ms)
        done = schedule_turn(self.s, at, steady, &wake_ms)
        return (done, now_ms + wake_ms - at if wake_ms < INT64_MAX else -1)

    def end(self, int64_t slice_ms) -> bool:
        """
        Hand nothing more over, and wait up to `slice_ms` for results. True: all is settled, the
        offsets are exact.
        """
        if self.s.phase >= PHASE_DELIVERING:
            self.s.phase = PHASE_ENDING
            self.run(slice_ms)
            self.s.timer.error = timer_end(self.s)
        return schedule_is_quiet(self.s)

    @property
    def delivering(self) -> bool:
        """Whether what an earlier life left is settled."""
        return self.s.phase == PHASE_DELIVERING

    def notes(self) -> tuple[list[tuple[int, int, int, int]], int]:
        """([(NoteKind, level, queue offset, log position)] since the last call, how many more)."""
        found = [(self.s.notes[i].kind, self.s.notes[i].level, self.s.notes[i].offset,
                  self.s.notes[i].position) for i in range(self.s.notes_count)]
        lost = self.s.notes_lost
        self.s.notes_count = self.s.notes_lost = 0
        return (found, lost)
