"""
The key index's files at a start: which one is written further, and which cannot be.

store.md 4.5 (RocketMQ 4.9.8: IndexService). What is taken away here is written again by dispatch.
"""
from __future__ import annotations

import os
import struct
from pathlib import Path

from mqcore.store.files import unlink

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


def mend(folder: Path, below: int) -> int:
    """
    Take away the newest files that cannot be gone on with: those that were begun and hold nothing,
    and those that know of records at or behind log position `below`.

    Returns the log position of the last record that is indexed then, from which indexing goes on;
    0: there is no index. Raises OSError.
    """
    for path in reversed(files(folder)):
        with open(path, "rb") as file:
            raw = file.read(HEADER.size)
        _, _, _, end, _, next_entry = HEADER.unpack(raw.ljust(HEADER.size, b"\0"))
        if next_entry > 1 and end < below:
            return int(end)
        unlink(path)
    return 0
