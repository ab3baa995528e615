"""Histograms for Python: of any process to look at, of one's own to add to."""
from libc.stdint cimport int64_t

from mqcore.atomics cimport load_i64_acquire
from mqcore.layout cimport LATENCY_BUCKETS, LATENCY_COUNT, SLOT_COUNT, Latency
from mqcore.shm.segment cimport Segment


cdef class LatencySlots:
    """The histograms of all slots by their ids; by their names: latencies.py."""
    cdef Segment segment

    def __cinit__(self, Segment segment not None):
        self.segment = segment

    cdef Latency* place(self, int slot, int id) except NULL:
        if not 0 <= slot < SLOT_COUNT or not 0 <= id < LATENCY_COUNT:
            raise ValueError(f"latency {id} of slot {slot}: expected 0 to {LATENCY_COUNT - 1} of 0 to "
                             f"{SLOT_COUNT - 1}")
        return latency_of(self.segment.shm.latencies, slot, id)

    def read(self, int slot, int id) -> tuple[int, list[int]]:
        """The sum in us, and how many are in each bucket."""
        cdef Latency* found = self.place(slot, id)
        cdef int i
        return (load_i64_acquire(&found.sum_us),
                [load_i64_acquire(&found.counts[i]) for i in range(LATENCY_BUCKETS)])

    def add(self, int slot, int id, int64_t us, int64_t count=1) -> None:
        """`count` things took so long each; for the slot's own process."""
        latency_add(self.place(slot, id), us, count)
