"""
Who wrote to the commit log last, by the file `lock`.

Every stock broker writes `lock` into it when it starts, and so did ours before there were checksums
beside the log. Ours writes another word when log and checksums agree: as long as it stands there,
nobody else can have written to the log.
"""
from __future__ import annotations

import os
from pathlib import Path

from mqcore.store import files

ANYBODY = b"lock"
ALONE = b"ours"


def alone(lock: Path) -> bool:
    """Whether nobody else has started on the store since `mark_alone`. Raises OSError."""
    try:
        return files.read(lock)[:len(ALONE)] == ALONE
    except FileNotFoundError:
        return False


def mark_alone(lock: Path) -> None:
    """From now on the log's checksums are those of all that is in it. Raises OSError."""
    files.write_in_place(lock, ALONE)


def mark_opened(fd: int) -> None:
    """A start of ours, which does not know yet what it finds: `lock` where it was not alone."""
    if os.pread(fd, len(ALONE), 0) != ALONE:
        os.pwrite(fd, ANYBODY, 0)
