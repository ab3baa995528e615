"""The native part of the transaction-check process (check_round.pxd has its rules)."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i32_release, store_i64_release
from mqcore.clock cimport steady_ms
from mqcore.layout cimport (
    CHECK_PROGRESS,
    PRODUCER_TRANSACTION_CHECK,
    SLOT_COORDINATOR,
    SLOT_TRANSACTION_CHECK,
    CheckHead,
    TransactionState,
)
from mqcore.shm.ring cimport ring_claim, ring_finish, ring_has_room, ring_is_empty, ring_publish
from mqcore.shm.segment cimport Segment, doorbell_arm, doorbell_disarm, doorbell_ring, shm_producer
from mqcore.shm.waiter cimport Waiter, waiter_close, waiter_open, waiter_sleep
from mqcore.store.log.append_end cimport append_end_open
from mqcore.store.log.view cimport log_view_forget
from mqcore.store.queue.consume_queue cimport queue_files_forget
from mqcore.store.queue.half_queue cimport (
    MOVED_PLACES,
    OP_BLOCKS,
    half_queue_close,
    half_queue_end,
    half_queue_open,
    half_queue_seek,
    half_read_ops,
)
from mqcore.store.transactions.check_round cimport (
    LANDING_NOT_YET,
    LANDING_NO_ROOM,
    STEP_DONE,
    STEP_MORE,
    STEP_WAIT,
    CheckRound,
    keep_pace,
    oldest_born_ms,
    round_advance,
    round_begin,
    round_step,
)

cdef enum:
    SLEEP_MS = 1000
    POOL_LOOK_MS = 5
    ENTRIES_BYTES = 1024 * 20


cdef class TransactionCheckLoop:
    """
    The transaction-check process's native part: rounds, without the GIL.

    segment: the run's shared memory; log_folder, queue_folder: where the files are; file_entries:
    entries of a consume queue file. Times in ms: timeout_ms before a message is asked about,
    reserved_ms until it is given up for its age; check_max: how often it is asked about.
    """
    cdef Segment segment
    cdef CheckRound* round
    cdef Waiter waiter
    cdef bint waits
    cdef public int64_t ahead_ms       # of the clock: a test's time passes quickly

    def __cinit__(self, Segment segment not None, bytes log_folder, bytes queue_folder, *,
                  int64_t file_entries, int64_t timeout_ms, int64_t check_max,
                  int64_t reserved_ms):
        cdef int error
        self.segment = segment
        self.round = <CheckRound*>calloc(1, sizeof(CheckRound))
        if self.round == NULL:
            raise MemoryError
        self.round.shm = &segment.shm
        self.configure(timeout_ms=timeout_ms, check_max=check_max, reserved_ms=reserved_ms)
        self.round.oldest_copy = -1
        error = half_queue_open(&self.round.halves, &segment.shm, log_folder, queue_folder, file_entries)
        if error:
            raise OSError(error, "half and op queue cannot be opened")
        append_end_open(&self.round.appends, &segment.shm, PRODUCER_TRANSACTION_CHECK,
                        segment.shm.slots[SLOT_TRANSACTION_CHECK].incarnation)
        shm_producer(&segment.shm, &segment.shm.head.checks, &self.round.checks)
        error = waiter_open(&self.waiter, segment.shm.slots[SLOT_TRANSACTION_CHECK].bell)
        if error:
            raise OSError(error, "epoll")
        self.waits = True

    def __dealloc__(self):
        if self.round != NULL:
            half_queue_close(&self.round.halves)
            free(self.round)
        if self.waits:
            waiter_close(&self.waiter)

    def configure(self, *, int64_t timeout_ms, int64_t check_max, int64_t reserved_ms) -> None:
        """Other times from now on, see the class."""
        self.round.timeout_ms = timeout_ms
        self.round.check_max = check_max
        self.round.reserved_ms = reserved_ms

    def seek(self, int64_t half_offset, int64_t op_offset) -> None:
        """Where the last round of an earlier process left off; see `known` for one of this run."""
        half_queue_seek(&self.round.halves, half_offset, op_offset)
        self.round.told_half = self.round.told_op = -1
        self.report()

    def known(self) -> tuple[int, int] | None:
        """(half offset, op offset) that an earlier process of this run reached; None: there was none."""
        cdef TransactionState* state = self.segment.shm.transactions
        if not load_i32_acquire(&state.known):
            return None
        return (load_i64_acquire(&state.half_offset), load_i64_acquire(&state.op_offset))

    def round_begin(self) -> None:
        """A round over what is stored now; `run` works on it."""
        round_begin(self.round, self.now_ms())

    def turn(self, int64_t steady) -> bool:
        """
        One step of the round, without sleep, for tests that turn it by hand; True: it is over.
        steady: the clock of its pace.
        """
        cdef int result
        keep_pace(self.round, steady)
        result = round_step(self.round, self.now_ms())
        self.tell_coordinator()
        if result != STEP_DONE:
            return False
        self.finish()
        return True

    def run(self, int64_t slice_ms) -> bool:
        """Work on the round for `slice_ms`, or until a stop is asked for; True: it is over."""
        cdef int64_t end_ms = steady_ms() + slice_ms
        cdef int result = STEP_MORE
        log_view_forget(&self.round.halves.log)
        queue_files_forget(&self.round.halves.queues)
        with nogil:
            while steady_ms() < end_ms and not self.stopping():
                keep_pace(self.round, steady_ms())
                result = round_step(self.round, self.now_ms())
                self.tell_coordinator()
                if result == STEP_DONE:
                    break
                if result == STEP_WAIT:
                    self.sleep(end_ms - steady_ms(), False)
        self.finish(result == STEP_DONE)
        return result == STEP_DONE

    def round_end(self, int64_t timeout_ms) -> None:
        """Look at nothing more, but wait for what is on its way, so that no copy is made twice."""
        cdef int64_t end_ms = steady_ms() + timeout_ms
        cdef int result = STEP_MORE
        self.round.over = True
        with nogil:
            while result != STEP_DONE and steady_ms() < end_ms:
                result = round_step(self.round, self.now_ms())
                self.tell_coordinator()
                if result == STEP_WAIT:
                    waiter_sleep(&self.waiter, 1)
        self.finish(False)

    def wait(self, int64_t slice_ms) -> None:
        """
        Between rounds: look at the op records that have come, then sleep for `slice_ms`, or until a
        stop is asked for.
        """
        with nogil:
            while not self.stopping() and half_read_ops(&self.round.halves) > 0:
                round_advance(self.round)
        self.report()
        with nogil:
            self.sleep(slice_ms, True)

    @property
    def refused(self) -> bool:
        """Whether the writer refused copies of the last round: they are looked at in the next."""
        return self.round.refused

    @property
    def strange(self) -> int:
        """Op records so far that named no half message, and half messages too long for this broker."""
        return self.round.halves.strange

    @property
    def memory_bytes(self) -> int:
        """What the two queues take here: two bits for each half message from the first undecided on."""
        return (2 * self.round.halves.settled_capacity + 8 * OP_BLOCKS + 16 * MOVED_PLACES
                + ENTRIES_BYTES)

    @property
    def offsets(self) -> tuple[int, int]:
        """(half offset, op offset): what is below is settled."""
        return self.round.halves.half_offset, self.round.halves.op_offset

    cdef int64_t now_ms(self) noexcept nogil:
        return steady_ms() + self.ahead_ms

    cdef void finish(self, bint over=True):
        round_advance(self.round)
        if over:
            self.round.shm.transactions.rounds += 1
        self.report()

    cdef bint stopping(self) noexcept nogil:
        return load_i32_acquire(&self.round.shm.slots[SLOT_TRANSACTION_CHECK].stop_requested) != 0

    cdef void sleep(self, int64_t most_ms, bint idle) noexcept nogil:
        """Until the doorbell rings; full rings ring it too, when there is room."""
        cdef bint ready = False
        if self.round.landing == LANDING_NOT_YET:          # nobody rings when a pool's bytes are written
            waiter_sleep(&self.waiter, POOL_LOOK_MS)
            return
        if not idle and self.round.budget <= 0:            # results wait as well: they come in batches
            waiter_sleep(&self.waiter, 1)
            return
        doorbell_arm(&self.round.shm.slots[SLOT_TRANSACTION_CHECK])
        if self.round.landing == LANDING_NO_ROOM:
            ready = ring_has_room(&self.round.checks, self.round.check_room)
        elif not idle:
            ready = not ring_is_empty(&self.round.appends.results)
        if not self.stopping() and not ready:
            waiter_sleep(&self.waiter, <int>max(<int64_t>0, min(most_ms, <int64_t>SLEEP_MS)))
        doorbell_disarm(&self.round.shm.slots[SLOT_TRANSACTION_CHECK])

    cdef void tell_coordinator(self) noexcept nogil:
        if ring_publish(&self.round.checks):
            doorbell_ring(&self.round.shm.slots[SLOT_COORDINATOR])

    cdef void report(self):
        """Progress and figures, to shared memory and to the coordinator, who keeps the offsets."""
        cdef TransactionState* state = self.segment.shm.transactions
        cdef CheckRound* round = self.round
        cdef CheckHead* head
        cdef int64_t end = half_queue_end(&round.halves)
        cdef int32_t coordinator = load_i32_acquire(&round.shm.slots[SLOT_COORDINATOR].incarnation)
        store_i64_release(&state.oldest_born_ms, oldest_born_ms(round))
        store_i64_release(&state.pending, end - round.halves.half_offset - round.halves.settled_count)
        store_i64_release(&state.half_offset, round.halves.half_offset)
        store_i64_release(&state.op_offset, round.halves.op_offset)
        store_i32_release(&state.known, 1)
        if round.halves.half_offset == round.told_half and round.halves.op_offset == round.told_op and (
                coordinator == round.told_coordinator):
            return
        head = <CheckHead*>ring_claim(&round.checks, sizeof(CheckHead))
        if head == NULL:
            return                     # told with the next report
        memset(head, 0, sizeof(CheckHead))
        head.half_offset = round.halves.half_offset
        head.op_offset = round.halves.op_offset
        ring_finish(&round.checks, CHECK_PROGRESS, sizeof(CheckHead))
        round.told_half = round.halves.half_offset
        round.told_op = round.halves.op_offset
        round.told_coordinator = coordinator       # one that dies may take what it heard with it
        self.tell_coordinator()
