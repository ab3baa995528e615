"""Counts of pulls by queue and group (pull_counts.pxd), and the coordinator's look at them."""
from libc.string cimport memcmp
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i32_release
from mqcore.layout cimport GroupEntry, PullCount, PullCountsHead
from mqcore.shm.reserve cimport shm_grow
from mqcore.shm.segment cimport Segment, Shm

cpdef enum:
    COLUMNS = 9                        # see PullCountReader.rows


cdef void pull_counts_open(PullCounts* counts, Shm* shm, int serving) noexcept nogil:
    cdef uint8_t* start = (shm.base + shm.head.pull_counts_start
                           + serving * shm.head.pull_counts_size)
    counts.shm = shm
    counts.capacity = shm.head.pull_count_capacity
    counts.head = <PullCountsHead*>start
    counts.index = <int32_t*>(start + sizeof(PullCountsHead))
    counts.entries = <PullCount*>(<uint8_t*>counts.index
                                  + 2 * <int64_t>counts.capacity * sizeof(int32_t))


cdef PullCount* pull_count_place(PullCounts* counts, int32_t queue, int32_t group) noexcept nogil:
    cdef int32_t mask = counts.capacity * 2 - 1
    cdef uint64_t hash = (<uint64_t>group << 32 | <uint64_t>queue) * <uint64_t>0x9E3779B97F4A7C15
    cdef int32_t at = <int32_t>((hash ^ hash >> 32) & <uint64_t>mask)
    cdef int32_t number
    cdef PullCount* entry
    while True:                        # the index is at most half full
        number = counts.index[at]
        if number == 0:
            break
        entry = &counts.entries[number - 1]
        if entry.queue == queue and entry.group == group:
            return entry
        at = (at + 1) & mask
    number = counts.head.count
    if (number >= counts.capacity
            or not shm_grow(counts.shm, counts.entries, sizeof(PullCount), number)):
        counts.head.missed += 1                                          # Z3
        return NULL
    entry = &counts.entries[number]
    entry.queue = queue
    entry.group = group
    store_i32_release(&counts.head.count, number + 1)                    # Z2
    counts.index[at] = number + 1
    return entry


cdef class PullCountReader:
    """The tables of all serving processes, for the coordinator and for tests."""
    cdef Segment segment
    cdef Shm* shm

    def __init__(self, Segment segment not None):
        self.segment = segment
        self.shm = &segment.shm

    def rows(self, int serving) -> bytes:
        """
        The table of a serving process: nine i64 for each entry, in the order of their making.

        queue (number in the queue table), group (number in the group table), pulls, messages,
        bytes, took_ms; of the last pull: behind_bytes, behind_ms, at_ms (wall clock).
        """
        cdef PullCounts counts
        cdef PullCount* entry
        cdef int32_t count, number, row
        cdef int64_t[::1] words
        self.check(serving)
        pull_counts_open(&counts, self.shm, serving)
        count = load_i32_acquire(&counts.head.count)
        if count == 0:
            return b""
        rows = bytearray(8 * COLUMNS * count)
        words = memoryview(rows).cast("q")
        for number in range(count):
            entry = &counts.entries[number]
            row = number * COLUMNS
            words[row] = entry.queue
            words[row + 1] = entry.group
            words[row + 2] = load_i64_acquire(&entry.pulls)
            words[row + 3] = load_i64_acquire(&entry.messages)
            words[row + 4] = load_i64_acquire(&entry.bytes)
            words[row + 5] = load_i64_acquire(&entry.took_ms)
            words[row + 6] = load_i64_acquire(&entry.behind_bytes)
            words[row + 7] = load_i64_acquire(&entry.behind_ms)
            words[row + 8] = load_i64_acquire(&entry.at_ms)
        return bytes(rows)

    def missed(self, int serving) -> int:
        """Pulls of a serving process that found no room in its table, since the broker's start."""
        cdef PullCounts counts
        self.check(serving)
        pull_counts_open(&counts, self.shm, serving)
        return load_i64_acquire(&counts.head.missed)

    def group(self, int32_t number) -> str:
        """The name of a group by its number in the group table."""
        cdef GroupEntry* entry
        if not 0 <= number < self.shm.head.group_count:
            raise ValueError(f"group {number}: expected 0 to {self.shm.head.group_count - 1}")
        entry = &self.shm.groups[number]
        return (<bytes>entry.name[:entry.name_length]).decode("utf-8", "replace")

    cdef check(self, int serving):
        if not 0 <= serving < self.shm.head.serving_count:
            raise ValueError(f"serving process {serving}: expected 0 to "
                             f"{self.shm.head.serving_count - 1}")


def changed_rows(bytes now not None, bytes before not None, int columns) -> list[int]:
    """
    Which rows of `columns` words differ from those of an earlier look, or were not there yet. What a
    coordinator compares every time is long, and seldom differs.
    """
    cdef int64_t size = columns * sizeof(int64_t), row
    cdef const char* new = now
    cdef const char* old = before
    cdef int64_t known = len(before) // size
    return [row for row in range(len(now) // size)
            if row >= known or memcmp(new + row * size, old + row * size, size)]


cdef class PullCountPen:
    """The serving process's side, turned by hand; for tests."""
    cdef Segment segment
    cdef PullCounts counts

    def __init__(self, Segment segment not None, int serving):
        self.segment = segment
        pull_counts_open(&self.counts, &segment.shm, serving)

    def add(self, int32_t queue, int32_t group, *, int64_t messages, int64_t size=0,
            int64_t took_ms=0, int64_t behind_bytes=0, int64_t behind_ms=0,
            int64_t at_ms=0) -> bool:
        """One pull that found messages; False: there is no room for its pair."""
        cdef PullCount* entry = pull_count_place(&self.counts, queue, group)
        if entry == NULL:
            return False
        pull_count_add(entry, messages, size, took_ms)
        pull_count_last(entry, behind_bytes, behind_ms, at_ms)
        return True
