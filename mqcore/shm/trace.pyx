"""The reader's side of a trace (trace.pxd)."""
import os

from libc.stdint cimport int64_t
from libc.string cimport memcpy

from mqcore.atomics cimport load_i64_acquire, store_i64_release
from mqcore.clock cimport steady_us
from mqcore.layout cimport TRACE_ENTRIES, Trace, TraceEntry, TraceRing
from mqcore.shm.ranges cimport trace_rings_size
from mqcore.shm.segment cimport Segment

cdef enum:
    KEPT = TRACE_ENTRIES - TRACE_TURN_MAX


cdef class TraceReader:
    """
    Traces a run, of which it is the only tracer.

    Raises OSError when shared memory has no room for the entries, BlockingIOError while another
    process traces.
    """
    cdef Segment segment
    cdef readonly list names           # of the processes that take part
    cdef list seen
    cdef readonly int64_t lost         # entries that were overwritten before they were read

    def __cinit__(self, Segment segment not None):
        cdef int i
        self.segment = segment
        if load_i64_acquire(&segment.shm.trace.until_us) > steady_us():
            raise BlockingIOError("another trace of this broker runs")
        self.names = ["writer", "dispatcher"] + [
            f"pull-serving-{i}" for i in range(segment.shm.head.serving_count)]
        os.posix_fallocate(segment.descriptor, segment.shm.head.trace_start, <int64_t>sizeof(Trace)
                           + trace_rings_size(segment.shm.head.serving_count))
        self.seen = [load_i64_acquire(&self.ring(i).count) for i in range(len(self.names))]

    cdef TraceRing* ring(self, int number) noexcept:
        return self.segment.shm.trace_rings + number

    def renew(self, int64_t over_us, int64_t for_us) -> None:
        """Requests of over_us and longer are told from now on, for for_us; 0: no more."""
        self.segment.shm.trace.over_us = over_us
        store_i64_release(&self.segment.shm.trace.until_us, steady_us() + for_us if for_us else 0)

    def read(self, int number) -> list[tuple[int, int, int, int, int, int, int, int, int]]:
        """
        Entries of a process since the last call: kind (TraceKind), detail, start, end, queue, and
        four steady times in us.
        """
        cdef TraceRing* ring = self.ring(number)
        cdef int64_t end = load_i64_acquire(&ring.count)
        cdef int64_t first = max(<int64_t>self.seen[number], end - KEPT), at, overwritten
        cdef TraceEntry e
        cdef list found = []
        for at in range(first, end):
            memcpy(&e, &ring.entries[at & (TRACE_ENTRIES - 1)], sizeof(e))
            found.append((e.kind, e.detail, e.start, e.end, e.queue, e.at_us[0], e.at_us[1],
                          e.at_us[2], e.at_us[3]))
        overwritten = max(load_i64_acquire(&ring.count) - KEPT - first, 0)
        del found[:overwritten]
        self.lost += first - <int64_t>self.seen[number] + min(overwritten, end - first)
        self.seen[number] = end
        return found

    def dropped(self) -> int:
        """Entries that turns had too many of, since the broker's start."""
        return sum(load_i64_acquire(&self.ring(i).dropped) for i in range(len(self.names)))
