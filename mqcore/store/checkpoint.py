"""
The checkpoint: up to which store time log, queues and index were known to be on disk.

store.md 5 (RocketMQ 4.9.8: StoreCheckpoint). One page, three big-endian i64 in milliseconds.
"""
from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from mqcore.layout import CHECKPOINT_SIZE
from mqcore.store import files

PAGE_SIZE = CHECKPOINT_SIZE
TIMES = struct.Struct(">qqq")


@dataclass(frozen=True)
class Checkpoint:
    """Store times in ms since 1970, 0: unknown."""

    log_time_ms: int = 0
    queues_time_ms: int = 0
    index_time_ms: int = 0

    @property
    def replay_from_ms(self) -> int:
        """Records stored before it need no second dispatch after a crash; 0: all do."""
        return max(0, min(self.log_time_ms, self.queues_time_ms))


def read(path: Path) -> Checkpoint:
    """The checkpoint of a store; all unknown when there is none or it is too short."""
    try:
        raw = files.read(path)
    except FileNotFoundError:
        return Checkpoint()
    return Checkpoint(*TIMES.unpack_from(raw)) if len(raw) >= TIMES.size else Checkpoint()


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write and sync one page in place: it is smaller than what a disk tears. Raises OSError."""
    page = TIMES.pack(checkpoint.log_time_ms, checkpoint.queues_time_ms, checkpoint.index_time_ms)
    files.write_in_place(path, page.ljust(PAGE_SIZE, b"\0"))
