"""
Which dead letters were sent again: a folder of one group, with a file for each run.

A run's file is there, whole, before its first message is sent, and its mark after the last was
stored. Only one job works on a ledger at a time.
"""
from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.whole_files import put

VERSION: Final = 1
HEAD: Final = "ledger.json"
LOCK: Final = "lock"


@dataclass(frozen=True)
class Run:
    """`identity` of its messages; `is_done`: all of them are stored."""

    number: int
    path: Path
    identity: str
    is_done: bool

    def table(self) -> Any:
        """A pyarrow.Table of what is sent, in its order."""
        from pyarrow import parquet

        return parquet.read_table(self.path)


class Ledger:
    """The runs of one group on one cluster."""

    def __init__(self, folder: Path, group: str, *, write: bool) -> None:
        """
        write  make it, if it is not there

        Raises OptionError for a ledger of another group.
        """
        self.folder = folder
        head = folder / HEAD
        if write and not head.exists():
            folder.mkdir(parents=True, exist_ok=True)
            put(head, json.dumps({"v": VERSION, "group": group, "id": uuid.uuid4().hex}).encode())
        try:
            said = json.loads(head.read_bytes())
        except FileNotFoundError:
            said = {"v": VERSION, "group": group, "id": ""}
        except ValueError as error:
            raise SparkSourceError(f"{head} is damaged: {error}") from None
        if said.get("v") != VERSION or said.get("group") != group:
            raise OptionError(f"{folder} is the ledger of group {said.get('group')}, version"
                              f" {said.get('v')}: give another folder for group {group}")
        self._id = said["id"]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Raises SparkSourceError while another job is at it."""
        with (self.folder / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SparkSourceError(f"another job works with {self.folder}: wait for its end"
                                       ) from None
            yield

    def runs(self) -> list[Run]:
        """In their order."""
        return [self._run(int(path.stem.removeprefix("run-")))
                for path in sorted(self.folder.glob("run-*.parquet"))]

    def begin(self, table: Any) -> Run:
        """Write down what will be sent."""
        from pyarrow import BufferOutputStream, parquet

        run = self._run(len(self.runs()) + 1)
        sink = BufferOutputStream()
        parquet.write_table(table, sink)
        put(run.path, sink.getvalue().to_pybytes())
        return run

    def finish(self, run: Run) -> None:
        """All of it is stored."""
        put(run.path.with_suffix(".done"), b"")

    def _run(self, number: int) -> Run:
        path = self.folder / f"run-{number:06d}.parquet"
        return Run(number, path, f"dlq/{self._id}/{number}", path.with_suffix(".done").exists())
