"""The entries of consume queues and of the key index, as record batches."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqcore.layout import (
    CQ_ENTRY_SIZE,
    INDEX_BEGIN_TIME,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_NEXT_ENTRY,
    INDEX_SLOT_SIZE,
)
from mqcore.spark.columns import Picked, arrow_schema
from mqcore.spark.errors import SparkSourceError
from mqcore.spark.store.starts import ENTRY, QueueStore
from mqcore.store.verify.files import StoreListing, read_index
from mqcore.store.verify.report import DAMAGE, Report
from mqcore.wire.numbers import I64_MAX

ROWS_MAX: Final = 65_536               # of one batch
READ_ENTRIES: Final = 1 << 20          # at a time
EXT_LAST: Final = -2147483649          # tag codes up to here are addresses of units (store.md 3.6)
UNIT: Final = np.dtype([("size", ">i2"), ("tag", ">i8"), ("time", ">i8"), ("bits", ">i2")])
INDEX_ENTRY: Final = np.dtype([("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"),
                               ("previous", ">i4")])

assert INDEX_ENTRY.itemsize == INDEX_ENTRY_SIZE


@dataclass(frozen=True)
class QueueFile:
    """
    One file of a consume queue; entries: as many as it can have, what lies behind is those of the
    next file; units: the folder of its extension's files, None: none.
    """

    topic: str
    queue_id: int
    path: str
    entries: int
    units: str | None


@dataclass(frozen=True)
class IndexFile:
    """One file of the key index with its numbers of slots and entries, entry 0 counted."""

    path: str
    slots: int
    entries: int


# -- consume queues --------------------------------------------------------------------------------


def queue_files(root: Path, topics: set[str] | None, queue_ids: set[int] | None
                ) -> Iterator[QueueFile]:
    """The files of the queues that are wanted, None: any."""
    store = QueueStore.of(root)
    for topic, queue_id, files in store.queues:
        if (topics is None or topic in topics) and (queue_ids is None or queue_id in queue_ids):
            units = root / "consumequeue_ext" / topic / str(queue_id)
            for path in files:
                yield QueueFile(topic, queue_id, str(path), store.file_bytes // CQ_ENTRY_SIZE,
                                str(units) if units.is_dir() else None)


def queue_batches(file: QueueFile, picked: Picked) -> Iterator[Any]:
    """The entries that are not all zero, fillers too, in their order. Raises OSError."""
    schema = arrow_schema(picked)
    units = _Units(Path(file.units)) if file.units is not None else None
    first = int(Path(file.path).name) // CQ_ENTRY_SIZE
    with open(file.path, "rb") as content:
        size = min(-(-os.fstat(content.fileno()).st_size // CQ_ENTRY_SIZE), file.entries)
        for begin, end in _extents(content.fileno(), size):
            for at in range(begin, end, READ_ENTRIES):
                raw = os.pread(content.fileno(), min(READ_ENTRIES, end - at) * CQ_ENTRY_SIZE,
                               at * CQ_ENTRY_SIZE)
                # -- of one that is cut off the rest counts as zeros
                entries = np.frombuffer(raw + bytes(-len(raw) % CQ_ENTRY_SIZE), ENTRY)
                there = np.flatnonzero((entries["size"] != 0) | (entries["position"] != 0)
                                       | (entries["tag"] != 0))
                for low in range(0, len(there), ROWS_MAX):
                    rows = there[low:low + ROWS_MAX]
                    yield _queue_batch(file, schema, entries[rows], first + at + rows, units)


def _queue_batch(file: QueueFile, schema: Any, entries: Any, offsets: Any,
                 units: _Units | None) -> Any:
    tags = entries["tag"].astype("<i8")
    made: dict[str, Callable[[], Any]] = {
        "topic": lambda: pa.repeat(pa.scalar(file.topic), len(entries)),
        "queueId": lambda: np.full(len(entries), file.queue_id, "<i4"),
        "queueOffset": lambda: offsets.astype("<i8"),
        "commitLogOffset": lambda: entries["position"].astype("<i8"),
        "size": lambda: entries["size"].astype("<i4"),
        "tagsCode": lambda: tags,
        "unitTagsCode": lambda: _units(units, tags, "tag", 1),
        "unitStoreTimestamp": lambda: _units(units, tags, "time", 1000),
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(made[field.name](), field.type) for field in schema], schema=schema)


def _extents(fd: int, entries: int) -> Iterator[tuple[int, int]]:
    """Where data lies in a file, in entries: holes are not read."""
    at, size = 0, entries * CQ_ENTRY_SIZE
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:                # a hole up to the end
            return
        at = min(os.lseek(fd, begin, os.SEEK_HOLE), size)
        begin -= begin % CQ_ENTRY_SIZE
        at += -at % CQ_ENTRY_SIZE
        yield begin // CQ_ENTRY_SIZE, at // CQ_ENTRY_SIZE


class _Units:
    """The units of one queue's extension (docs/formats.md)."""

    def __init__(self, folder: Path) -> None:
        self._files = {int(path.name): np.memmap(path, np.uint8, mode="r")
                       for path in sorted(folder.iterdir())
                       if path.name.isdecimal() and path.stat().st_size}
        self._bytes = max((len(content) for content in self._files.values()), default=0)

    def of(self, tag: int) -> Any:
        """The head of the unit that a tag code is the address of, None: there is none."""
        place = tag + (1 << 63)
        if not self._bytes:
            return None
        at = place % self._bytes
        content = self._files.get(place - at)
        if content is None or at + UNIT.itemsize > len(content):
            return None
        head = np.frombuffer(content[at:at + UNIT.itemsize].tobytes(), UNIT)[0]
        return head if int(head["size"]) >= UNIT.itemsize else None


def _units(units: _Units | None, tags: Any, name: str, ticks: int) -> Any:
    """A field of each entry's unit, null without one."""
    found: list[int | None] = [None] * len(tags)
    for at in np.flatnonzero(tags <= EXT_LAST) if units is not None else ():
        assert units is not None
        head = units.of(int(tags[at]))
        value = 0 if head is None else int(head[name]) * ticks
        # -- a time that no timestamp can be is none
        found[at] = None if head is None or not -I64_MAX <= value <= I64_MAX else value
    return found


# -- the key index ---------------------------------------------------------------------------------


def index_files(files: StoreListing, slots: int | None) -> tuple[list[IndexFile], list[str]]:
    """The files of the index, oldest first, and what is wrong with them. Raises OSError."""
    report = Report(str(files.root))
    for content in read_index(files, report, slots):
        content.close()
    return ([IndexFile(str(path), files.index_slots, files.index_entries) for path in files.index],
            [f"{one.file}: {one.text}" for one in report.findings if one.severity == DAMAGE])


def index_batches(file: IndexFile, picked: Picked) -> Iterator[Any]:
    """The entries of an index file from 1 on, as its header counts them. Raises OSError."""
    schema = arrow_schema(picked)
    content = np.memmap(file.path, np.uint8, mode="r")
    head = bytes(content[:INDEX_HEADER_SIZE])
    begin_ms = int.from_bytes(head[INDEX_BEGIN_TIME:INDEX_BEGIN_TIME + 8], "big", signed=True)
    count = int.from_bytes(head[INDEX_NEXT_ENTRY:INDEX_NEXT_ENTRY + 4], "big", signed=True)
    start = INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * file.slots
    end = min(max(count, 1), file.entries)
    if start + end * INDEX_ENTRY_SIZE > len(content):
        raise SparkSourceError(f"{file.path}: {len(content)} bytes do not hold {file.slots} slots "
                               f"and {end} entries")
    for low in range(1, end, ROWS_MAX):
        high = min(low + ROWS_MAX, end)
        entries = np.frombuffer(
            content[start + low * INDEX_ENTRY_SIZE:start + high * INDEX_ENTRY_SIZE].tobytes(),
            INDEX_ENTRY)
        seconds = entries["seconds"].astype("<i8")
        made: dict[str, Any] = {
            "file": pa.repeat(pa.scalar(Path(file.path).name), high - low),
            "entry": np.arange(low, high, dtype="<i4"),
            "keyHash": entries["hash"].astype("<i4"),
            "commitLogOffset": entries["position"].astype("<i8"),
            "storeTimestamp": (begin_ms + 1000 * seconds) * 1000,
            "seconds": entries["seconds"].astype("<i4"),
            "previous": entries["previous"].astype("<i4"),
        }
        yield pa.RecordBatch.from_arrays(
            [pa.array(made[field.name], field.type) for field in schema], schema=schema)
