"""Whether a file has changed since somebody looked at it."""
from __future__ import annotations

import os

Stamp = tuple[int, ...]


def stamp(path: str | os.PathLike[str]) -> Stamp:
    """Other numbers after each change of a file, or of the reason why nobody can look at it."""
    try:
        status = os.stat(path)
    except OSError as error:
        return (error.errno or 0,)
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
