"""How far others have the log: the words of who replicates (ReplicaGate in layout.pxd)."""
from libc.stdint cimport int64_t

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i32_release, store_i64_release
from mqcore.layout cimport SLOT_DISPATCHER, SLOT_HA_MASTER, SLOT_WRITER
from mqcore.shm.segment cimport Segment, doorbell_ring


cdef class ReplicaPen:
    """
    The one who replicates says by it what acknowledgements may wait for (store/log/replica_gate.pxd).

    Every word wakes the writer, which may have results that waited for it.
    """
    cdef Segment segment

    def __init__(self, Segment segment not None):
        self.segment = segment

    @property
    def replicated(self) -> int:
        """Others have every byte of the log below this position."""
        return load_i64_acquire(&self.segment.shm.replica_gate.replicated)

    @property
    def present(self) -> bool:
        return load_i32_acquire(&self.segment.shm.replica_gate.present) != 0

    @property
    def greeting(self) -> int:
        """The mark of the words that those who come are greeted with; 0: nothing was said yet."""
        return load_i64_acquire(&self.segment.shm.replica_gate.greeting)

    def greets(self, int64_t mark) -> None:
        """Who comes from now on hears the words of this mark; no link of other words is open."""
        store_i64_release(&self.segment.shm.replica_gate.greeting, mark)

    def move(self, int64_t position) -> None:
        """Others are there, and have every byte below `position`; never back while they are."""
        store_i64_release(&self.segment.shm.replica_gate.replicated, position)
        store_i32_release(&self.segment.shm.replica_gate.present, 1)
        doorbell_ring(&self.segment.shm.slots[SLOT_WRITER])

    @property
    def told(self) -> int:
        """A master has said that others have every byte of the log below this position (G9)."""
        return load_i64_acquire(&self.segment.shm.replica_gate.told)

    def shown_end(self, int64_t published) -> int:
        """Up to where consumers may see a log that ends at `published` (G9, G10)."""
        return shown_end(&self.segment.shm, published)

    @property
    def taking_over(self) -> bool:
        """
        Whether consumers do not see all yet that an elected master began with (leadership FO10).
        """
        return is_taking_over(&self.segment.shm)

    def show_below(self, int64_t position) -> None:
        """
        The log below `position` is what a master began an epoch with, and may be seen. Only while
        no ha-slave takes frames, or by it.
        """
        if position > self.told:
            store_i64_release(&self.segment.shm.replica_gate.told, position)
        store_i32_release(&self.segment.shm.replica_gate.untold, 0)
        doorbell_ring(&self.segment.shm.slots[SLOT_DISPATCHER])
        doorbell_ring(&self.segment.shm.slots[SLOT_HA_MASTER])       # it tells slaves

    def leave(self) -> None:
        """Nobody is there any more."""
        store_i32_release(&self.segment.shm.replica_gate.present, 0)
        doorbell_ring(&self.segment.shm.slots[SLOT_WRITER])
