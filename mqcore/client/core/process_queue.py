"""
The messages of one held queue between pull and commit (client.md 4.10). No I/O.

P1  The offset to commit is the smallest one not yet done: a crash repeats messages, and never loses
    one.
P2  Offsets come in ascending order; what came before is not taken again.
"""
from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """A message, as far as a queue needs it."""

    @property
    def queue_offset(self) -> int: ...

    @property
    def body_size(self) -> int: ...


M = TypeVar("M", bound=Queued)


class ProcessQueue(Generic[M]):
    """For listeners that take messages in any order: which are unfinished, and how far it is."""

    def __init__(self, start_offset: int) -> None:
        self.next_offset: int = start_offset         # the next pull begins here
        self.start_offset = start_offset
        self.byte_count: int = 0                     # of unfinished bodies, as stored
        self._unfinished: OrderedDict[int, M] = OrderedDict()
        self._last = start_offset - 1           # the largest offset ever put

    @property
    def message_count(self) -> int:
        return len(self._unfinished)

    @property
    def first_offset(self) -> int:
        """The smallest unfinished offset; 0 when there is none."""
        return next(iter(self._unfinished), 0)

    @property
    def last_offset(self) -> int:
        """The largest unfinished offset; 0 when there is none."""
        return next(reversed(self._unfinished), 0)

    @property
    def span(self) -> int:
        """The distance between the oldest and the newest unfinished offset."""
        return self.last_offset - self.first_offset

    @property
    def commit_offset(self) -> int:
        """Everything below is done (P1)."""
        return next(iter(self._unfinished), self.next_offset)

    def put(self, messages: Sequence[M], next_offset: int) -> list[M]:
        """Take the messages of a pull; returns those that are new (P2)."""
        fresh = []
        for message in messages:
            offset = message.queue_offset
            if offset > self._last:
                self._last = offset
                self._unfinished[offset] = message
                self.byte_count += message.body_size
                fresh.append(message)
        self.next_offset = max(self.next_offset, next_offset, self._last + 1)
        return fresh

    def done(self, messages: Iterable[M]) -> None:
        """Mark messages as finished; those that already are stay so."""
        for message in messages:
            if self._unfinished.pop(message.queue_offset, None) is not None:
                self.byte_count -= message.body_size

    def unfinished(self, message: M) -> bool:
        return message.queue_offset in self._unfinished

    def oldest(self, count: int) -> list[M]:
        """The `count` oldest unfinished messages."""
        return list(islice(self._unfinished.values(), count))


class OrderlyQueue(ProcessQueue[M]):
    """For listeners that take them in order: some are taken, and committed or given back."""

    def __init__(self, start_offset: int) -> None:
        super().__init__(start_offset)
        self._waiting: deque[M] = deque()
        self._taken: list[M] = []

    def put(self, messages: Sequence[M], next_offset: int) -> list[M]:
        fresh = super().put(messages, next_offset)
        self._waiting.extend(fresh)
        return fresh

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def consuming(self) -> list[M]:
        """Messages that were taken, and neither committed nor given back."""
        return list(self._taken)

    def take(self, count: int) -> list[M]:
        """The `count` oldest messages that wait; they are taken now."""
        chunk = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        self._taken += chunk
        return chunk

    def done(self, messages: Iterable[M]) -> None:
        finished = list(messages)
        super().done(finished)
        if self._taken and finished:
            offsets = {message.queue_offset for message in finished}
            self._taken = [one for one in self._taken if one.queue_offset not in offsets]

    def commit(self) -> None:
        """All that is taken is done."""
        self.done(self._taken)

    def rollback(self) -> None:
        """All that is taken waits again, in its order."""
        self._waiting.extendleft(reversed(self._taken))
        self._taken.clear()

    def make_again(self, messages: Sequence[M]) -> None:
        """Of what is taken, these wait again, in their order."""
        offsets = {message.queue_offset for message in messages}
        again = [one for one in self._taken if one.queue_offset in offsets]
        self._taken = [one for one in self._taken if one.queue_offset not in offsets]
        self._waiting.extendleft(reversed(again))
