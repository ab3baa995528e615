"""
A table of Parquet files with a log of its own: `_mqcore_log/00000000000000000007.json` is change 7.

A change is written whole under another name, then linked to its own, which succeeds once.
Every 32nd change is followed by a summary of all before it, so that a look at the table reads few
files.
"""
from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from mqcore.spark.errors import SparkSourceError
from mqcore.spark.lake.table import (
    NOTHING,
    Change,
    DataFile,
    Shape,
    State,
    Table,
    checked,
    fits,
)
from mqcore.spark.whole_files import put_once

LOG: Final = "_mqcore_log"
VERSION: Final = 1
SUMMARY_EVERY: Final = 32
DIGITS: Final = 20


@dataclass
class Known:
    """All that the log says; `gone`: path -> when it left, in milliseconds."""

    version: int = NOTHING
    files: dict[str, DataFile] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    writers: dict[str, int] = field(default_factory=dict)
    shape: Shape | None = None


class LogTable(Table):
    kind = "parquet"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.log = root / LOG

    def exists(self) -> bool:
        return self._known().version != NOTHING

    def state(self) -> State:
        known = self._known()
        if known.version == NOTHING:
            raise SparkSourceError(f"{self.root}: there is no table here: {LOG} is not there")
        return State(known.version, tuple(known.files.values()))

    def parts(self) -> tuple[str, ...]:
        shape = self._known().shape
        return () if shape is None else shape.parts

    def committed(self, writer: str) -> int:
        return self._known().writers.get(writer, NOTHING)

    def kept(self, since_ms: int) -> set[str]:
        known = self._known()
        return set(known.files) | {path for path, at_ms in known.gone.items() if at_ms >= since_ms}

    def forget(self, before_ms: int) -> int:
        """Changes below a summary that was made before then, and what a killed writer left."""
        for path in self.log.glob(".*.json.*"):
            if path.stat().st_mtime_ns // 1_000_000 < before_ms:
                path.unlink(missing_ok=True)
        summaries = [version for version, is_summary in self._names() if is_summary
                     and self._path(version, True).stat().st_mtime_ns // 1_000_000 < before_ms]
        if not summaries:
            return 0
        old = [(version, is_summary) for version, is_summary in self._names()
               if version <= max(summaries) and (version, is_summary) != (max(summaries), True)]
        for version, is_summary in old:
            self._path(version, is_summary).unlink(missing_ok=True)
        return len(old)

    def _change(self, change: Change, shape: Shape | None) -> bool:
        known = self._known()
        if known.writers.get(change.writer, NOTHING) >= change.number:
            return False                # since the caller's look
        if known.shape is not None and shape is not None:
            checked(shape, known.shape, self.root)
        fits(known.files, change.remove, self.root)
        self.log.mkdir(parents=True, exist_ok=True)
        said = {
            "v": VERSION, "at": time.time_ns() // 1_000_000, "writer": change.writer,
            "number": change.number, "sameRows": change.same_rows,
            "add": [_said(one) for one in change.add], "remove": list(change.remove)}
        if known.shape is None:
            assert shape is not None
            said["shape"] = _shape_said(shape)
        if not put_once(self._path(known.version + 1), _encoded(said)):
            return False
        if not self._holds(change, known.version + 1):
            return False
        if (known.version + 1) % SUMMARY_EVERY == SUMMARY_EVERY - 1:
            self._summarize()
        return True

    def _holds(self, change: Change, version: int) -> bool:
        """
        Whether a change that was written is the table's: its number may have been free because a
        summary took the place of all changes up to it while its writer slept.
        """
        if not any(is_summary and one >= version for one, is_summary in self._names()):
            return True
        known = self._known()
        if known.writers.get(change.writer, NOTHING) >= change.number and all(
                one.path in known.files or one.path in known.gone for one in change.add
        ) and not any(path in known.files for path in change.remove):
            return True
        self._path(version).unlink(missing_ok=True)
        return False

    # -- the log's files ---------------------------------------------------------------------------

    def _path(self, version: int, is_summary: bool = False) -> Path:
        return self.log / f"{version:0{DIGITS}d}{'.summary' if is_summary else ''}.json"

    def _names(self) -> list[tuple[int, bool]]:
        """Version, and whether it is a summary, in their order."""
        found = []
        for path in self.log.glob("*.json"):
            stem, _, kind = path.name.removesuffix(".json").partition(".")
            if stem.isdigit() and kind in ("", "summary"):
                found.append((int(stem), kind == "summary"))
        return sorted(found)

    def _known(self) -> Known:
        while True:
            names = self._names()
            summaries = [version for version, is_summary in names if is_summary]
            known = Known()
            try:
                if summaries:
                    known = _from_summary(self._read(self._path(max(summaries), True)))
                for version, is_summary in names:
                    if not is_summary and version > known.version:
                        self._apply(known, version)
            except FileNotFoundError:
                continue                # a later summary has replaced it since the look
            return known

    def _apply(self, known: Known, version: int) -> None:
        path = self._path(version)
        said = self._read(path)
        if version != known.version + 1:
            raise SparkSourceError(f"{path}: version {known.version + 1} is missing before it")
        known.version = version
        known.writers[said["writer"]] = said["number"]
        for name in said["remove"]:
            known.files.pop(name, None)
            known.gone[name] = said["at"]
        for one in said["add"]:
            known.files[one["path"]] = DataFile(**one)
        if "shape" in said:
            known.shape = _shape_of(said["shape"])

    def _read(self, path: Path) -> Any:
        try:
            said = json.loads(path.read_bytes())
            version = said["v"]
        except (ValueError, KeyError, TypeError) as error:
            raise SparkSourceError(f"{path}: is no change of a table: {error}") from None
        if version != VERSION:
            raise SparkSourceError(f"{path}: is of version {version!r}, this reads {VERSION}: use"
                                   " the mqcore that wrote it, or a later one")
        return said

    def _summarize(self) -> None:
        known = self._known()
        assert known.shape is not None
        there = {path: at_ms for path, at_ms in known.gone.items() if (self.root / path).exists()}
        put_once(self._path(known.version, True), _encoded({
            "v": VERSION, "version": known.version, "shape": _shape_said(known.shape),
            "writers": known.writers, "gone": there,
            "files": [_said(one) for one in known.files.values()]}))


def _encoded(said: dict[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode()


def _said(one: DataFile) -> dict[str, Any]:
    said = asdict(one)
    del said["stats"]                   # of Delta alone
    return said


def _from_summary(said: Any) -> Known:
    return Known(said["version"], {one["path"]: DataFile(**one) for one in said["files"]},
                 said["gone"], said["writers"], _shape_of(said["shape"]))


def _shape_said(shape: Shape) -> dict[str, Any]:
    return {"schema": bytes(shape.schema.serialize()).hex(), "columns": shape.text,
            "parts": list(shape.parts)}


def _shape_of(said: dict[str, Any]) -> Shape:
    import pyarrow as pa

    return Shape(pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(said["schema"]))),
                 tuple(said["parts"]))
