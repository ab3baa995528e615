"""
Where a store keeps what it had beyond its new master's log: files of records in STORE/overtaken,
each with a word of what is in it (rejoin.py writes them).
"""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from mqcore.store import files

FOLDER: Final = "overtaken"
ROOM_LEFT_BYTES: Final = 16 << 20    # on the disk, beside a side file


def side_file(store: Path, position: int, end: int) -> Path:
    """That of the log from `position` up to `end`, bytes."""
    return store / FOLDER / f"{position:020d}-{end:020d}.log"


def word_of(side_file: Path) -> Path:
    """What is in it: JSON."""
    return side_file.with_suffix(".json")


def room_for(store: Path, size: int) -> bool:
    """Whether the disk has room for a side file of `size` bytes. Raises OSError."""
    found = os.statvfs(store)
    return found.f_bavail * found.f_frsize >= size + ROOM_LEFT_BYTES


def overtaken_messages(store: Path) -> int:
    """How many messages the side files of a store keep. Raises OSError."""
    return sum(_messages_in(path) for path in (store / FOLDER).glob("*.json"))


def _messages_in(word: Path) -> int:
    try:
        found = json.loads(files.read(word))
    except ValueError:                           # somebody else's
        return 0
    count = found.get("messages") if isinstance(found, dict) else None
    return count if isinstance(count, int) else 0
