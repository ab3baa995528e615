"""What the transaction-check process asks the coordinator to do, and what it says of itself."""
from typing import NamedTuple

from libc.stdint cimport int32_t, uint8_t

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.layout cimport (
    CHECK_PROGRESS,
    CHECK_REQUEST,
    SLOT_TRANSACTION_CHECK,
    CheckHead,
    TransactionState,
)
from mqcore.shm.ring cimport Ring, ring_is_empty, ring_next, ring_release
from mqcore.shm.segment cimport Segment, doorbell_ring, shm_consumer


class CheckRequest(NamedTuple):
    """A frame (with its length word) for one producer of a group."""

    group: str
    frame: bytes


class Progress(NamedTuple):
    """How far half and op queue are settled: offsets to be committed."""

    half_offset: int
    op_offset: int


class NeededTopic(NamedTuple):
    """A topic of the broker's own that has to exist, with one queue."""

    name: str


cdef class CheckRing:
    """One reader, in one thread."""
    cdef Segment segment
    cdef Ring ring

    def __init__(self, Segment segment):
        self.segment = segment
        shm_consumer(&segment.shm, &segment.shm.head.checks, &self.ring)

    def receive(self, int limit) -> list:
        """Up to `limit` items: CheckRequest, Progress, NeededTopic. Each is given once."""
        cdef uint8_t* record
        cdef int32_t kind, length
        cdef CheckHead* head
        cdef const char* name
        items = []
        while len(items) < limit:
            length = ring_next(&self.ring, &record, &kind)
            if length < 0:
                break
            head = <CheckHead*>record
            name = <const char*>record + sizeof(CheckHead)
            if kind == CHECK_PROGRESS:
                items.append(Progress(head.half_offset, head.op_offset))
                continue
            text = name[:head.name_length].decode(errors="replace")
            if kind == CHECK_REQUEST:
                items.append(CheckRequest(text, (name + head.name_length)[
                    :length - <int32_t>sizeof(CheckHead) - head.name_length]))
            else:
                items.append(NeededTopic(text))
        if ring_release(&self.ring):
            doorbell_ring(&self.segment.shm.slots[SLOT_TRANSACTION_CHECK])
        return items

    def has_work(self) -> bool:
        return not ring_is_empty(&self.ring)


def transaction_figures(Segment segment not None) -> dict[str, int] | None:
    """
    What the transaction-check process says of itself: pending (half messages that nobody has ended),
    oldest_born_ms (0: none is pending), and since the broker's start checks (asked), given_up and
    rounds. None: it has not said anything yet.
    """
    cdef TransactionState* state = segment.shm.transactions
    if not load_i32_acquire(&state.known):
        return None
    return {"pending": load_i64_acquire(&state.pending),
            "oldest_born_ms": load_i64_acquire(&state.oldest_born_ms),
            "checks": load_i64_acquire(&state.checks),
            "given_up": load_i64_acquire(&state.expired),
            "rounds": load_i64_acquire(&state.rounds)}
