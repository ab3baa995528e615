"""
What may go: the words by which the log's beginning moves, and by which whole queues are removed.

A queue's entry in shared memory stays for the whole run; removing the queue ends a *life* of it, and
the next message for it begins another one at offset 0:

  Q1  A master's coordinator appends a marker (mqcore/store/queue/lives.pxd), so that each copy of the
      log knows of the removal. That of a slave, whose log is not its own, counts removal_asked up, then
      LogState.removals_asked, and wakes the writer.
  Q2  The writer, when a marker is in the log or between two turns, sets next_offset to 0 and
      restart_position to where that is: records below it belong to the old life. Then it counts
      removal_begun up (removal_answered follows removal_asked), then
      LogState.removals_begun, and only then a record of the new life is published.
  Q3  The dispatcher deletes the queue's files before it dispatches any record that was published
      after Q2, sets min_offset and max_offset to 0, then removal_done to removal_begun. Records below
      restart_position get no entry, from Q2 on.
  Q4  Each step may be repeated: whoever dies, its successor finds the counters unequal and goes on.

Nothing else is lost: the records stay in the log until their segment is deleted. Where a life began is
read from the log at a start. Removals of a slave's own are kept in a file
(mqcore/broker/tables/queue_restarts.py).
"""
from dataclasses import dataclass

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.atomics cimport (
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
)
from mqcore.layout cimport SLOT_DISPATCHER, SLOT_WRITER, TOPIC_LENGTH_MAX, QueueEntry
from mqcore.shm.segment cimport Segment, Shm, doorbell_ring
from mqcore.shm.tables cimport name_hash, queue_find, queue_find_or_add, queue_hash


@dataclass(frozen=True)
class QueueState:
    """One queue of the table; offsets count entries, restart_position is in bytes of the log."""

    number: int
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    next_offset: int
    restart_position: int


cdef object state_of(Shm* shm, int32_t number):
    cdef QueueEntry* entry = &shm.queues[number]
    return QueueState(
        number=number, topic=(<bytes>entry.topic[:entry.topic_length]).decode("utf-8", "replace"),
        queue_id=entry.queue_id, min_offset=load_i64_acquire(&entry.min_offset),
        max_offset=load_i64_acquire(&entry.max_offset),
        next_offset=load_i64_acquire(&entry.next_offset),
        restart_position=load_i64_acquire(&entry.restart_position))


cdef class QueueLives:
    """The queues and their lives. Which process may call what is said at each method."""
    cdef Segment segment
    cdef Shm* shm

    def __init__(self, Segment segment not None):
        self.segment = segment
        self.shm = &segment.shm

    cdef int32_t count(self) noexcept:
        return load_i32_acquire(&self.shm.head.queue_count)

    def all(self) -> list[QueueState]:
        """Every queue that has a place in the table. Anybody."""
        return [state_of(self.shm, number) for number in range(self.count())]

    def counts(self) -> bytes:
        """
        What came into each queue, by number: three i64. Anybody.

        The next offset as consumers see it; bytes of records that became readable in this run;
        requests that stored them in this run.
        """
        cdef int32_t count = self.count(), number
        cdef bytearray counts = bytearray(24 * count)
        cdef int64_t[::1] words
        if count == 0:
            return b""
        words = memoryview(counts).cast("q")
        for number in range(count):
            words[3 * number] = load_i64_acquire(&self.shm.queues[number].max_offset)
            words[3 * number + 1] = load_i64_acquire(&self.shm.queues[number].bytes)
            words[3 * number + 2] = load_i64_acquire(&self.shm.queues[number].puts)
        return bytes(counts)

    @property
    def queue_count(self) -> int:
        """How many queues have a place in the table; their numbers are below it."""
        return self.count()

    def topics(self, int32_t first) -> list[str]:
        """The topics of the queues from this place on; a queue keeps its own. Anybody."""
        cdef int32_t number
        cdef QueueEntry* entry
        result = []
        for number in range(max(first, 0), self.count()):
            entry = &self.shm.queues[number]
            result.append((<bytes>entry.topic[:entry.topic_length]).decode("utf-8", "replace"))
        return result

    def state(self, int32_t number) -> QueueState:
        """One queue as it is now. Anybody."""
        if not 0 <= number < self.count():
            raise ValueError(f"queue {number}: expected 0 to {self.count() - 1}")
        return state_of(self.shm, number)

    def number(self, str topic, int32_t queue_id) -> int:
        """A queue's place in the table, -1: it has none. Anybody."""
        raw = topic.encode()
        cdef const uint8_t* name = raw
        return queue_find(self.shm, name, <int32_t>len(raw), queue_id,
                          queue_hash(name_hash(name, <int32_t>len(raw), 0), queue_id))

    def numbers(self, queues) -> list[int]:
        """The places of queues given as (topic, queue id); those without one are left out. Anybody."""
        cdef int32_t number, queue_id, length = 0
        cdef const uint8_t* name = NULL
        cdef uint64_t hash = 0
        cdef bytes raw
        last = None
        result = []
        for topic, queue_id in queues:
            if topic is not last and topic != last:
                raw = topic.encode()
                last, name, length = topic, raw, <int32_t>len(raw)
                hash = name_hash(name, length, 0)
            number = queue_find(self.shm, name, length, queue_id, queue_hash(hash, queue_id))
            if number >= 0:
                result.append(number)
        return result

    # -- the coordinator ---------------------------------------------------------------------------

    def ask(self, list numbers) -> None:
        """Have these queues (places in the table) removed (Q1)."""
        cdef QueueEntry* entry
        for number in numbers:
            if not 0 <= number < self.count():
                raise ValueError(f"queue {number}: expected 0 to {self.count() - 1}")
            entry = &self.shm.queues[<int32_t>number]
            store_i32_release(&entry.removal_asked, entry.removal_asked + 1)
        store_i32_release(&self.shm.log.removals_asked, self.shm.log.removals_asked + 1)
        doorbell_ring(&self.shm.slots[SLOT_WRITER])

    def let_go(self, list numbers, int count_max) -> None:
        """Take off the list's end the queues that are gone, up to the first that is not; so many."""
        cdef QueueEntry* entry
        while numbers and count_max > 0:
            entry = &self.shm.queues[<int32_t>numbers[len(numbers) - 1]]
            if load_i32_acquire(&entry.removal_answered) != entry.removal_asked or (
                    load_i32_acquire(&entry.removal_done)
                    != load_i32_acquire(&entry.removal_begun)):
                return
            numbers.pop()
            count_max -= 1

    # -- the writer --------------------------------------------------------------------------------

    def asked(self) -> list[QueueState]:
        """Queues whose removal is asked for and not begun."""
        return [state_of(self.shm, number) for number in range(self.count())
                if load_i32_acquire(&self.shm.queues[<int32_t>number].removal_asked)
                != self.shm.queues[<int32_t>number].removal_answered]

    def begin(self, list numbers, int64_t position) -> None:
        """End the life of these queues at `position`, the log's end (Q2)."""
        cdef QueueEntry* entry
        for number in numbers:
            entry = &self.shm.queues[<int32_t>number]
            store_i64_release(&entry.restart_position, position)
            store_i64_release(&entry.next_offset, 0)
            store_i32_release(&entry.removal_begun, entry.removal_begun + 1)
            store_i32_release(&entry.removal_answered, load_i32_acquire(&entry.removal_asked))
        store_i32_release(&self.shm.log.removals_begun, self.shm.log.removals_begun + 1)
        doorbell_ring(&self.shm.slots[SLOT_DISPATCHER])

    def set_restart(self, str topic, int32_t queue_id, int64_t position) -> None:
        """Before recovery: records of the queue below `position` are of an earlier life."""
        raw = topic.encode()
        cdef const uint8_t* name = raw
        cdef int32_t length = <int32_t>len(raw), number
        if not 1 <= length <= TOPIC_LENGTH_MAX:
            raise ValueError(f"topic {topic!r}: expected 1 to {TOPIC_LENGTH_MAX} bytes")
        number = queue_find_or_add(self.shm, name, length, queue_id,
                                   queue_hash(name_hash(name, length, 0), queue_id))
        if number < 0:
            raise ValueError("more queues than processes.queue_count_max")
        store_i64_release(&self.shm.queues[number].restart_position, position)

    # -- the dispatcher ----------------------------------------------------------------------------

    def begun(self) -> list[QueueState]:
        """Queues whose removal is begun and not done."""
        return [state_of(self.shm, number) for number in range(self.count())
                if load_i32_acquire(&self.shm.queues[<int32_t>number].removal_begun)
                != self.shm.queues[<int32_t>number].removal_done]

    def finish(self, int32_t number) -> None:
        """The queue's files are gone: its new life begins empty (Q3)."""
        cdef QueueEntry* entry = &self.shm.queues[number]
        store_i64_release(&entry.min_offset, 0)
        store_i64_release(&entry.max_offset, 0)
        store_i64_release(&entry.left_ns, 0)
        store_i32_release(&entry.removal_done, load_i32_acquire(&entry.removal_begun))

    def set_min(self, int32_t number, int64_t offset) -> None:
        """The queue's first entry that points into the log."""
        store_i64_release(&self.shm.queues[number].min_offset, offset)

    def trimmed(self) -> None:
        """Queue files were deleted: readers let go of theirs."""
        store_i32_release(&self.shm.log.trims, self.shm.log.trims + 1)


cdef class LogWords:
    """The words about the log's beginning and its disk."""
    cdef Segment segment
    cdef Shm* shm

    def __init__(self, Segment segment not None):
        self.segment = segment
        self.shm = &segment.shm

    @property
    def first(self) -> int:
        """Start of the first segment, bytes."""
        return load_i64_acquire(&self.shm.log.first)

    def raise_first(self, int64_t position) -> None:
        """The writer: segments below `position` are about to be deleted; nobody begins to read them."""
        if position < self.shm.log.first or position > load_i64_acquire(&self.shm.log.dispatched):
            raise ValueError(f"first position {position}: expected {self.shm.log.first} to "
                             f"{load_i64_acquire(&self.shm.log.dispatched)}")
        store_i64_release(&self.shm.log.first, position)

    @property
    def dispatched(self) -> int:
        """Queues and index hold every record below it, bytes."""
        return load_i64_acquire(&self.shm.log.dispatched)

    @property
    def disk_full_percent(self) -> int:
        """How full the disk is while writes are refused for that, else 0."""
        return load_i32_acquire(&self.shm.log.disk_full_percent)

    def set_disk_full(self, int32_t percent) -> None:
        """The writer: refuse writes because the disk is `percent` % full; 0: take them."""
        store_i32_release(&self.shm.log.disk_full_percent, percent)

    @property
    def deletions_asked(self) -> int:
        """How often somebody asked for expired files to be deleted now."""
        return load_i32_acquire(&self.shm.log.deletions_asked)

    def ask_deletion(self) -> None:
        """The coordinator: delete expired files now, whatever the hour."""
        store_i32_release(&self.shm.log.deletions_asked, self.shm.log.deletions_asked + 1)
