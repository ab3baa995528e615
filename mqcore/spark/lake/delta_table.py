"""
A Delta table, by `deltalake`.

Who writes, and which of its changes it is, is the commit's application transaction: of two commits
with the same one Delta lets the first pass.
"""
from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.lake.table import (
    DAY,
    NOTHING,
    PREFIX,
    Change,
    DataFile,
    Shape,
    State,
    Table,
    fits,
)

LOG: Final = "_delta_log"


class DeltaTable(Table):
    kind = "delta"

    def exists(self) -> bool:
        return bool(deltalake.DeltaTable.is_deltatable(str(self.root)))

    def state(self) -> State:
        table = self._table()
        return State(table.version(), tuple(self._files(table).values()))

    def parts(self) -> tuple[str, ...]:
        return tuple(self._table().metadata().partition_columns)

    def committed(self, writer: str) -> int:
        return _last(self._table(), writer)

    def kept(self, since_ms: int) -> set[str]:
        return set(self._files(self._table())) | set(self._removed(since_ms))

    def forget(self, before_ms: int) -> int:
        """Delta keeps its log for `delta.logRetentionDuration`; what is older goes."""
        before = len(list((self.root / LOG).glob("*.json")))
        table = self._table()
        table.create_checkpoint()
        table.cleanup_metadata()
        return before - len(list((self.root / LOG).glob("*.json")))

    def _change(self, change: Change, shape: Shape | None) -> bool:
        try:
            if shape is not None and not self.exists():
                self.root.mkdir(parents=True, exist_ok=True)
                deltalake.DeltaTable.create(str(self.root), _with_day(shape),
                                            partition_by=list(shape.parts))
            table = self._table()
            if _last(table, change.writer) >= change.number:
                return False            # since the caller's look
            parts = table.metadata().partition_columns
            schema = table.schema()
            if shape is not None:
                _check(schema, parts, shape, self.root)
            files = self._files(table)
            fits(files, change.remove, self.root)
            now_ms = time.time_ns() // 1_000_000
            removed = [files[path] for path in change.remove]
            table.create_write_transaction(
                [*(RemoveAction(one.path, not change.same_rows, now_ms, one.bytes, dict(one.parts))
                   for one in removed),
                 *(AddAction(one.path, one.bytes, dict(one.parts), now_ms, not change.same_rows,
                             json.dumps(one.stats)) for one in change.add)],
                "append", schema, parts, commit_properties=CommitProperties(
                    app_transactions=[Transaction(change.writer, change.number, now_ms)]))
        except CommitFailedError:
            return False
        except DeltaError as error:
            raise SparkSourceError(f"{self.root}: Delta refuses the change: {error}") from None
        return True

    def _table(self) -> Any:
        try:
            return deltalake.DeltaTable(str(self.root))
        except DeltaError as error:
            raise SparkSourceError(f"{self.root}: is no Delta table: {error}") from None

    def _files(self, table: Any) -> dict[str, DataFile]:
        """Path -> file. Raises SparkSourceError for files that others have made."""
        rows = pa.table(table.get_add_actions(flatten=True))
        names = [name for name in rows.column_names if name.startswith("partition.")]
        wanted = rows.select(["path", "num_records", "size_bytes", *names]).to_pylist()
        found = {}
        for row in wanted:
            path = unquote(row["path"])
            if not Path(path).name.startswith(PREFIX):
                raise SparkSourceError(f"{self.root}: {path} is another writer's: read this table"
                                       " with Delta's own readers")
            found[path] = DataFile(path, row["num_records"], row["size_bytes"], {
                name.removeprefix("partition."): None if row[name] is None else str(row[name])
                for name in names})
        return found

    def _removed(self, since_ms: int) -> Iterator[str]:
        for path in sorted((self.root / LOG).glob("*.json")):
            if path.stat().st_mtime_ns // 1_000_000 < since_ms:
                continue
            for line in path.read_bytes().splitlines():
                said = json.loads(line).get("remove")
                if said is not None:
                    yield unquote(said["path"])


def _last(table: Any, writer: str) -> int:
    found = table.transaction_version(writer)
    return NOTHING if found is None else int(found)


def _with_day(shape: Shape) -> Any:
    return shape.schema.append(pa.field(DAY, pa.date32())) if DAY in shape.parts else shape.schema


def _check(there: Any, parts: list[str], shape: Shape, root: Path) -> None:
    """Raises OptionError unless a table of this schema takes files of a shape."""
    if sorted(parts) != sorted(shape.parts):
        raise OptionError(f"{root}: the table is partitioned by {', '.join(parts) or 'none'}, not"
                          f" by {', '.join(shape.parts) or 'none'}: give partitionBy alike")
    said = json.loads(there.to_json())
    wanted = json.loads(deltalake.Schema.from_arrow(_with_day(shape)).to_json())
    if said != wanted:
        raise OptionError(f"{root}: the table has the columns {_columns(said)}: the frame has"
                          f" {_columns(wanted)}")


def _columns(said: Any) -> str:
    return ", ".join(f"{one['name']} {one['type'] if isinstance(one['type'], str) else '...'}"
                     for one in said["fields"])
