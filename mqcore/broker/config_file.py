"""
config/*.json of the store directory: RocketMQ's own text, read tolerantly and replaced safely.

store.md 12.1 (RocketMQ 4.9.8: ConfigManager, MixAll, RemotingSerializable). Written: tabs, one
field a line, maps with integer keys bare and on one line. A file is written beside the old one,
flushed, and renamed over it; the old content stays as `.bak`.
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from mqcore.store import files
from mqcore.wire import fastjson

Item = TypeVar("Item")


class ConfigFileError(Exception):
    """A file of the store's config folder cannot be used; the text names it."""


def load(path: Path) -> dict[str, Any] | None:
    """
    The object in `path`, or in `path`.bak when `path` is missing, empty or unreadable as JSON.

    None when there is neither. Raises ConfigFileError when all that is there is unusable.
    """
    value = _read(path)
    if isinstance(value, dict):
        return value
    backup = _read(files.beside(path, ".bak"))
    if isinstance(backup, dict):
        return backup
    trouble = backup or value
    if trouble is None:
        return None
    raise ConfigFileError(trouble)


def is_sound(path: Path) -> bool:
    """Whether the file itself, not its backup, holds an object."""
    return isinstance(_read(path), dict)


def entries(path: Path, table: Any, parse: Callable[[str, Any], Item]) -> dict[str, Item]:
    """
    Each member of an object read from `path`, parsed. Raises ConfigFileError naming the member.

    table  the object; anything else counts as empty
    parse  takes name and value, raises TypeError or ValueError for a value of the wrong kind
    """
    items = {}
    for name, value in (table if isinstance(table, dict) else {}).items():
        try:
            items[str(name)] = parse(str(name), value)
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigFileError(f"{path}: entry {name}: {error}") from error
    return items


def parsed(path: Path, value: Any, parse: Callable[[Any], Item]) -> Item:
    """One value read from `path`, parsed. Raises ConfigFileError."""
    try:
        return parse(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigFileError(f"{path}: {error}") from error


def save(path: Path, value: dict[str, Any]) -> None:
    """Replace the file, keeping its last content as `.bak`. Raises OSError."""
    files.write_atomically(path, pretty(value).encode("utf-8"),
                           keep=files.beside(path, ".bak"))


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


def _read(path: Path) -> dict[str, Any] | str | None:
    """The object; a text that says what is wrong; None when missing or empty."""
    try:
        raw = files.read(path)
    except FileNotFoundError:
        return None
    if not raw.strip():
        return None
    try:
        value = fastjson.loads(raw)
    except fastjson.JsonError as error:
        return f"{path}: not JSON: {error}"
    if not isinstance(value, dict):
        return f"{path}: expected a JSON object"
    return value
