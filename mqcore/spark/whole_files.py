"""Files that are there whole, or not at all, whatever dies; and that survive the machine."""
from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def put(path: Path, content: bytes) -> None:
    """Write a file, in place of one of that name. Raises OSError."""
    with _fresh(path, content) as fresh:
        fresh.replace(path)
    sync_folder(path.parent)


def put_once(path: Path, content: bytes) -> bool:
    """Write a file, unless one of that name is there: then False. Raises OSError."""
    with _fresh(path, content) as fresh:
        try:
            os.link(fresh, path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """What was made in a folder survives the machine."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _fresh(path: Path, content: bytes) -> Iterator[Path]:
    """A file beside it with that content; what is left of it goes."""
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(fresh, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)
