"""
The key index's files at a start: which one is written further, and which cannot be.

store.md 4.5 (RocketMQ 4.9.8: IndexService). What is taken away here is written again by dispatch.
"""
from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from mqcore.store.files import named, unlink

HEADER = struct.Struct(">qqqqii")         # times and positions, slots used, next entry


def files(folder: Path) -> list[Path]:
    """Index files, the oldest first."""
    if not folder.is_dir():
        return []
    names = sorted(entry.name for entry in os.scandir(folder) if entry.name.isdigit())
    return [folder / name for name in names]


def newest(folder: Path) -> Path | None:
    """The file that is written further."""
    found = files(folder)
    return found[-1] if found else None


def ends(folder: Path) -> list[tuple[str, int]]:
    """(name, log position of the last record) of each file, the oldest first. Raises OSError."""
    return [(path.name, _header(path)[0]) for path in files(folder)]


def mend(folder: Path, below: int, *, known: Iterable[tuple[str, int]] = (), first: int = 0,
         unchanged_ns: int = 0, indexed_to: int = 0) -> int:
    """
    Take away the newest files that cannot be gone on with: those that were begun and hold nothing,
    those that know of records at or behind log position `below`, all behind one that is lost.

    known: files that were there, as from `ends`; those that lie before `first`, the log's begin,
    may have been trimmed. unchanged_ns: a file modified later is not ours any more, 0: all are.
    indexed_to: when nothing is lost, all below this log position is known to be indexed; records
    need not have keys. Returns the log position from which indexing goes on; 0: there is no index.
    Raises OSError.
    """
    there = files(folder)
    names = {path.name for path in there}
    lost = min((name for name, end in known if end >= first and name not in names), default=None)
    changed = min((path.name for path in there
                   if unchanged_ns and path.stat().st_mtime_ns > unchanged_ns), default=None)
    whole = lost is None and changed is None
    for path in reversed(there):
        end, next_entry = _header(path)
        if next_entry > 1 and end < below and not (lost is not None and path.name > lost) and not (
                changed is not None and path.name >= changed):
            return max(end, indexed_to) if whole else end
        whole = whole and next_entry <= 1
        unlink(path)
    return indexed_to if whole else 0


def _header(path: Path) -> tuple[int, int]:
    """(log position of the last record, number of the next entry)."""
    with named(path), path.open("rb") as file:
        raw = file.read(HEADER.size)
    _, _, _, end, _, next_entry = HEADER.unpack(raw.ljust(HEADER.size, b"\0"))
    return int(end), int(next_entry)
