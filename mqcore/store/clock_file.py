"""
The file `clock` of a store: what a run knows of its clock, for the next run (store_clock.pxd, T11).

Stock brokers pass over it. A store without it, or with one that cannot be read, has a clock that
begins anew: what the wall clock says of the time before is believed a day later. A checksum of all
other members tells of a bit that has changed.
"""
from __future__ import annotations

import json
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

from mqcore.store import files
from mqcore.store.last_run import boot_id

NAME = "clock"
VERSION = 2
BYTES_MAX = 1 << 16
KNOTS_MAX, WALLS_MAX = 64, 32
TIME_MAX_MS = 1 << 53
SPEEDS = (1, 8)
AHEAD_MAX_MS = 86_400_000


class ClockFileError(ValueError):
    """A file that is none of ours, or was changed; the text says what was expected."""


def read(path: Path) -> tuple[dict[str, Any], str] | None:
    """The state of a run's clock and the boot of its machine; None: no file. Raises
    ClockFileError, OSError."""
    try:
        raw = files.read(path)
    except FileNotFoundError:
        return None
    try:
        if len(raw) > BYTES_MAX:
            raise ClockFileError(f"expected at most {BYTES_MAX} bytes, not {len(raw)}")
        value = json.loads(raw)
        if not isinstance(value, dict) or value.get("version") != VERSION:
            raise ClockFileError(f"expected an object of version {VERSION}")
        told = value.pop("crc32", None)
        if told != _checksum(value):
            raise ClockFileError(f"crc32: expected {_checksum(value)} for its other members, not "
                                 f"{told!r}")
        return _state(value), _text(value, "boot")
    except (ValueError, RecursionError) as error:
        raise ClockFileError(f"{path}: {error}") from None


def write(path: Path, state: dict[str, Any]) -> None:
    """Keep the state of this run's clock. Raises OSError."""
    value = {"version": VERSION, "boot": boot_id(), **state}
    files.write_atomically(path, json.dumps({**value, "crc32": _checksum(value)}).encode())


def _checksum(value: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def ahead_ms(state: dict[str, Any]) -> int:
    """How far the store clock was ahead of the wall clock."""
    steady, store, _, slowed = state["knots"][-1]
    return int(store + (state["steady"] - steady) // slowed - state["wall"])


def caught(state: dict[str, Any]) -> dict[str, Any]:
    """
    The state with a store clock that shows what the wall clock showed. The log's last record moves
    it on where records are younger: nothing else was stamped with it.
    """
    wall, steady, (before, *late) = state["wall"], state["steady"], state["late"]
    return {**state, "knots": [[steady, wall, wall, 1]], "late": [min(before, 1), *late],
            "doubtedSince": 0}


def is_of_this_boot(state: dict[str, Any], boot: str, steady_ms: int) -> bool:
    """Whether the steady clock has gone on since; a container may have one of its own."""
    return bool(boot) and boot == boot_id() and state["steady"] <= steady_ms


def _state(value: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = {
        name: _numbers([value.get(name)], 1, name)[0]
        for name in ("wall", "steady", "doubtedSince", "stoodSince")}
    for name, rows_max, width in (("knots", KNOTS_MAX, 4), ("walls", WALLS_MAX, 3)):
        rows = value.get(name)
        if not isinstance(rows, list) or not 1 <= len(rows) <= rows_max:
            raise ClockFileError(f"{name}: expected 1 to {rows_max} rows")
        state[name] = [_numbers(row, width, name) for row in rows]
        if any(one[0] > two[0] for one, two in pairwise([*state[name], [state["steady"]]])):
            raise ClockFileError(f"{name}: expected rows in the order of their times")
    if any(one[1] > two[1] for one, two in pairwise(state["knots"])):
        raise ClockFileError("knots: expected store times that never go back")
    if any(row[3] not in SPEEDS for row in state["knots"]):
        raise ClockFileError(f"knots: expected a speed of {SPEEDS}")
    if any(row[2] < 0 for row in state["walls"]):
        raise ClockFileError("walls: expected no spread below 0")
    for name, rows_name in (("late", "knots"), ("old", "walls")):
        state[name] = _numbers(value.get(name), 3, name)
        if not 0 <= state[name][0] <= len(state[rows_name]):
            raise ClockFileError(f"{name}: expected at most {len(state[rows_name])} rows before it")
    for name in ("doubtedSince", "stoodSince"):
        if state[name] > state["steady"]:
            raise ClockFileError(f"{name}: expected at most {state['steady']}, the steady clock's "
                                 "time")
    return state


def _numbers(value: object, count: int, name: str) -> list[int]:
    if not isinstance(value, list) or len(value) != count or not all(
            type(one) is int and -TIME_MAX_MS < one < TIME_MAX_MS for one in value):
        raise ClockFileError(f"{name}: expected {count} whole numbers below 2**53")
    return value


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise ClockFileError(f"{name}: expected a text")
    return text
