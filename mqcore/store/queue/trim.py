"""
What follows the commit log's beginning: queue and index files that point below it are deleted.

store.md 3.4, 4.5, 6.6 (RocketMQ 4.9.8: DefaultMessageStore.CleanConsumeQueueService, ConsumeQueue,
IndexService). The dispatcher owns these files, so its process runs this, in a thread beside the
dispatch: it only touches files that dispatch has left behind, and each queue's min_offset.
"""
from __future__ import annotations

import os
import struct
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from mqcore.layout import CQ_FILLER_RECORD_SIZE
from mqcore.shm.retention import QueueLives, QueueState
from mqcore.store.files import named, unlink
from mqcore.store.paths import FILE_NAME, queue_folder

ENTRY = struct.Struct(">qiq")
INDEX_HEADER = struct.Struct(">qqqqii")
LOOK_ENTRIES = 4096              # read at a time


@dataclass
class Trimmed:
    """What one pass deleted."""

    queue_files: int = 0
    index_files: int = 0


class QueueTrimmer:
    """
    Deletes the files of queues and corrects their first offsets.

    queue_folder: the consume queues; file_entries: entries of one file.
    """

    def __init__(self, lives: QueueLives, queue_folder: Path, file_entries: int) -> None:
        self._lives = lives
        self._queue_folder = queue_folder
        self._file_entries = file_entries

    def trim(self, queue: QueueState, first: int) -> int:
        """
        Delete the queue's files whose last entry lies below `first`, the log's beginning in bytes,
        never the last file; then raise its min_offset (store.md 3.4). Returns how many. Raises
        OSError.
        """
        folder = queue_folder(self._queue_folder, queue.topic, queue.queue_id)
        if queue.max_offset == 0 or not folder.is_dir():
            return 0
        starts = sorted(int(entry.name) // ENTRY.size for entry in os.scandir(folder)
                        if FILE_NAME.fullmatch(entry.name))
        deleted = 0
        while len(starts) > 1 and self._entry(folder, starts[0], self._file_entries - 1) < first:
            # the min_offset moves before the file goes: nobody begins to read there any more
            self._lives.set_min(queue.number, max(queue.min_offset, starts[1]))
            unlink(self._path(folder, starts[0]))
            del starts[0]
            deleted += 1
        if starts:
            count = min(queue.max_offset - starts[0], self._file_entries)
            found = self._first_at(folder, starts[0], count, first)
            if found < count and starts[0] + found > queue.min_offset:
                self._lives.set_min(queue.number, starts[0] + found)
        return deleted

    def _first_at(self, folder: Path, start: int, count: int, position: int) -> int:
        """The first of `count` entries of a file that lies at `position` or above; count: none."""
        low, high = 0, count
        while low < high:                    # ascending; fillers, which come first, count as below
            middle = (low + high) // 2
            if self._entry(folder, start, middle) < position:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry(self, folder: Path, start: int, index: int) -> int:
        """Log position of an entry of the file that begins at offset `start`; -1: a filler."""
        path = self._path(folder, start)
        with named(path), path.open("rb", buffering=0) as file:
            raw = os.pread(file.fileno(), ENTRY.size, index * ENTRY.size)
        position, size, _ = ENTRY.unpack(raw)
        return -1 if size == CQ_FILLER_RECORD_SIZE else int(position)

    def _path(self, folder: Path, start: int) -> Path:
        return folder / f"{start * ENTRY.size:020d}"


def trim_index(folder: Path, first: int) -> int:
    """
    Delete the oldest index files whose end lies below `first`, never the newest (store.md 4.5).

    Returns how many. Raises OSError.
    """
    paths = sorted(Path(entry.path) for entry in os.scandir(folder) if entry.name.isdigit())
    deleted = 0
    for path in paths[:-1]:
        with named(path), path.open("rb", buffering=0) as file:
            raw = file.read(INDEX_HEADER.size)
        if len(raw) < INDEX_HEADER.size or INDEX_HEADER.unpack(raw)[3] >= first:
            break
        unlink(path)
        deleted += 1
    return deleted


def trim_all(
    trimmer: QueueTrimmer, lives: QueueLives, index_folder: Path, first: int,
    lock: AbstractContextManager[object],
) -> Trimmed:
    """
    One whole pass. lock: held for one queue at a time, against removing it meanwhile.

    Raises OSError; what was deleted before stays deleted, and the pass may be repeated.
    """
    done = Trimmed()
    try:
        for number in range(lives.queue_count):
            with lock:
                done.queue_files += trimmer.trim(lives.state(number), first)
    finally:
        if done.queue_files:
            lives.trimmed()
    done.index_files = trim_index(index_folder, first)
    return done


def first_position(folder: Path) -> int | None:
    """Log position of a queue's first entry that is no filler; None: it has none."""
    for path in sorted(entry for entry in folder.glob("*") if FILE_NAME.fullmatch(entry.name)):
        with named(path), path.open("rb") as file:
            while raw := file.read(LOOK_ENTRIES * ENTRY.size):
                for at in range(0, len(raw) - ENTRY.size + 1, ENTRY.size):
                    position, size, _ = ENTRY.unpack_from(raw, at)
                    if size <= 0:
                        return None
                    if size != CQ_FILLER_RECORD_SIZE:
                        return int(position)
    return None
