"""
config/*.json of the store directory: RocketMQ's own text, read tolerantly and replaced safely.

store.md 12.1 (RocketMQ 4.9.8: ConfigManager, MixAll, RemotingSerializable). Written: tabs, one
field a line, maps with integer keys bare and on one line. A file is written beside the old one,
flushed, and renamed over it; the old content stays as `.bak`. Members that we do not know survive:
a store of a newer broker has them, and goes back to it.
"""
from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from mqcore.store import files
from mqcore.wire import fastjson

DELAY_FILE = "delayOffset.json"    # how far delayed messages are delivered, by level
FILE_BYTES_MAX = 2 << 30           # of one table; the tables' own limits lie below
UNKNOWN_DEPTH_MAX = 32             # containers in containers, in members that we do not know

Item = TypeVar("Item")
_log = logging.getLogger(__name__)


class ConfigFileError(Exception):
    """A file of the config folder cannot be used; the text names it, and says what to do."""


@dataclass(slots=True, frozen=True)
class Found(Generic[Item]):
    """What a file or its backup holds."""

    path: Path                     # of the one that was used
    raw: bytes
    value: Item


def as_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in a file's bytes. Raises JsonError."""
    value = fastjson.loads(raw, size_max=FILE_BYTES_MAX, count_max=FILE_BYTES_MAX)
    if not isinstance(value, dict):
        raise fastjson.JsonError(f"a {type(value).__name__}, expected a JSON object")
    return value


def find(path: Path, decode: Callable[[bytes], Item]) -> Found[Item] | None:
    """
    What `path` holds, or `path`.bak when `path` is missing, empty or nothing that `decode` reads.

    decode  raises JsonError
    None when there is neither. Raises ConfigFileError when what is there is unusable.
    """
    backup = files.beside(path, ".bak")
    found, trouble = _read(path, decode)
    if found is not None:
        return found
    kept, backup_trouble = _read(backup, decode)
    if kept is not None:
        if trouble:
            _log.warning("%s: %s is used in its place, changes since then are lost", trouble,
                         backup.name)
        return kept
    if not trouble and not backup_trouble:
        return None
    raise ConfigFileError(
        "; ".join(text for text in (trouble, backup_trouble) if text)
        + f". Put a sound copy of {path.name} there, or have `mqcore store repair` take out what "
          "cannot be read; without the file and its .bak a start begins with an empty table")


def load(path: Path) -> dict[str, Any] | None:
    """The object in a file or its backup, as `find` says."""
    found = find(path, as_object)
    return None if found is None else found.value


def is_sound(path: Path) -> bool:
    """Whether the file itself, not its backup, holds an object."""
    return _read(path, as_object)[0] is not None


def entries(path: Path, table: Any, parse: Callable[[str, Any], Item]) -> dict[str, Item]:
    """
    Each member of an object read from `path`, parsed. Raises ConfigFileError naming the member.

    table  the object; None counts as empty
    parse  takes name and value, raises TypeError or ValueError for a value of the wrong kind
    """
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise ConfigFileError(f"{path}: a table is {table!r:.40}, expected an object")
    return {str(name): parsed(path, value, partial(parse, str(name)), f"entry {str(name)!r:.160}: ")
            for name, value in table.items()}


def parsed(path: Path, value: Any, parse: Callable[[Any], Item], where: str = "") -> Item:
    """One value read from `path`, parsed. Raises ConfigFileError."""
    try:
        return parse(value)
    except KeyError as error:
        raise ConfigFileError(f"{path}: {where}{error} is missing") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigFileError(f"{path}: {where}{error}") from error


def unknown_members(path: Path, value: Any, known: Collection[str]) -> dict[str, Any]:
    """
    The members of an object that we do not know, to be written back as they are. Raises
    ConfigFileError when they could not be: nested too deep.
    """
    try:
        return more_of(value, known)
    except ValueError as error:
        raise ConfigFileError(f"{path}: {error}") from error


def more_of(value: Any, known: Collection[str]) -> dict[str, Any]:
    """The same of any object. Raises ValueError."""
    if not isinstance(value, dict):
        return {}
    found = {str(name): member for name, member in value.items() if str(name) not in known}
    if any(_is_deep(member, UNKNOWN_DEPTH_MAX) for member in found.values()):
        raise ValueError(f"containers nested deeper than {UNKNOWN_DEPTH_MAX}")
    return found


def merged(members: dict[str, Any], unknown: dict[str, Any] | None) -> dict[str, Any]:
    """An object's members with those that we do not know, in alphabetical order as in stock."""
    if not unknown:
        return members
    both = {**unknown, **members}
    return {name: both[name] for name in sorted(both)}


def save(path: Path, value: dict[str, Any]) -> None:
    """Replace the file by an object, as `save_bytes` does. Raises OSError."""
    save_bytes(path, pretty(value).encode("utf-8"))


def save_bytes(path: Path, raw: bytes | Sequence[bytes]) -> None:
    """
    Replace the file, keeping its last content as `.bak`; raw: the text, which may be in pieces.
    Raises OSError, also for what `load` would not take.
    """
    if (len(raw) if isinstance(raw, bytes) else sum(map(len, raw))) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    files.write_atomically(path, raw, keep=files.beside(path, ".bak"))


def pretty(value: Any, depth: int = 0) -> str:
    """Text in fastjson's pretty form."""
    tabs = "\t" * depth
    if isinstance(value, dict) and value:
        if all(isinstance(key, int) for key in value):
            inner = ",".join(f"{key}:{pretty(value[key], depth + 1)}" for key in value)
            return f"{{{inner}\n{tabs}}}"
        lines = [
            f"{tabs}\t{fastjson.quote(str(key))}:{pretty(item, depth + 1)}"
            for key, item in value.items() if item is not None
        ]
        return "{\n" + ",\n".join(lines) + f"\n{tabs}}}"
    return fastjson.dumps(value).decode("utf-8")


def _read(path: Path, decode: Callable[[bytes], Item]) -> tuple[Found[Item] | None, str]:
    """
    (what the file holds, "") or (None, what is wrong); (None, "") when missing or empty. Raises
    ConfigFileError when the machine keeps the file from us: an older copy is no answer to that.
    """
    try:
        raw = files.read(path)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        raise ConfigFileError(
            f"{path}: cannot be read: {error.strerror}: expected a JSON file that this process may"
            " read; mend that, or move it away") from error
    if not raw.strip():
        return None, ""
    try:
        return Found(path, raw, decode(raw)), ""
    except fastjson.JsonError as error:
        return None, f"{path}: not JSON: {error}"


def _is_deep(value: Any, left: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return left == 0 or any(_is_deep(item, left - 1) for item in inner)
