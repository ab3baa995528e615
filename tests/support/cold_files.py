"""Makes the files of a running broker's store cold: on the disk, and not in the page cache."""
from __future__ import annotations

import os
import shutil
from pathlib import Path


def make_cold(store: Path) -> None:
    """
    Put a fresh copy, of which nothing is in memory, in the place of each commit log file but the
    last two, and of each consume queue file.

    The kernel keeps pages that a process has mapped, and the writer has all that it wrote; nobody
    has mapped the copies. Files that are written to (the last segment, the last file of a queue)
    are only dropped as far as the kernel lets go of them.
    """
    segments = sorted((store / "commitlog").iterdir())
    for path in segments[:-2]:
        copy = path.with_suffix(".copy")
        shutil.copyfile(path, copy)
        _drop(copy)
        copy.rename(path)
    for path in (store / "consumequeue").rglob("0*"):
        if path.is_file():
            _drop(path)


def _drop(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
