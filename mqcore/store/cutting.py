"""
Cuts a store at rest at a log position, a record boundary: the log and its checksums end there,
queues and index say nothing of what lay behind.
"""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import numpy as np

from mqcore.layout import CQ_FILLER_RECORD_SIZE, LIVES_SEAL
from mqcore.store import checkpoint, files
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.index import files as index_files
from mqcore.store.log.folders import LogFolders
from mqcore.store.paths import RESTARTS_FILE, queue_folders
from mqcore.store.recovery import queue_ends
from mqcore.store.verify.scan import LogScan
from mqcore.wire.codes import LIVES_TOPIC
from mqcore.wire.records import decode_record

ENTRY: Final = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")])
SUM: Final = np.dtype([("end", ">u4"), ("crc", ">u4")])
QUEUES: Final = "consumequeue"
CONFIG: Final = "config"
INDEX: Final = "index"


def cut_log(log: LogFolders, segment_bytes: int, cut: int) -> None:
    """Nothing of the log behind the cut, nor of its checksums. Raises OSError."""
    for start, path in reversed(log.segments()):
        if start >= cut:
            files.unlink(path)
        elif cut < start + segment_bytes:
            files.make_own(path)
            _zero_from(path, cut - start)
    for path in log.checksums():
        start = int(path.name)
        if start >= cut:
            files.unlink(path)
        else:
            _cut_sums(path, min(cut - start, segment_bytes))


def _cut_sums(path: Path, end: int) -> None:
    raw = files.read(path)
    sums = np.frombuffer(raw, SUM, count=len(raw) // SUM.itemsize)
    within = (sums["end"] > 0) & (sums["end"] <= end)
    count = len(sums) if within.all() else int(np.argmin(within))
    if count < len(sums) and sums["end"][count] > end and sums["crc"][count] == 0:
        _put_sum(path, count, end)               # of many records: nothing else is known
        count += 1
    if count * SUM.itemsize < len(raw):
        with files.opened(path, os.O_WRONLY) as fd:
            files.calls.truncate(fd, count * SUM.itemsize)


def _put_sum(path: Path, number: int, end: int) -> None:
    with files.opened(path, os.O_WRONLY) as fd:
        files.write_all(fd, np.array([(end, 0)], SUM).tobytes(), number * SUM.itemsize)


def ends_lives(root: Path, log: LogFolders, segment_bytes: int, cut: int, end: int) -> bool:
    """
    Whether lives of queues end in what is cut, by a marker (queue/lives.pxd) or by a removal that
    this broker made by itself: the log that is left has records of queues whose files are gone.
    """
    scan = LogScan(log.text(), [(start, segment_bytes) for start, _ in log.segments()], start=cut,
                   stop=end, topic=LIVES_TOPIC.encode())
    while (raw := scan.next()) is not None:
        if decode_record(raw).prepared_transaction_offset == LIVES_SEAL:
            return True
    return any(position > cut for position in _own_removals(root))


def _own_removals(root: Path) -> list[int]:
    """Where the lives of queues begin that a slave removed by itself, or an earlier version."""
    try:
        kept = json.loads(files.read(root / CONFIG / RESTARTS_FILE))["restarts"]
        return [int(position) for position in kept.values()]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []                                # a start says what is wrong with it


def begin_anew(root: Path) -> None:
    """
    Before a log is cut in which lives end: the next start writes all queues anew from the log that
    is left. Queues that this broker has removed by itself come back, too. Raises OSError.
    """
    files.write_atomically(root / "abort", b"")
    checkpoint.write(root / "checkpoint", Checkpoint())
    for name in (RESTARTS_FILE, f"{RESTARTS_FILE}.bak", queue_ends.NAME):
        if (root / CONFIG / name).exists():
            files.unlink(root / CONFIG / name)


def cut_queues(root: Path, cut: int) -> int:
    """Entries of records behind the cut go; how many that were. Raises OSError."""
    return sum(_cut_queue(folder, cut) for _, _, folder in queue_folders(root / QUEUES))


def _cut_queue(folder: Path, cut: int) -> int:
    """One queue: its files from the newest to the first that keeps an entry."""
    gone = 0
    for path in sorted(folder.iterdir(), reverse=True):
        raw = files.read(path)
        entries = np.frombuffer(raw, ENTRY, count=len(raw) // ENTRY.itemsize)
        real = entries["size"] > 0
        filler = entries["size"] == CQ_FILLER_RECORD_SIZE
        within = real & (filler | (entries["position"] + entries["size"].astype(np.int64) <= cut))
        kept = len(entries) if within.all() else int(np.argmin(within))
        gone += int(np.count_nonzero(real[kept:]))
        if kept == 0 or bool(filler[:kept].all()):
            files.unlink(path)
            continue
        if kept < len(entries) and raw[kept * ENTRY.itemsize:].strip(b"\0"):
            _zero_from(path, kept * ENTRY.itemsize)
        break
    return gone


def cut_index(root: Path, cut: int) -> None:
    """
    Index files that know of records behind the cut go, with all later ones, and those that hold
    nothing: the next start writes them anew from the log. Raises OSError.
    """
    ends = index_files.ends(root / INDEX)
    first = next((name for name, end in ends if end >= cut), None)
    for path in index_files.files(root / INDEX):
        if (first is not None and path.name >= first) or not dict(ends).get(path.name):
            files.unlink(path)


def _zero_from(path: Path, offset: int) -> None:
    """Zeros from `offset` on. It is never shorter meanwhile: a kill leaves no damaged file."""
    with files.opened(path, os.O_WRONLY) as fd:
        files.calls.wipe(fd, offset, os.fstat(fd).st_size - offset)
        files.calls.sync(fd)
