"""
Where a stream began: kept in a folder of the query's, written once.

Spark asks for the first offsets again after a crash before the first batch was done, and keeps them
nowhere itself: what "latest" meant at the first time would be lost.
"""
from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.topics.catalog import Offsets
from mqcore.spark.topics.positions import as_checkpoint, from_checkpoint
from mqcore.spark.whole_files import put_once

FILE = "initial-offsets.json"


def first_offsets(folder: str | None) -> Offsets | None:
    """What was kept; None: nothing. Raises SparkSourceError."""
    if folder is None:
        return None
    path = _path(folder)
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SparkSourceError(f"stateDir: {path} cannot be read: {error}") from None
    return from_checkpoint(said)


def keep_first_offsets(folder: str | None, offsets: Offsets) -> Offsets:
    """Keep them, unless others were kept before: those are returned then."""
    if folder is None:
        return offsets
    path = _path(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put_once(path, json.dumps(as_checkpoint(offsets)).encode())
    except OSError as error:
        raise SparkSourceError(f"stateDir: {path} cannot be written: {error}") from None
    return first_offsets(folder) or offsets


def _path(folder: str) -> Path:
    parts = urlsplit(folder)
    if parts.scheme not in ("", "file"):
        raise OptionError(f"stateDir {folder!r}: expected a folder that the driver can write")
    return Path(unquote(parts.path) if parts.scheme else folder) / FILE
