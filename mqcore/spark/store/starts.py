"""Where records of a log begin, by what lies beside it: checksums of ours, consume queues."""
from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from mqcore.layout import CHECKSUM_ENTRY_SIZE, CQ_ENTRY_SIZE, CQ_FILLER_RECORD_SIZE
from mqcore.store import paths
from mqcore.store.verify.files import StoreListing, usual

ENTRY: Final = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")])
CHECKSUM: Final = np.dtype([("end", ">u4"), ("crc", ">u4")])
GUIDES_MAX: Final = 16

assert ENTRY.itemsize == CQ_ENTRY_SIZE
assert CHECKSUM.itemsize == CHECKSUM_ENTRY_SIZE


class ChecksumStarts:
    """By the checksums beside a log, which have the end of each record (docs/formats.md)."""

    def __init__(self, files: StoreListing, segments: Sequence[tuple[int, int]]) -> None:
        self._files = files
        self._segments = list(segments)
        self._of = -1
        self._ends: Any = np.zeros(0, ">u4")

    def at_or_behind(self, position: int) -> int | None:
        """Where the first record at or behind a position begins, if that is known."""
        number = bisect.bisect_right(self._segments, (position, 1 << 62)) - 1
        if number < 0 or position >= sum(self._segments[number]):
            return None
        base = self._segments[number][0]
        if base == position:
            return base
        if self._of != base:
            self._of = base
            self._ends = _ends(self._files.log.checksums_of(base))
        place = int(np.searchsorted(self._ends, position - base))
        # the last entry is that of the blank record, which ends with the segment
        if place == len(self._ends):
            return None
        found = base + int(self._ends[place])
        return found if found < sum(self._segments[number]) else self._next(number)

    def _next(self, number: int) -> int | None:
        return self._segments[number + 1][0] if number + 1 < len(self._segments) else None


def _ends(path: Path) -> Any:
    try:
        content = np.fromfile(path, CHECKSUM)["end"]
    except OSError:
        return np.zeros(0, ">u4")
    return content[:np.count_nonzero(content)]


class QueueStarts:
    """By the entries of one consume queue."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._firsts: list[int] = []
        for path in files:
            entries = queue_entries(path)
            self._firsts.append(int(entries["position"][0]) if len(entries) else 1 << 62)
        self._of = -1
        self._entries: Any = np.zeros(0, ">i8")

    def at_or_behind(self, position: int) -> int | None:
        """Where the first record of the queue at or behind a position begins."""
        number = bisect.bisect_right(self._firsts, position) - 1
        for near in (max(number, 0), number + 1):
            if near >= len(self._files):
                return None
            if self._of != near:
                self._of = near
                self._entries = np.ascontiguousarray(queue_entries(self._files[near])["position"])
            place = int(np.searchsorted(self._entries, position))
            if place < len(self._entries):
                return int(self._entries[place])
        return None


def queue_entries(path: Path) -> Any:
    """The entries of a queue's file up to the first empty one, without fillers before them."""
    size = path.stat().st_size // CQ_ENTRY_SIZE
    if size == 0:
        return np.zeros(0, ENTRY)
    content = np.memmap(path, ENTRY, mode="r", shape=(size,))
    low, high = 0, size                    # behind the last entry
    while low < high:
        middle = (low + high) // 2
        if int(content["size"][middle]) == 0:
            high = middle
        else:
            low = middle + 1
    end = low
    low, high = 0, end                     # the first that is no filler
    while low < high:
        middle = (low + high) // 2
        if int(content["size"][middle]) == CQ_FILLER_RECORD_SIZE:
            low = middle + 1
        else:
            high = middle
    return content[low:end]


def queue_folders(root: Path) -> Iterator[tuple[str, int, list[Path]]]:
    """(topic, queue id, files ascending) of each consume queue; see `QueueStore`."""
    yield from QueueStore.of(root).queues


@dataclass(frozen=True)
class QueueStore:
    """
    The consume queues of a store as `mqcore store verify` takes them: what has another name is
    none, nor is a file of a queue that begins elsewhere than files do.

    file_bytes  what most files have
    """

    file_bytes: int
    queues: list[tuple[str, int, list[Path]]]

    @classmethod
    def of(cls, root: Path) -> QueueStore:
        named = [(topic, queue_id, sorted(
                     path for path in folder.iterdir()
                     if len(path.name) == 20 and path.name.isdecimal() and path.is_file()))
                 for topic, queue_id, folder in sorted(paths.queue_folders(root / "consumequeue"))]
        size = usual(path.stat().st_size for _, _, files in named for path in files)
        size = size // CQ_ENTRY_SIZE * CQ_ENTRY_SIZE or CQ_ENTRY_SIZE
        return cls(size, [(topic, queue_id, [path for path in files if int(path.name) % size == 0])
                          for topic, queue_id, files in named])


def queue_starts(root: Path) -> list[QueueStarts]:
    """The longest queues, as guides."""
    longest = sorted(queue_folders(root), key=lambda one: -len(one[2]))[:GUIDES_MAX]
    return [QueueStarts(files) for _, _, files in longest if files]


def ends_of_queues(root: Path) -> Iterator[tuple[str, int]]:
    """(topic/queue id, log position behind the record of its last entry) of each queue."""
    for topic, queue_id, files in queue_folders(root):
        for path in reversed(files):
            entries = queue_entries(path)
            if len(entries):
                last = entries[len(entries) - 1]
                yield f"{topic}/{queue_id}", int(last["position"]) + int(last["size"])
                break
