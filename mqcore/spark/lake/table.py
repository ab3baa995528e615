"""
What the three kinds of tables have in common: their files, and one atomic change after the other.

A change is in the table whole, or not at all. A writer's change of number n is there once; a
repetition finds it. A file that no change names is none of the table's. What a change removes lies
there until it is swept, some time later.
"""
from __future__ import annotations

import abc
import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from mqcore.spark.errors import OptionError, SparkSourceError

NOTHING: Final = -1                     # was committed by a writer
TOPIC: Final = "topic"
DAY: Final = "day"                      # of `storeTimestamp`, UTC
DAY_OF: Final = "storeTimestamp"
PREFIX: Final = "mq-"                   # of the names of files that are ours
SUFFIX: Final = ".parquet"
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
TRIES_MAX: Final = 100                  # of a change, while others change the table
PAUSE_S: Final = 0.02


class ChangedMeanwhile(SparkSourceError):
    """Files that were to be replaced are the table's no more."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """
    A file of a table.

    path   below the table's folder, with `/`
    parts  partition column -> its value; None: null
    stats  Delta's statistics of its columns, for who skips files by them
    """

    path: str
    rows: int
    bytes: int
    parts: Mapping[str, str | None] = field(default_factory=dict)
    stats: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Shape:
    """What every file of a table has: its Arrow schema, and the partition columns."""

    schema: Any
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        return ", ".join(f"{one.name} {one.type}" for one in self.schema)


@dataclass(frozen=True, slots=True)
class Change:
    """
    writer, number  whose change it is, and which one; a writer's numbers grow
    remove          paths of files that leave the table
    same_rows       no row comes or goes, only files do
    """

    writer: str
    number: int
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    same_rows: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """A table at one moment; `version` grows with each change."""

    version: int
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)


class Table(abc.ABC):
    """One table in a folder that driver and executors share."""

    kind: str

    def __init__(self, root: Path) -> None:
        self.root = root

    @abc.abstractmethod
    def exists(self) -> bool: ...

    @abc.abstractmethod
    def state(self) -> State:
        """The table as it is now. Raises SparkSourceError when there is none, or it is strange."""

    @abc.abstractmethod
    def parts(self) -> tuple[str, ...]:
        """The partition columns of the table that is there."""

    @abc.abstractmethod
    def committed(self, writer: str) -> int:
        """The last number of a writer; NOTHING without any."""

    @abc.abstractmethod
    def _change(self, change: Change, shape: Shape | None) -> bool:
        """Try once; False: another change came between. Raises ChangedMeanwhile."""

    @abc.abstractmethod
    def kept(self, since_ms: int) -> set[str]:
        """Paths that a reader may need who looked at the table then, or later."""

    @abc.abstractmethod
    def forget(self, before_ms: int) -> int:
        """Shorten the table's history, as far as it ended before then; how much went."""

    def commit(self, change: Change, shape: Shape | None = None) -> bool:
        """
        Put a change into the table; False: it was there already.

        shape  of what is added, for which the table is made when there is none
        Raises ChangedMeanwhile, SparkSourceError.
        """
        if change.same_rows:
            self._check_rows(change)
        for attempt in range(TRIES_MAX):
            if self.exists() and self.committed(change.writer) >= change.number:
                return False
            self._check_files(change)
            if self._change(change, shape):
                return True
            time.sleep(PAUSE_S * min(attempt, 10))
        raise SparkSourceError(f"{self.root}: {TRIES_MAX} tries to change the table failed: others"
                               " change it all the time")

    def _check_files(self, change: Change) -> None:
        for one in change.add:
            if not (self.root / one.path).exists():
                raise SparkSourceError(
                    f"{self.root}: {one.path} was removed before its change came: it waited longer"
                    " than maintenance keeps files that no change names; nothing was changed")

    def _check_rows(self, change: Change) -> None:
        there = {one.path: one.rows for one in self.state().files}
        fits(there, change.remove, self.root)
        before = sum(there[path] for path in change.remove)
        after = sum(one.rows for one in change.add)
        if before != after:
            raise SparkSourceError(f"{self.root}: {after} rows cannot take the place of {before}:"
                                   " nothing was changed")

    # -- files -------------------------------------------------------------------------------------

    def discard(self, paths: Iterable[str]) -> list[str]:
        """Remove files that no change names; what was removed."""
        live = {one.path for one in self.state().files} if self.exists() else set()
        gone = []
        for path in paths:
            if path not in live:
                (self.root / path).unlink(missing_ok=True)
                gone.append(path)
        return gone

    def orphans(self, before_ms: int) -> list[str]:
        """Files that were last written before then, and that nobody needs who looked since."""
        found = [path for path, written_ms in files_below(self.root) if written_ms < before_ms]
        needed = self.kept(before_ms) if found else set()       # asked last: commits come between
        return [path for path in found if path not in needed]


    def last_write_ms(self) -> int:
        """When a file of the table was last written, in milliseconds; 0: there is none."""
        last = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    last = max(last, Path(folder, name).stat().st_mtime_ns // 1_000_000)
        return last


def files_below(root: Path) -> Iterator[tuple[str, int]]:
    """Files that writers made: path, and when they were last written, in milliseconds."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        for name in names:
            if name.startswith(PREFIX) and name.endswith(SUFFIX):
                path = Path(folder, name)
                try:
                    written_ms = path.stat().st_mtime_ns // 1_000_000
                except FileNotFoundError:           # its writer gave it up meanwhile
                    continue
                yield path.relative_to(root).as_posix(), written_ms


def fits(known: Collection[str], remove: Collection[str], root: Path) -> None:
    """Raises ChangedMeanwhile unless all that is to be removed is there."""
    missing = [path for path in remove if path not in known]
    if missing:
        raise ChangedMeanwhile(f"{root}: {missing[0]} is no more in the table: another maintenance"
                               " ran; run this one again")


def checked(shape: Shape, known: Shape, root: Path) -> None:
    """Raises OptionError unless files of one shape go into a table of another."""
    if known.parts != shape.parts:
        raise OptionError(f"{root}: the table is partitioned by {', '.join(known.parts) or 'none'},"
                          f" not by {', '.join(shape.parts) or 'none'}: give partitionBy alike")
    names = [(one.name, one.type) for one in shape.schema]
    if names != [(one.name, one.type) for one in known.schema]:
        raise OptionError(f"{root}: the table has the columns {known.text}: the frame has"
                          f" {shape.text}")


def folder_of(parts: Mapping[str, str | None]) -> str:
    """`topic=orders/day=2026-11-23`, in Hive's writing."""
    return "/".join(f"{name}={NO_VALUE if value is None else quote(value, safe='')}"
                    for name, value in parts.items())


def local_folder(text: str, what: str = "path") -> Path:
    """The folder that an option names: a path, or a `file:` URL. Raises OptionError."""
    url = urlsplit(text)
    if url.scheme not in ("", "file"):
        raise OptionError(f"{what} {text!r}: expected a folder that driver and executors share, as"
                          " /mnt/lake")
    return Path(unquote(url.path) if url.scheme else text).absolute()
