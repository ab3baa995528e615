"""
Where a log at rest is cut: at a log position or a store time, always a record boundary; and what is
known of the deliveries on either side.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from mqcore.backup.errors import BackupError
from mqcore.backup.manifest import Manifest
from mqcore.layout import CQ_FILLER_RECORD_SIZE
from mqcore.store import files
from mqcore.store.cutting import ENTRY, QUEUES
from mqcore.store.log.folders import LOG, LogFolders
from mqcore.store.paths import queue_folders
from mqcore.store.verify.scan import LogScan
from mqcore.wire.codes import SCHEDULE_TOPIC
from mqcore.wire.properties import DELAY, REAL_TOPIC
from mqcore.wire.records import RecordError, decode_record

TIME_MIN_MS: Final = -(2**63 - 1)
WINDOW_BYTES: Final = 1 << 20            # of the log, looked at first for where a record ends


@dataclass(frozen=True)
class RestingLog:
    """
    A log that nobody appends to.

    first, end      positions, bytes
    segment_bytes   length of its files
    """

    folders: LogFolders
    segment_bytes: int
    first: int
    end: int

    @classmethod
    def restored(cls, root: Path, manifest: Manifest) -> RestingLog:
        return cls(LogFolders((root / LOG,)), manifest.segment_bytes, manifest.first, manifest.end)


def scan(log: RestingLog, *, start: int, stop: int, from_ms: int = TIME_MIN_MS,
         topic: bytes | None = None) -> LogScan:
    """The records in [start, stop), as LogScan has them."""
    segments = [(at, log.segment_bytes) for at, _ in log.folders.segments()]
    return LogScan(log.folders.text(), segments, start=start, stop=stop, topic=topic,
                   from_ms=from_ms)


def at_position(log: RestingLog, position: int) -> int:
    """The last record boundary at or before a log position. Raises BackupError."""
    if position >= log.end:
        return log.end
    window = WINDOW_BYTES
    while True:
        start = max(log.first, position - window)
        found = -1
        records = scan(log, start=start, stop=position + 1)      # one that begins there, too
        while (raw := records.next()) is not None:
            begins = records.position - len(raw)
            found = records.position if records.position <= position else begins
        if found > log.first:
            return found
        if start == log.first:
            raise BackupError(f"no record ends at or before log position {position}: the log "
                              f"begins at {log.first}")
        window *= 8


def at_time(log: RestingLog, until_ms: int) -> int:
    """Where the first record lies that was stored after a time. Raises BackupError."""
    records = scan(log, start=log.first, stop=log.end, from_ms=until_ms + 1)
    raw = records.next()
    if raw is None:
        return log.end
    position = records.position - len(raw)
    first = log.first
    if position == first:
        raise BackupError(f"all records were stored after that time: the first at "
                          f"{decode_record(raw).store_timestamp_ms}")
    return at_position(log, position)


def last_time(log: RestingLog, cut: int) -> int:
    """Store time of the youngest record before a cut, ms; 0: there is none."""
    youngest, window = 0, WINDOW_BYTES
    while not youngest and cut > log.first:
        start = max(log.first, cut - window)
        records = scan(log, start=start, stop=cut)
        while (raw := records.next()) is not None:
            youngest = max(youngest, decode_record(raw).store_timestamp_ms)
        if start == log.first:
            break
        window *= 8
    return youngest


def deliveries(root: Path, log: RestingLog, cut: int) -> Counter[int]:
    """How many delayed messages were delivered behind a cut, by level."""
    found: Counter[int] = Counter()
    if cut == log.end or not (root / QUEUES / SCHEDULE_TOPIC).is_dir():
        return found
    records = scan(log, start=cut, stop=log.end)
    while (raw := records.next()) is not None:
        try:
            record = decode_record(raw)
        except RecordError:                      # whole, and yet not to be read
            continue
        level = record.properties.get(DELAY, "")
        if record.properties.get(REAL_TOPIC) == record.topic and level.isdecimal():
            found[int(level)] += 1
    return found


def queue_files(root: Path, topic: str, *, only: int | None = None, from_end: bool = False,
                ) -> Iterator[tuple[int, int, npt.NDArray[np.void]]]:
    """
    (queue id, queue offset of the first entry, entries) of a topic's queue files, each queue's in
    order or from_end. only: of the queue with this id.
    """
    for name, queue_id, folder in queue_folders(root / QUEUES):
        if name != topic or only not in (None, queue_id):
            continue
        for path in sorted(folder.iterdir(), reverse=from_end):
            raw = files.read(path)
            yield (queue_id, int(path.name) // ENTRY.itemsize,
                   np.frombuffer(raw, ENTRY, count=len(raw) // ENTRY.itemsize))


def delivery_entries(root: Path, topic: str, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """
    (queue id, queue offset, log position, delivery time in ms) of a topic's queues, in order, of
    the records before `stop`.
    """
    for queue_id, base, entries in queue_files(root, topic):
        for number in np.flatnonzero((entries["size"] > 0)
                                     & (entries["size"] != CQ_FILLER_RECORD_SIZE)
                                     & (entries["position"] < stop)):
            one = entries[number]
            yield (queue_id, base + int(number), int(one["position"]), int(one["tag"]))


def queue_ends(root: Path, topic: str, stop: int) -> dict[tuple[str, int], int]:
    """Where each queue of a topic ends that had no record from log position `stop` on."""
    found: dict[tuple[str, int], int] = {}
    for queue_id, base, entries in queue_files(root, topic):
        kept = np.flatnonzero((entries["size"] > 0) & (entries["position"] < stop))
        if len(kept):
            found[topic, queue_id] = base + int(kept[-1]) + 1
        else:                                    # all of it lies behind, or nothing is in it
            found.setdefault((topic, queue_id), base)
    return found
