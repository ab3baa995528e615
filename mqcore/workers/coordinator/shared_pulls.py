"""The coordinator's look at what the serving processes handed out, by queue and group."""
from __future__ import annotations

import logging
from collections.abc import Iterable

from mqcore.broker.ports import LastPull, PullAdvance
from mqcore.shm.pull_counts import COLUMNS, PullCountReader, changed_rows
from mqcore.shm.retention import QueueLives
from mqcore.shm.segment import Segment

PULLS = 2
ADDED = slice(2, 6)                  # pulls, messages, bytes, took_ms: they only grow
LAST = slice(6, 9)                   # behind_bytes, behind_ms, at_ms: of the newest pull
BEHIND_BYTES, AT_MS = 6, 8
NOTHING = (0,) * (ADDED.stop - ADDED.start)

Pair = tuple[int, int]               # numbers of queue and group
log = logging.getLogger("mqcore.coordinator")


class SharedPulls:
    """The rules' Pulls over shared memory."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._reader = PullCountReader(segment)
        self._lives = QueueLives(segment)
        self._before: list[bytes] | None = None
        self._missed_told = False

    def _tables(self) -> list[bytes]:
        return [self._reader.rows(serving) for serving in range(self._segment.serving_count)]

    def advances(self) -> Iterable[PullAdvance]:
        tables = self._tables()
        before, self._before = self._before, tables
        self._tell_missed()
        if before is None:
            return ()
        sums: dict[Pair, tuple[int, ...]] = {}
        for table, old in zip(tables, before, strict=True):
            now, was = _words(table), _words(old)
            for number in changed_rows(table, old, COLUMNS):
                row, earlier = _row(now, number), _row(was, number)[ADDED] or NOTHING
                added = [new - known for new, known in zip(row[ADDED], earlier, strict=True)]
                if any(added):
                    sums[row[0], row[1]] = tuple(
                        one + other for one, other in zip(
                            sums.get((row[0], row[1]), NOTHING), added, strict=True))
        return (PullAdvance(*self._names(pair), *sums[pair]) for pair in sorted(sums))

    def found(self) -> int:
        """How many pulls have brought messages since the serving processes began."""
        return sum(sum(_words(table)[PULLS::COLUMNS]) for table in self._tables())

    def last(self, behind_more_than_bytes: int = -1) -> Iterable[LastPull]:
        newest: dict[Pair, tuple[int, ...]] = {}
        for table in self._tables():
            words = _words(table)
            for number in range(len(words) // COLUMNS):
                row = _row(words, number)
                known = newest.get((row[0], row[1]))
                if known is None or row[AT_MS] >= known[AT_MS]:
                    newest[row[0], row[1]] = row
        return (LastPull(*self._names(pair), *newest[pair][LAST]) for pair in sorted(newest)
                if newest[pair][BEHIND_BYTES] > behind_more_than_bytes)

    def _names(self, pair: Pair) -> tuple[str, int, str]:
        queue = self._lives.state(pair[0])
        return queue.topic, queue.queue_id, self._reader.group(pair[1])

    def _tell_missed(self) -> None:
        if not self._missed_told and any(
                self._reader.missed(serving) for serving in range(self._segment.serving_count)):
            self._missed_told = True
            log.warning("statistics: there is no room for more pairs of queue and group: raise "
                        "processes.subscription_count_max")


def _words(table: bytes) -> memoryview[int]:
    return memoryview(table).cast("q")


def _row(words: memoryview[int], number: int) -> tuple[int, ...]:
    """Empty where there is none yet."""
    return tuple(words[number * COLUMNS:(number + 1) * COLUMNS])
