"""A folder in memory, for stores that are many and small: no disk is waited for."""
from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

MEMORY = "/dev/shm"


@contextlib.contextmanager
def memory_folder(what: str) -> Iterator[Path]:
    """An empty folder for the length of the block; what: part of its name."""
    folder = Path(tempfile.mkdtemp(prefix=f"mqcore-{what}-", dir=MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
