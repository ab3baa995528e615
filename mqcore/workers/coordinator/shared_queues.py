"""The coordinator's hand on the queue table: what queues there are, and their removal."""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mqcore.broker.ports import AppendStatus, Put, QueueGrowth
from mqcore.layout import LIVES_SEAL
from mqcore.shm.pull_counts import changed_rows
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.retention import LogWords, QueueLives, QueueState
from mqcore.shm.segment import Segment
from mqcore.wire.codes import LIVES_TOPIC
from mqcore.workers.coordinator.own_messages import OwnMessages

REMOVAL_TIMEOUT_MS = 2_500           # what an admin client waits for, and a bit less
QUEUES_AT_ONCE = 256
REMOVED_AT_ONCE = 2_000
LOOKED_AT_ONCE = 50_000              # whether they are gone
MARKER_BYTES_MAX = 2 << 10            # of a marker's body: it fits into any segment
CONTINUES = "not removed yet; the removal continues"
COUNT_COLUMNS = 3                    # of QueueLives.counts


@dataclass
class Removal:
    """A removal under way: places in the table, the waiting call, its deadline (Queues.remove)."""

    done: Callable[[str], None]
    deadline_ms: int = 0
    numbers: list[int] = field(default_factory=list)
    markers: int = 0                     # on their way into the log
    trouble: str = ""

    def marked(self, put: Put) -> None:
        """A marker is in the log, or is not."""
        self.markers -= 1
        if not put.status.stored:
            self.trouble = f"not known to be removed: {put.status.name}"
        elif put.status is not AppendStatus.PUT_OK and not self.trouble:
            self.trouble = (f"removed here, and a loss of this host may bring them back: "
                            f"{put.status.name}")


def _end(queue: QueueState) -> int:
    return max(queue.next_offset, queue.max_offset)


class SharedQueues:
    """The rules' Queues over shared memory. `tick` it every 100 ms or so."""

    def __init__(self, segment: Segment, now_ms: Callable[[], int], own: OwnMessages,
                 follows: Callable[[], object]) -> None:
        """own: takes markers; follows: whether the log is another broker's, and takes none."""
        self._lives = QueueLives(segment)
        self._words = LogWords(segment)
        self._gate = ReplicaPen(segment)
        self._now_ms = now_ms
        self._own = own
        self._follows = follows
        self._removals: list[Removal] = []
        self._counts: bytes | None = None        # at the last look at their growth

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
    def taking_over(self) -> bool:
        return self._gate.taking_over

    @property
    def alone(self) -> bool:
        return not self._gate.present

    def growth(self) -> Iterable[QueueGrowth]:
        counts = self._lives.counts()
        before, self._counts = self._counts, counts
        return () if before is None else self._grown(counts, before)

    def _grown(self, counts: bytes, before: bytes) -> Iterator[QueueGrowth]:
        now, was = memoryview(counts).cast("q"), memoryview(before).cast("q")
        for number in changed_rows(counts, before, COUNT_COLUMNS):
            place = slice(number * COUNT_COLUMNS, (number + 1) * COUNT_COLUMNS)
            earlier = was[place] if place.stop <= len(was) else (0,) * COUNT_COLUMNS
            messages, size, calls = (
                new - known for new, known in zip(now[place], earlier, strict=True))
            if not (messages or size or calls):      # it has come, and nothing in it
                continue
            state = self._lives.state(number)
            if messages < 0:                     # a new life: it began at 0
                messages = state.max_offset
            yield QueueGrowth(state.topic, state.queue_id, messages, size, calls)

    def remove(
        self, queues: Sequence[tuple[str, int]], done: Callable[[str], None],
        unless: Callable[[str], bool] | None = None,
    ) -> Generator[None, None, None]:
        removal = Removal(done)
        for first in range(0, len(queues), REMOVED_AT_ONCE):
            some = [queue for queue in queues[first:first + REMOVED_AT_ONCE]
                    if unless is None or not unless(queue[0])]
            numbers = self._lives.numbers(some)
            if self._follows():
                self._lives.ask(numbers)
            else:
                self._mark(removal, some)
            removal.numbers += numbers
            yield
        removal.deadline_ms = self._now_ms() + REMOVAL_TIMEOUT_MS
        self._removals.append(removal)

    def _mark(self, removal: Removal, queues: Sequence[tuple[str, int]]) -> None:
        """Markers that name them (queue/lives.pxd), on their way into the log."""
        bodies = [bytearray()]
        for topic, queue_id in queues:
            line = f"{topic}@{queue_id}\n".encode()
            if len(bodies[-1]) + len(line) > MARKER_BYTES_MAX:
                bodies.append(bytearray())
            bodies[-1] += line
        for body in filter(None, bodies):
            removal.markers += 1
            self._own.append(
                LIVES_TOPIC, 0, bytes(body), {}, born_ms=self._now_ms(),
                prepared_position=LIVES_SEAL, waits=True, done=removal.marked)

    def delete_expired_files(self) -> None:
        self._words.ask_deletion()

    def tick(self) -> None:
        """Answer requests whose queues are gone, and those that have waited long enough."""
        now_ms = self._now_ms()
        for removal in list(self._removals):
            if not removal.markers:
                self._lives.let_go(removal.numbers, LOOKED_AT_ONCE)
            gone = not removal.markers and (removal.trouble or not removal.numbers)
            if gone or now_ms >= removal.deadline_ms:
                self._removals.remove(removal)
                removal.done(removal.trouble or ("" if gone else CONTINUES))
