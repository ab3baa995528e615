"""The coordinator's look at what the serving processes handed out, by queue and group."""
from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np

from mqcore.broker.ports import LastPull, PullAdvance
from mqcore.shm.pull_counts import COLUMNS, PullCountReader
from mqcore.shm.retention import QueueLives
from mqcore.shm.segment import Segment

ADDED = slice(2, 6)                  # pulls, messages, bytes, took_ms: they only grow
LAST = slice(6, 9)                   # behind_bytes, behind_ms, at_ms: of the newest pull
BEHIND_BYTES, AT_MS = 6, 8

Pair = tuple[int, int]               # numbers of queue and group
log = logging.getLogger("mqcore.coordinator")


class SharedPulls:
    """The rules' Pulls over shared memory."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._reader = PullCountReader(segment)
        self._lives = QueueLives(segment)
        self._before: list[np.ndarray] | None = None
        self._missed_told = False

    def _tables(self) -> list[np.ndarray]:
        return [
            np.frombuffer(self._reader.rows(serving), dtype=np.int64).reshape(-1, COLUMNS)
            for serving in range(self._segment.serving_count)]

    def advances(self) -> Iterable[PullAdvance]:
        tables = self._tables()
        before, self._before = self._before, tables
        self._tell_missed()
        if before is None:
            return ()
        changed = []
        for table, old in zip(tables, before, strict=True):
            rows = table.copy()
            rows[:len(old), ADDED] -= old[:, ADDED]
            changed.append(rows[rows[:, ADDED].any(axis=1)])
        rows = np.concatenate(changed)
        pairs, which = np.unique(rows[:, :2], axis=0, return_inverse=True)
        sums = np.zeros((len(pairs), ADDED.stop - ADDED.start), dtype=np.int64)
        np.add.at(sums, which.reshape(-1), rows[:, ADDED])
        return (
            PullAdvance(*self._names((int(pair[0]), int(pair[1]))), *(int(word) for word in words))
            for pair, words in zip(pairs, sums, strict=True))

    def found(self) -> int:
        """How many pulls have brought messages since the serving processes began."""
        return sum(int(table[:, ADDED][:, 0].sum()) for table in self._tables())

    def last(self, behind_more_than_bytes: int = -1) -> Iterable[LastPull]:
        rows = np.concatenate(self._tables())
        order = np.argsort(rows[:, AT_MS], kind="stable")[::-1]              # newest first
        _, first = np.unique(rows[order, :2], axis=0, return_index=True)
        newest = rows[order[first]]
        newest = newest[newest[:, BEHIND_BYTES] > behind_more_than_bytes]
        return (
            LastPull(*self._names((int(row[0]), int(row[1]))), *(int(word) for word in row[LAST]))
            for row in newest)

    def _names(self, pair: Pair) -> tuple[str, int, str]:
        queue = self._lives.state(pair[0])
        return queue.topic, queue.queue_id, self._reader.group(pair[1])

    def _tell_missed(self) -> None:
        if not self._missed_told and any(
                self._reader.missed(serving) for serving in range(self._segment.serving_count)):
            self._missed_told = True
            log.warning("statistics: there is no room for more pairs of queue and group: raise "
                        "processes.subscription_count_max")
