"""
How far groups are behind: in messages from the files of offsets, in time from the store.

The coordinator is asked for neither, so it may hang.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mqcore.broker.settings.model import Settings
from mqcore.broker.tables.light_queues import LIGHT_FILE, PLAIN_FILE
from mqcore.broker.tables.offset_files import saved
from mqcore.shm.retention import QueueLives
from mqcore.stamps import Stamp, stamp
from mqcore.wire.codes import QUEUE_COUNT_MAX

OFFSETS_BYTES_MAX = 4 << 20            # of a file: decoding more takes too long for a scrape
READS_S_MAX = 0.010                    # of one scrape; the next one continues
READS_AT_ONCE = 16                     # between two looks at the clock

Pair = tuple[str, str]                 # consumer group, topic


@dataclass(frozen=True, slots=True)
class Row:
    """One pair. queues: number in shared memory, id, and the offset that was committed."""

    pair: Pair
    queues: list[tuple[int, int, int]]


class Times(Protocol):
    """The store's reader (mqcore/store/reader.pyi)."""

    def store_time(self, topic: str, queue_id: int, offset: int) -> int: ...
    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None: ...


class SavedOffsets:
    """
    How far groups have come, as the coordinator's files say it.

    They are as old as broker.offsets_persist_interval_ms says; too long ones are not read.
    """

    def __init__(self, settings: Settings, lives: QueueLives) -> None:
        name = LIGHT_FILE if settings.store.light_queues_enable else PLAIN_FILE
        self._path = settings.config_dir / name
        self._lives = lives
        self._stamps: tuple[Stamp, ...] = ()
        self._rows: list[Row] | None = None

    def rows(self) -> list[Row] | None:
        """None: they cannot be read."""
        stamps = stamp(self._path), stamp(self._path.with_suffix(".journal"))
        if stamps != self._stamps:
            self._stamps = stamps
            table = saved(self._path, OFFSETS_BYTES_MAX)
            self._rows = None if table is None else list(self._known(table))
        return self._rows

    def _known(self, table: dict[str, dict[int, int]]) -> Iterator[Row]:
        """
        The entries of queues that exist. Entries in another form than brokers write are left out
        until the coordinator has written them.
        """
        for key, queues in table.items():
            topic, _, group = key.partition("@")
            found = []
            for queue, offset in queues.items():
                if not isinstance(queue, int) or not isinstance(offset, int):
                    continue
                number = self._lives.numbers([(topic, queue)]) if 0 <= queue < QUEUE_COUNT_MAX \
                    else []
                if number:
                    found.append((number[0], queue, offset))
            if found:
                yield Row((group, topic), found)


class UnreadTimes:
    """
    When the first messages that groups have not committed were stored.

    A read may need the disk, so a scrape reads for READS_S_MAX at most, and the next scrape begins
    where it ended. A time is kept until the group has committed more.
    """

    def __init__(self, times: Times | None,
                 clock: Callable[[], float] = time.perf_counter) -> None:
        self.times = times
        self._clock = clock
        self._known: dict[tuple[int, int], int] = {}     # queue and offset -> store time; -1: none
        self._next = 0

    def ages(self, rows: Sequence[Row], ends: Sequence[int], now_ms: int) -> dict[Pair, float]:
        """Of each pair whose times are known, in ms; ends: of queues by number; now: store time."""
        known: dict[tuple[int, int], int] = {}
        found: dict[Pair, float] = {}
        deadline = self._clock() + READS_S_MAX
        reads, begin = 0, min(self._next, len(rows))
        left: list[int] = []
        for at in (*range(begin, len(rows)), *range(begin)):
            row, oldest_ms, missing = rows[at], now_ms, False
            for number, queue, offset in row.queues:
                if ends[number] <= offset:
                    continue
                key = number, offset
                stored_ms = self._known.get(key)
                if stored_ms is None:
                    if reads % READS_AT_ONCE == 0 and self._clock() >= deadline:
                        missing = True
                        break
                    reads += 1
                    stored_ms = self._read(row.pair[1], queue, offset)
                known[key] = stored_ms
                if stored_ms >= 0:
                    oldest_ms = min(oldest_ms, stored_ms)
            if missing:
                left.append(at)
            else:
                found[row.pair] = now_ms - oldest_ms
        self._known = known
        self._next = left[0] if left else 0
        return found

    def _read(self, topic: str, queue: int, offset: int) -> int:
        """Of the first message from the offset on that is still there."""
        assert self.times is not None
        stored_ms = self.times.store_time(topic, queue, offset)
        if stored_ms >= 0:
            return stored_ms
        places = self.times.queue_range(topic, queue)        # those before were deleted
        return -1 if places is None or places[0] <= offset else self.times.store_time(
            topic, queue, places[0])
