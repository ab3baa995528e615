"""The name server's small files: read with a limit, replaced so that one of both stays whole."""
from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from mqcore.wire import fastjson

FILE_BYTES_MAX = 256 << 20             # far beyond what the tables may grow to
_DEPTH_MAX = 32


def read_object(path: Path | None) -> dict[str, Any]:
    """
    The JSON object in a file; a missing or empty one is an empty object, and so is None.

    Raises ValueError, in one line with the file's name and what to do, for anything else.
    """
    if path is None:
        return {}
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}: expected a JSON file that"
                         " this process may read; mend that, or move it away") from error
    if not raw.strip():
        return {}
    try:
        document = fastjson.loads(raw, size_max=FILE_BYTES_MAX, count_max=FILE_BYTES_MAX)
        if not isinstance(document, dict):
            raise ValueError(f"a {type(document).__name__}, expected a JSON object")
        if _is_deep(document, _DEPTH_MAX):
            raise ValueError(f"containers nested deeper than {_DEPTH_MAX}")
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}. Put a sound copy there, or move it away to"
                         " start with an empty table") from error
    return {str(name): value for name, value in document.items()}


def _is_deep(value: Any, left: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return left == 0 or any(_is_deep(item, left - 1) for item in inner)


def write_atomically(path: Path | None, content: bytes) -> None:
    """Replace `path` by `content`, durable when this returns; folders are made as needed.

    Raises OSError; the old file is then still whole.
    """
    if path is None:
        raise OSError(errno.ENOENT, "this user has no home folder: set HOME, or the path of the "
                      "name server's file in its settings")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
