"""Creates, attaches and removes the shared memory segment; rings doorbells."""
import mmap
import os
import zlib

from mqcore import participants
from mqcore.shm import memory

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from mqcore.atomics cimport (
    exchange_i32,
    full_fence,
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
)
from mqcore.clock cimport clocks_ms, steady_ms
from mqcore.layout cimport (
    CACHE_LINE_PAIR,
    FIGURE_COUNT,
    FILTER_REQUEST_COUNT,
    FOLLOWER_COUNT,
    LATENCY_COUNT,
    LIMIT_PLACES,
    SERVING_COUNT_MAX,
    SHM_LAYOUT_VERSION,
    SHM_MAGIC,
    SLOT_COUNT,
    SLOT_DISPATCHER,
    SLOT_SUPERVISOR,
    STOP_HURRIED,
    STOP_IN_ORDER,
    STOP_NOT_ASKED,
    WORKER_STARTING,
    FilterEntry,
    GroupEntry,
    Latency,
    Leadership,
    LimitPlace,
    LiveSettings,
    LogState,
    MasterPlace,
    PullCount,
    PullCountsHead,
    QueueEntry,
    ReplicaGate,
    RingCursors,
    RingPlace,
    ScheduleState,
    ShmHead,
    StoreClock,
    SubscriptionEntry,
    TopicEntry,
    Trace,
    TraceRing,
    TransactionState,
    WorkerSlot,
)
from mqcore.shm.ranges cimport growing, not_growing, trace_rings_size
from mqcore.shm.ring cimport Ring, ring_open_consumer, ring_open_producer
from mqcore.shm.store_clock cimport store_clock_at, store_clock_begin, store_clock_look

cdef extern from "<unistd.h>" nogil:
    ssize_t sys_write "write"(int fd, const void* data, size_t size)
    int sys_close "close"(int fd)
    int getpid()


cdef enum:                             # WorkerSlot.asleep
    AWAKE = 0
    SLEEPS = 1
    RESTS = 2

cdef enum:
    FILTER_ARENA_BYTES = 64 << 20      # address space; programs are some hundred bytes, some 128 KiB


cdef uint32_t PARTICIPANTS = zlib.crc32(participants.declarations().encode())


class LayoutError(RuntimeError):
    """The segment was made by another version of mqcore."""


cdef void resolve(Shm* shm, uint8_t* base) noexcept nogil:
    cdef ShmHead* head = <ShmHead*>base
    shm.base = base
    shm.head = head
    shm.slots = <WorkerSlot*>(base + head.slots_start)
    shm.latencies = <Latency*>(base + head.latencies_start)
    shm.log = <LogState*>(base + head.log_state_start)
    shm.clock = <StoreClock*>(base + head.store_clock_start)
    shm.topics = <TopicEntry*>(base + head.topics_start)
    shm.topic_index = <int32_t*>(base + head.topic_index_start)
    shm.groups = <GroupEntry*>(base + head.groups_start)
    shm.group_index = <int32_t*>(base + head.group_index_start)
    shm.subscriptions = <SubscriptionEntry*>(base + head.subscriptions_start)
    shm.subscription_index = <int32_t*>(base + head.subscription_index_start)
    shm.queues = <QueueEntry*>(base + head.queues_start)
    shm.queue_index = <int32_t*>(base + head.queue_index_start)
    shm.interest = base + head.interest_start
    shm.replica_gate = <ReplicaGate*>(base + head.replica_gate_start)
    shm.schedule = <ScheduleState*>(base + head.schedule_start)
    shm.transactions = <TransactionState*>(base + head.transactions_start)
    shm.live_settings = <LiveSettings*>(base + head.live_settings_start)
    shm.said_settings = <LiveSettings*>(base + head.said_settings_start)
    shm.master_place = <MasterPlace*>(base + head.master_place_start)
    shm.leadership = <Leadership*>(base + head.leadership_start)
    shm.limits = <LimitPlace*>(base + head.limits_start)
    shm.filters = <FilterEntry*>(base + head.filters_start)
    shm.filter_arena = base + head.filter_arena_start
    shm.trace = <Trace*>(base + head.trace_start)
    shm.trace_rings = <TraceRing*>(shm.trace + 1)
    shm.memory = -1
    shm.limits_granted = 0


cdef void shm_producer(Shm* shm, RingPlace* place, Ring* ring) noexcept nogil:
    ring_open_producer(ring, <RingCursors*>(shm.base + place.start), place.capacity)


cdef void shm_consumer(Shm* shm, RingPlace* place, Ring* ring) noexcept nogil:
    ring_open_consumer(ring, <RingCursors*>(shm.base + place.start), place.capacity)


cdef void doorbell_arm(WorkerSlot* slot) noexcept nogil:
    store_i32_release(&slot.asleep, SLEEPS)
    full_fence()                       # then the caller looks at its rings once more


cdef void doorbell_rest(WorkerSlot* slot) noexcept nogil:
    store_i32_release(&slot.asleep, RESTS)
    full_fence()                       # then the caller looks at `hurry`


cdef void doorbell_disarm(WorkerSlot* slot) noexcept nogil:
    store_i32_release(&slot.asleep, AWAKE)


cdef inline void wake(WorkerSlot* slot) noexcept nogil:
    cdef int64_t one = 1
    if exchange_i32(&slot.asleep, AWAKE) != AWAKE:
        # a full counter (EAGAIN) means that it is rung already: nothing is lost
        sys_write(slot.bell, &one, sizeof(one))


cdef void doorbell_ring(WorkerSlot* slot) noexcept nogil:
    full_fence()                       # what we published comes before our look at `asleep`
    if load_i32_acquire(&slot.asleep) != AWAKE:
        wake(slot)


cdef void doorbell_grew(WorkerSlot* slot) noexcept nogil:
    full_fence()
    if load_i32_acquire(&slot.asleep) == SLEEPS:
        wake(slot)


cdef void doorbell_hurry(WorkerSlot* slot) noexcept nogil:
    full_fence()                       # what we published comes before our look at an earlier hurry
    if not load_i32_acquire(&slot.hurry):
        store_i32_release(&slot.hurry, 1)
    doorbell_ring(slot)


cdef bint doorbell_hurried(WorkerSlot* slot) noexcept nogil:
    return load_i32_acquire(&slot.hurry) != 0


cdef void doorbell_take_hurry(WorkerSlot* slot) noexcept nogil:
    if load_i32_acquire(&slot.hurry):
        exchange_i32(&slot.hurry, 0)   # then the caller looks at what there is to do


cdef void followers_ring(Shm* shm) noexcept nogil:
    cdef int i
    for i in range(FOLLOWER_COUNT - 1, -1, -1):      # the dispatcher last: nobody waits for it
        doorbell_grew(&shm.slots[shm.head.follower_slot[i]])


cdef void dispatch_hurry(Shm* shm) noexcept nogil:
    if load_i64_acquire(&shm.log.published) > load_i64_acquire(&shm.log.dispatched):
        doorbell_hurry(&shm.slots[SLOT_DISPATCHER])


cdef int64_t place(int64_t* end, int64_t size):
    """The next place of `size` bytes in the segment, on a pair of cache lines of its own."""
    cdef int64_t start = (end[0] + CACHE_LINE_PAIR - 1) // CACHE_LINE_PAIR * CACHE_LINE_PAIR
    end[0] = start + size
    return start


cdef int32_t power_of_two(int64_t at_least):
    cdef int64_t value = 64
    while value < at_least:
        value *= 2
    return <int32_t>value


cdef void place_ring(RingPlace* ring, int64_t* end, int64_t capacity):
    ring.capacity = capacity
    ring.start = place(end, sizeof(RingCursors) + capacity)


cdef class Segment:
    """
    One run's shared memory. Make it with `create` (supervisor) or `attach` (tools, by name).

    Sizes are in entries (topics, groups, subscriptions, queues) and bytes (everything with _bytes).
    """

    @staticmethod
    def create(str name, *, int64_t run_id, int serving_count, int64_t segment_size,
               int64_t message_bytes_max, int64_t topics=16384, int64_t groups=16384,
               int64_t subscriptions=32768, int64_t queues=262144,
               int64_t access_bytes=0, bint slave=False, bint pops=False,
               str kind="auto") -> Segment:
        """
        Create the segment `name` (a leading slash, no other) and lay it out; kind: memory.KINDS;
        slave: with rings of processes that follow another broker's log; pops: with those of POP.

        Raises posix_ipc.ExistentialError when the name is taken, memory.SharedMemoryError and
        OSError when memory is refused.
        """
        cdef Segment segment = Segment.__new__(Segment)
        cdef ShmHead head
        cdef int64_t wall, steady
        memset(&head, 0, sizeof(head))
        plan(&head, serving_count, message_bytes_max, topics, groups, subscriptions, queues, slave)
        place_access(&head, access_bytes)
        place_pops(&head, pops)
        head.run_id = run_id
        head.limit_seed = int.from_bytes(os.urandom(8), "little")
        head.participants = PARTICIPANTS
        head.segment_size = segment_size
        head.message_size_max = <int32_t>message_bytes_max
        segment.descriptor, segment.named = memory.make(
            name, head.total_size, kind, not_growing(&head))
        segment.name = name
        segment.owner = True
        try:
            segment.map(segment.descriptor, head.total_size, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError:
            segment.unlink()
            raise
        (<ShmHead*>segment.shm.base)[0] = head
        resolve(&segment.shm, segment.shm.base)
        segment.shm.memory = segment.descriptor if segment.named else -1
        clocks_ms(&wall, &steady)
        store_clock_begin(segment.shm.clock, wall, steady, 0)
        return segment

    @staticmethod
    def attach(str name) -> Segment:
        """
        Map an existing segment to look at it. Raises posix_ipc.ExistentialError when there is none,
        LayoutError when it was made by another version.
        """
        cdef Segment segment = Segment.__new__(Segment)
        segment.descriptor = memory.open_existing(name)
        cdef int64_t size = os.fstat(segment.descriptor).st_size
        if size < <int64_t>sizeof(ShmHead):
            raise LayoutError(f"{name}: {size} bytes are no segment")
        segment.map(segment.descriptor, size, mmap.PROT_READ | mmap.PROT_WRITE)
        cdef ShmHead* head = <ShmHead*>segment.shm.base
        if (head.magic != SHM_MAGIC or head.layout_version != SHM_LAYOUT_VERSION
                or head.head_size != <int32_t>sizeof(ShmHead)
                or head.queue_entry_size != <int32_t>sizeof(QueueEntry)
                or head.participants != PARTICIPANTS
                or head.total_size != <int64_t>len(segment.mapping)):
            raise LayoutError(f"{name}: made by another version of mqcore (layout "
                              f"{head.layout_version}, expected {SHM_LAYOUT_VERSION})")
        segment.name = name
        resolve(&segment.shm, segment.shm.base)
        return segment

    def map(self, int fd, int64_t size, int protection) -> None:
        self.mapping = mmap.mmap(fd, size, mmap.MAP_SHARED, protection)
        cdef uint8_t[::1] view = self.mapping
        self.shm.base = &view[0]

    def unlink(self) -> None:
        """Remove the name, if it has one; who has it mapped keeps it until its end."""
        if self.named:
            memory.unlink(self.name)

    # -- worker slots, for the supervisor and for tools --------------------------------------------

    def make_bells(self) -> None:
        """Give every slot an eventfd; forked processes inherit them."""
        for slot in range(SLOT_COUNT):
            self.bells[slot] = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self.shm.slots[slot].bell = self.bells[slot]
        self.bells_of = getpid()

    def __cinit__(self):
        self.descriptor = -1

    def __dealloc__(self):
        if self.descriptor >= 0:
            sys_close(self.descriptor)
        if self.bells_of == getpid():
            for slot in range(SLOT_COUNT):
                sys_close(self.bells[slot])

    def bell(self, int slot) -> int:
        """The eventfd of a slot, for an event loop."""
        return self.shm.slots[slot].bell

    def ring_bell(self, int slot) -> None:
        """Wake the process of `slot` if it sleeps."""
        doorbell_ring(&self.shm.slots[slot])

    def arm(self, int slot) -> None:
        """Declare that the process of `slot` is about to sleep."""
        doorbell_arm(&self.shm.slots[slot])

    def disarm(self, int slot) -> None:
        """Declare that the process of `slot` is awake."""
        doorbell_disarm(&self.shm.slots[slot])

    def hurried(self, int slot) -> bool:
        """Whether a process waits for work that the one of `slot` has not begun."""
        return doorbell_hurried(&self.shm.slots[slot])

    def started(self, int slot, int pid, int64_t now_ms) -> None:
        """The supervisor has started (or forked, in the child) the process of `slot`."""
        self.shm.slots[slot].pid = pid
        self.shm.slots[slot].started_ms = now_ms

    def begin_incarnation(self, int slot) -> int:
        """Before a start: counts it, clears the stop word, and marks the slot as starting."""
        self.shm.slots[slot].incarnation += 1
        self.shm.slots[slot].stop_requested = STOP_NOT_ASKED
        store_i32_release(&self.shm.slots[slot].state, WORKER_STARTING)
        return self.shm.slots[slot].incarnation

    def set_state(self, int slot, int state) -> None:
        """state: a WorkerState. Wakes the supervisor."""
        store_i32_release(&self.shm.slots[slot].state, state)
        doorbell_ring(&self.shm.slots[SLOT_SUPERVISOR])

    def state(self, int slot) -> int:
        return load_i32_acquire(&self.shm.slots[slot].state)

    def incarnation(self, int slot) -> int:
        return self.shm.slots[slot].incarnation

    def request_stop(self, int slot) -> None:
        """Ask the process of `slot` to stop, and wake it."""
        cdef int64_t one = 1
        store_i32_release(&self.shm.slots[slot].stop_requested, STOP_IN_ORDER)
        sys_write(self.shm.slots[slot].bell, &one, sizeof(one))

    def hurry_stop(self, int slot) -> None:
        """Ask the process of `slot` to stop now, whatever it would lose, and wake it."""
        cdef int64_t one = 1
        store_i32_release(&self.shm.slots[slot].stop_requested, STOP_HURRIED)
        sys_write(self.shm.slots[slot].bell, &one, sizeof(one))

    def stop_hurried(self, int slot) -> bool:
        return load_i32_acquire(&self.shm.slots[slot].stop_requested) == STOP_HURRIED

    def stop_requested(self, int slot) -> bool:
        return load_i32_acquire(&self.shm.slots[slot].stop_requested) != STOP_NOT_ASKED

    def beat(self, int slot, int64_t now_ms) -> None:
        self.shm.slots[slot].beat_ms = now_ms

    def slot(self, int slot) -> dict[str, int]:
        """What the slot says now: state (WorkerState), pid, incarnation, beat_ms, started_ms."""
        cdef WorkerSlot* s = &self.shm.slots[slot]
        return {
            "state": load_i32_acquire(&s.state), "pid": s.pid, "incarnation": s.incarnation,
            "beat_ms": s.beat_ms, "started_ms": s.started_ms,
        }

    def busy_ms(self, int slot, int64_t now_ms) -> int:
        """How long the process of `slot` has been in its turn; 0: it sleeps."""
        if load_i32_acquire(&self.shm.slots[slot].asleep) != AWAKE:
            return 0
        return max(now_ms - load_i64_acquire(&self.shm.slots[slot].beat_ms), 0)

    def figure(self, int slot, int id) -> int:
        """One of the slot's figures; by name: figure_slots.py."""
        return load_i64_acquire(&self.shm.slots[slot].figures[checked_figure(id)])

    def put_figure(self, int slot, int id, int64_t value) -> None:
        """The same, for the slot's own process."""
        store_i64_release(&self.shm.slots[slot].figures[checked_figure(id)], value)

    # -- positions and queues, for Python parts ----------------------------------------------------

    def log_state(self) -> dict[str, int]:
        """published, flushed, first, begun, dispatched: positions in bytes; the others: codes."""
        return {
            "published": load_i64_acquire(&self.shm.log.published),
            "flushed": load_i64_acquire(&self.shm.log.flushed),
            "first": load_i64_acquire(&self.shm.log.first),
            "begun": load_i64_acquire(&self.shm.log.begun),
            "dispatched": load_i64_acquire(&self.shm.log.dispatched),
            "flushed_store_time_ms": load_i64_acquire(&self.shm.log.flushed_store_time_ms),
            "refusal": self.shm.log.refusal, "queue_error": self.shm.log.queue_error,
            "unreadable": load_i32_acquire(&self.shm.log.unreadable),
            "elsewhere": load_i32_acquire(&self.shm.log.elsewhere),
        }

    def store_time_ms(self) -> int:
        """The store clock now, epoch ms: what the writer would stamp on a record."""
        cdef StoreClock view
        view.count = 0
        store_clock_look(self.shm.clock, &view)
        return store_clock_at(&view, steady_ms())

    def set_dispatched(self, int64_t position, int64_t store_time_ms) -> None:
        """Recovery's word, before the dispatcher is there: where it begins."""
        store_i64_release(&self.shm.log.last_store_time_ms, store_time_ms)
        store_i64_release(&self.shm.log.dispatched, position)

    def appends_taken(self, int producer) -> bool:
        """Whether the writer has answered all that a producer has put into its ring of appends."""
        cdef RingPlace* ring = &self.shm.head.appends[producer]
        cdef RingCursors* cursors = <RingCursors*>(self.shm.base + ring.start)
        return load_i64_acquire(&cursors.head) == load_i64_acquire(&cursors.tail)

    def set_begun(self, int64_t position) -> None:
        """Recovery's word: what lies below was not written by this run, and is checked when read."""
        store_i64_release(&self.shm.log.begun, position)

    @property
    def queues_changed(self) -> int:
        """How many queues somebody else changed before this run: it is to begin anew."""
        return load_i32_acquire(&self.shm.log.queues_changed)

    def set_unreadable(self, bint unreadable) -> None:
        """The writer's word: whether writes are refused until the dispatcher has caught up."""
        store_i32_release(&self.shm.log.unreadable, unreadable)

    def set_elsewhere(self, bint elsewhere) -> None:
        """The supervisor's word: whether the path of the store leads to another folder."""
        store_i32_release(&self.shm.log.elsewhere, elsewhere)

    def publish_for_test(self, int64_t position) -> None:
        """Show readers a log that ends at `position`, where a test has no writer."""
        store_i64_release(&self.shm.log.published, position)

    @property
    def run_id(self) -> int:
        return self.shm.head.run_id

    @property
    def serving_count(self) -> int:
        return self.shm.head.serving_count

    @property
    def size(self) -> int:
        """Bytes of address space."""
        return self.shm.head.total_size

    def growing(self) -> list[tuple[int, int]]:
        """(start, end) of the tables, whose memory is taken as they fill; for tests."""
        return growing(self.shm.head)


cdef plan(ShmHead* head, int serving_count, int64_t message_bytes_max, int64_t topics,
          int64_t groups, int64_t subscriptions, int64_t queues, bint slave):
    """Fill `head` with the place of everything."""
    cdef int64_t end = sizeof(ShmHead)
    cdef int i
    cdef int64_t append_bytes = 1 << 20
    if not 1 <= serving_count <= SERVING_COUNT_MAX:
        raise ValueError(f"serving_count: expected 1 to {SERVING_COUNT_MAX}, got {serving_count}")
    while append_bytes < 2 * (message_bytes_max + 131072):     # ring R5, with head and properties
        append_bytes *= 2
    head.magic = SHM_MAGIC
    head.layout_version = SHM_LAYOUT_VERSION
    head.head_size = sizeof(ShmHead)
    head.slot_size = sizeof(WorkerSlot)
    head.queue_entry_size = sizeof(QueueEntry)
    head.serving_count = serving_count
    head.topic_capacity = power_of_two(topics)
    head.group_capacity = power_of_two(groups)
    head.subscription_capacity = power_of_two(subscriptions)
    head.queue_capacity = power_of_two(queues)
    head.slots_start = place(&end, SLOT_COUNT * sizeof(WorkerSlot))
    head.latencies_start = place(&end, SLOT_COUNT * LATENCY_COUNT * sizeof(Latency))
    head.log_state_start = place(&end, sizeof(LogState))
    head.store_clock_start = place(&end, sizeof(StoreClock))
    head.topics_start = place(&end, head.topic_capacity * <int64_t>sizeof(TopicEntry))
    head.topic_index_start = place(&end, head.topic_capacity * 8)
    head.groups_start = place(&end, head.group_capacity * <int64_t>sizeof(GroupEntry))
    head.group_index_start = place(&end, head.group_capacity * 8)
    head.subscriptions_start = place(
        &end, head.subscription_capacity * <int64_t>sizeof(SubscriptionEntry))
    head.subscription_index_start = place(&end, head.subscription_capacity * 8)
    head.queues_start = place(&end, head.queue_capacity * <int64_t>sizeof(QueueEntry))
    head.queue_index_start = place(&end, head.queue_capacity * 8)
    head.interest_start = place(
        &end, listeners_of(serving_count) * <int64_t>head.queue_capacity)
    head.replica_gate_start = place(&end, sizeof(ReplicaGate))
    head.schedule_start = place(&end, sizeof(ScheduleState))
    head.transactions_start = place(&end, sizeof(TransactionState))
    head.live_settings_start = place(&end, sizeof(LiveSettings))
    head.said_settings_start = place(&end, sizeof(LiveSettings))
    head.master_place_start = place(&end, sizeof(MasterPlace))
    head.leadership_start = place(&end, sizeof(Leadership))
    head.filters_start = place(&end, (2 * <int64_t>head.subscription_capacity
                                      + FILTER_REQUEST_COUNT) * <int64_t>sizeof(FilterEntry))
    head.filter_arena_size = FILTER_ARENA_BYTES
    head.filter_arena_start = place(&end, head.filter_arena_size)
    head.pull_count_capacity = head.subscription_capacity
    head.pull_counts_size = (sizeof(PullCountsHead) + head.pull_count_capacity
                             * <int64_t>(2 * sizeof(int32_t) + sizeof(PullCount)))
    head.pull_counts_start = place(&end, serving_count * head.pull_counts_size)
    head.limits_start = place(&end, LIMIT_PLACES * <int64_t>sizeof(LimitPlace))
    head.trace_start = place(&end, sizeof(Trace) + trace_rings_size(serving_count))
    place_rows(head, &end, append_bytes, slave)
    for i in range(serving_count):
        place_ring(&head.requests[i], &end, 1 << 20)
        place_ring(&head.answers[i], &end, 1 << 20)
    place_ring(&head.checks, &end, append_bytes)
    head.total_size = (end + 4095) // 4096 * 4096


cdef place_access(ShmHead* head, int64_t size):
    """Behind all else: a run without access control has none of it."""
    cdef int64_t end = head.total_size
    head.access.start = place(&end, size)
    head.access.capacity = size
    head.total_size = (end + 4095) // 4096 * 4096


cdef place_pops(ShmHead* head, bint pops):
    """They stand last, so that a run without POP has none. The last serving process is the owner."""
    cdef int64_t end = head.total_size
    cdef int i
    head.pop_owner = head.serving_count - 1 if pops else -1
    for i in range(head.pop_owner):
        place_ring(&head.pops[i], &end, 1 << 20)
        place_ring(&head.pop_answers[i], &end, 1 << 20)
    head.total_size = (end + 4095) // 4096 * 4096


cdef place_rows(ShmHead* head, int64_t* end, int64_t append_bytes, bint slave):
    """What every process of the table of participants has a place for."""
    cdef int32_t number, rows = 0, followers = 0
    for row, index in participants.processes(head.serving_count):
        if row.results and (slave or row is not participants.HA_SLAVE):
            number = row.producer + index
            head.producer_slot[number] = row.slot + index
            place_ring(&head.appends[number], end, append_bytes)
            place_ring(&head.append_results[number], end, row.results)
        if row.hears:
            number = row.listener + index
            head.listener_slot[number] = row.slot + index
            head.listener_row[number] = rows
            rows += 1
            place_ring(&head.arrivals[number], end, row.hears)
        if row.follows:
            head.follower_slot[followers] = row.slot + index
            followers += 1


cdef int32_t listeners_of(int serving_count):
    return len([row for row, _ in participants.processes(serving_count) if row.hears])


cdef int checked_figure(int id) except -1:
    if not 0 <= id < FIGURE_COUNT:
        raise ValueError(f"figure {id}: expected 0 to {FIGURE_COUNT - 1}")
    return id


def stale_segments(str prefix) -> list[str]:
    """Names (with slash) of the segments that start with `prefix` (without slash)."""
    return memory.names(prefix)
