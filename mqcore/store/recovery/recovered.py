"""What a start finds of a commit log: its segments, and what recovery says in the end."""
from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from mqcore.store import files as disk
from mqcore.store.recovery.errors import DamagedStoreError

if TYPE_CHECKING:
    from mqcore.store.log.folders import LogFolders


@dataclass
class Recovered:
    """What recovery found; positions in bytes."""

    first: int                 # start of the first segment
    end: int                   # end of the last whole record
    dispatch_from: int         # records from here on are dispatched (again)
    records_checked: int
    queues: int
    torn: str                  # why reading ended at `end`; empty: nothing lies behind it
    last_store_time_ms: int
    as_left: bool = False      # the last clean stop was ours, and nobody has written since
    foreign_checksums: list[str] = field(default_factory=list)     # files that were set aside


def segments(folders: LogFolders, segment_size: int) -> list[int]:
    """
    Start positions of the log's segments in its LogFolders, ascending. Raises DamagedStoreError for
    a foreign file, a wrong length, a gap, or one segment in two folders.
    """
    starts = []
    for entry in folders.entries():
        if not (entry.name.isdigit() and len(entry.name) == 20):
            raise DamagedStoreError(f"{entry.path}: not a commit log segment (20 digits expected)")
        size = entry.stat().st_size
        if size == 0:
            disk.unlink(Path(entry.path))          # made, not yet given its length, when all ended
            continue
        if size != segment_size:
            raise DamagedStoreError(
                f"{entry.path}: {size} bytes, expected {segment_size} (store.segment_size_bytes)")
        starts.append(int(entry.name))
    for before, after in pairwise(starts):
        if after == before:
            raise DamagedStoreError(f"{folders}: segment {after:020d} is there twice")
        if after != before + segment_size:
            raise DamagedStoreError(f"{folders}: no segment between {before:020d} and {after:020d}")
    return starts
