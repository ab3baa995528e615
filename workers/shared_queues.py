"""The coordinator's hand on the queue table: what queues there are, and their removal."""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mqcore.broker.ports import QueueGrowth
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.retention import LogWords, QueueLives, QueueState
from mqcore.shm.segment import Segment

REMOVAL_TIMEOUT_MS = 2_500           # what an admin client waits for, and a bit less
QUEUES_AT_ONCE = 256
REMOVED_AT_ONCE = 2_000
LOOKED_AT_ONCE = 50_000              # whether they are gone
COUNT_COLUMNS = 3                    # of QueueLives.counts


@dataclass
class Removal:
    """A removal that is under way: places in the table, who waits, until when."""

    numbers: list[int]
    done: Callable[[bool], None]
    deadline_ms: int


def _end(queue: QueueState) -> int:
    return max(queue.next_offset, queue.max_offset)


class SharedQueues:
    """The rules' Queues over shared memory. `tick` it every 100 ms or so."""

    def __init__(self, segment: Segment, now_ms: Callable[[], int]) -> None:
        self._lives = QueueLives(segment)
        self._words = LogWords(segment)
        self._gate = ReplicaPen(segment)
        self._now_ms = now_ms
        self._removals: list[Removal] = []
        self._counts: np.ndarray | None = None   # at the last look at their growth

    def all(self) -> list[tuple[str, int, int]]:
        return [queue for queues in self.some() for queue in queues]

    def some(self) -> Iterator[list[tuple[str, int, int]]]:
        for first in range(0, self._lives.queue_count, QUEUES_AT_ONCE):
            end = min(first + QUEUES_AT_ONCE, self._lives.queue_count)
            states = (self._lives.state(number) for number in range(first, end))
            yield [(queue.topic, queue.queue_id, queue.max_offset) for queue in states
                   if queue.next_offset > 0 or queue.max_offset > 0]

    def ends(self) -> list[tuple[str, int, int]]:
        return [(queue.topic, queue.queue_id, _end(queue)) for queue in self._lives.all()
                if _end(queue) > 0]

    def end(self, topic: str, queue_id: int) -> int:
        number = self._lives.number(topic, queue_id)
        return _end(self._lives.state(number)) if number >= 0 else 0

    @property
    def settling(self) -> bool:
        return self._gate.settling

    @property
    def alone(self) -> bool:
        return not self._gate.present

    def growth(self) -> Iterable[QueueGrowth]:
        counts = np.frombuffer(self._lives.counts(), dtype=np.int64).reshape(-1, COUNT_COLUMNS)
        before, self._counts = self._counts, counts
        if before is None:
            return ()
        fresh = np.zeros((len(counts) - len(before), COUNT_COLUMNS), dtype=np.int64)
        return self._grown(counts - np.concatenate((before, fresh)))

    def _grown(self, added: np.ndarray) -> Iterator[QueueGrowth]:
        for number in np.flatnonzero(added.any(axis=1)):
            state = self._lives.state(int(number))
            messages, size, calls = (int(word) for word in added[number])
            if messages < 0:                     # a new life: it began at 0
                messages = state.max_offset
            yield QueueGrowth(state.topic, state.queue_id, messages, size, calls)

    def remove(
        self, queues: Sequence[tuple[str, int]], done: Callable[[bool], None],
        unless: Callable[[str], bool] | None = None,
    ) -> Generator[None, None, None]:
        numbers: list[int] = []
        for first in range(0, len(queues), REMOVED_AT_ONCE):
            some = queues[first:first + REMOVED_AT_ONCE]
            if unless is not None:
                some = [queue for queue in some if not unless(queue[0])]
            found = self._lives.numbers(some)
            if unless is not None:
                self._lives.ask(found)
            numbers += found
            yield
        if unless is None:
            self._lives.ask(numbers)
        self._removals.append(Removal(numbers, done, self._now_ms() + REMOVAL_TIMEOUT_MS))

    def delete_expired_files(self) -> None:
        self._words.ask_deletion()

    def tick(self) -> None:
        """Tell those whose queues are gone, and those who have waited long enough."""
        now_ms = self._now_ms()
        for removal in list(self._removals):
            self._lives.let_go(removal.numbers, LOOKED_AT_ONCE)
            if not removal.numbers or now_ms >= removal.deadline_ms:
                self._removals.remove(removal)
                removal.done(not removal.numbers)
