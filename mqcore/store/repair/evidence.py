"""
Which messages lay in the damaged stretches of a commit log: what queue entries and gaps in the
queues' numbers say. For mqcore/store/repair/store.py.
"""
from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mqcore.store.paths import FILE_NAME, queue_folder
from mqcore.store.repair.records import LIGHT_PREFIX, RECORD_MIN, Lost, filled, room
from mqcore.store.verify.files import ENTRY_SIZE, FilesOfQueue

ENTRY = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")])
FILLER_SIZE = 0x7FFF_FFFF
Queue = tuple[bytes, int]


@dataclass
class Stretch:
    """
    Log positions [start, end) of one segment that hold no records; closes: up to its end; behind:
    where records continue.
    """

    start: int
    end: int
    closes: bool
    behind: int
    lost: list[Lost] = field(default_factory=list)

    @property
    def room(self) -> int:
        """Bytes that no message has claimed yet."""
        return (room(self.start, self.end, closes=self.closes)
                - sum(one.size_min for one in self.lost))

    def fill(self, time_ms: int) -> Iterable[tuple[int, bytes]]:
        """The bytes that go there, as repair_records.filled."""
        return filled(self.start, self.end, sorted(self.lost, key=lambda one: (
            one.position, one.queues[0])), closes=self.closes, time_ms=time_ms)


@dataclass(frozen=True)
class Gap:
    """
    The log has no record for the numbers [first, end) of a queue: they lay between the positions
    of the records before and behind.
    """

    queue: Queue
    first: int
    end: int
    after: int
    before: int


def stretches(ranges: Iterable[tuple[int, int]], segments: Sequence[tuple[int, int]],
              ) -> list[Stretch]:
    """Damaged ranges (start, end), each cut at the ends of segments (start, bytes)."""
    found = []
    for start, end in ranges:
        for base, size in segments:
            low, high = max(start, base), min(end, base + size)
            if low < high:
                found.append(Stretch(low, high, closes=high == base + size, behind=end))
    return sorted(found, key=lambda stretch: stretch.start)


def entries_at(root: Path, queues: Sequence[FilesOfQueue], found: Sequence[Stretch],
               ) -> dict[int, list[tuple[bytes, int, int]]]:
    """
    (topic, queue id, queue offset) of the entries that point into the stretches, by log position.
    Raises OSError.
    """
    claims: dict[int, list[tuple[bytes, int, int]]] = {}
    starts = np.array([stretch.start for stretch in found], dtype=np.int64)
    ends = np.array([stretch.end for stretch in found], dtype=np.int64)
    for queue in queues:
        folder = queue_folder(root / "consumequeue", queue.topic, queue.queue_id)
        for path in sorted(folder.iterdir()):
            if FILE_NAME.fullmatch(path.name) is None:
                continue
            raw = path.read_bytes()
            entries = np.frombuffer(raw[:len(raw) // ENTRY_SIZE * ENTRY_SIZE], dtype=ENTRY)
            at = np.searchsorted(starts, entries["position"], side="right") - 1
            hit = (at >= 0) & (entries["position"] < ends[at]) & (
                entries["size"] >= RECORD_MIN) & (entries["size"] != FILLER_SIZE)
            for index in np.flatnonzero(hit):
                claims.setdefault(int(entries["position"][index]), []).append(
                    (os.fsencode(queue.topic), queue.queue_id,
                     int(path.name) // ENTRY_SIZE + int(index)))
    return claims


def assign(found: Sequence[Stretch], claims: dict[int, list[tuple[bytes, int, int]]],
           gaps: Sequence[Gap]) -> tuple[list[Gap], int]:
    """
    Give each lost message to the stretch that it lay in, as far as there is room. Returns (gaps
    without any stretch: their numbers are wrong, not lost; messages for which no room was left).
    """
    starts = [stretch.start for stretch in found]
    known: dict[tuple[bytes, int, int], int] = {}
    without_room = 0
    for position, queues in sorted(claims.items()):
        queues.sort(key=lambda queue: queue[0].startswith(LIGHT_PREFIX))
        one = Lost(tuple(queues), position)
        stretch = found[bisect.bisect_right(starts, position) - 1]
        if stretch.room < one.size_min:
            without_room += 1
            continue
        stretch.lost.append(one)
        known.update(dict.fromkeys(queues, position))
    wrong = []
    for gap in gaps:
        between = [stretch for stretch in found if gap.after < stretch.start < gap.before]
        if not between:
            wrong.append(gap)
            continue
        without_room += _spread(gap, between, known)
    return wrong, without_room


def _spread(gap: Gap, between: list[Stretch], known: dict[tuple[bytes, int, int], int]) -> int:
    """Placeholders for a gap's numbers that no entry claims; returns how many found no room."""
    topic, queue_id = gap.queue
    at = 0
    position = between[0].start
    for number in range(gap.first, gap.end):
        claimed = known.get((topic, queue_id, number))
        if claimed is not None:
            position = claimed
            while at + 1 < len(between) and between[at + 1].start <= position:
                at += 1
            continue
        one = Lost(((topic, queue_id, number),), max(position, between[at].start))
        while between[at].room < one.size_min:
            at += 1
            if at == len(between):
                return gap.end - number
            one = Lost(one.queues, between[at].start)
        between[at].lost.append(one)
        position = one.position
    return 0
