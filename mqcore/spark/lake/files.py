"""
What one task writes: Parquet files, one after the other for each partition.

Rows wait in memory until there are enough for a row group. A file has its last name from the
beginning; it is none of the table's before a change names it.
"""
from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

from mqcore.spark.arrow_groups import alike
from mqcore.spark.lake.options import NO_PARTS
from mqcore.spark.lake.table import (
    DAY,
    DAY_OF,
    PREFIX,
    SUFFIX,
    DataFile,
    Shape,
    folder_of,
)
from mqcore.spark.whole_files import sync_folder

# Columns whose values repeat, so that a dictionary of them is worth its while.
REPEATED: Final = frozenset({
    "topic", "flag", "brokerName", "queueId", "tags", "sysFlag", "bornHost", "storeHost",
    "reconsumeTimes", "preparedTransactionOffset", "gapEnd", "key", "value"})
STATS_TEXT_MAX: Final = 128             # bytes of a text that statistics show
_EPOCH: Final = datetime(1970, 1, 1)    # of UTC
FIRST_US: Final = (datetime.min - _EPOCH) // timedelta(microseconds=1)
LAST_US: Final = (datetime.max - _EPOCH) // timedelta(microseconds=1)
Parts = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """How files are written: see the options of these names."""

    compression: str
    compression_level: int | None
    file_bytes: int
    row_group_bytes: int


@dataclass(eq=False)
class _Open:
    """The file of a partition, and the rows that wait for it."""

    parts: dict[str, str | None]
    waiting: list[Any] = field(default_factory=list)
    waiting_bytes: int = 0
    path: str = ""
    writer: Any = None
    footers: list[Any] = field(default_factory=list)


class FileWriter:
    """The files of a task."""

    def __init__(self, root: Path, shape: Shape, form: Form, tag: str = "") -> None:
        """`tag` is in the files' names."""
        self._root = root
        self._tag = tag
        self._shape = shape
        self._form = form
        self._open: dict[Parts, _Open] = {}
        self._waiting_bytes = 0
        self._made: list[str] = []
        self._done: list[DataFile] = []

    def write(self, batch: Any) -> None:
        """Take a record batch of the table's columns. Raises OSError."""
        import pyarrow as pa

        if batch.schema != self._shape.schema:
            batch = pa.RecordBatch.from_arrays(
                [column.cast(one.type) for column, one in zip(
                    batch.columns, self._shape.schema, strict=True)], schema=self._shape.schema)
        for parts, rows in self._parted(batch):
            one = self._open.get(parts)
            if one is None:
                one = self._open[parts] = _Open(dict(zip(self._shape.parts, parts, strict=True)))
            one.waiting.append(rows)
            one.waiting_bytes += rows.nbytes
            self._waiting_bytes += rows.nbytes
            if one.waiting_bytes >= self._form.row_group_bytes:
                self._put(one)
        while self._waiting_bytes >= 2 * self._form.row_group_bytes:
            self._put(max(self._open.values(), key=lambda each: each.waiting_bytes))

    def finish(self) -> list[DataFile]:
        """Write what waits; the files, which survive the machine from now on. Raises OSError."""
        for one in self._open.values():
            self._put(one)
            self._close(one)
        for folder in sorted({(self._root / path).parent for path in self._made}):
            for each in (folder, *folder.parents):
                sync_folder(each)
                if each == self._root:
                    break
        return self._done

    def discard(self) -> None:
        """Remove all that was written."""
        for one in self._open.values():
            if one.writer is not None:
                one.writer.close()
        for path in self._made:
            (self._root / path).unlink(missing_ok=True)

    def _parted(self, batch: Any) -> Iterator[tuple[Parts, Any]]:
        if not self._shape.parts:
            yield (), batch
            return
        tuples, numbers = alike([_part_column(batch, name) for name in self._shape.parts])
        for number, values in enumerate(tuples):
            parts = tuple(value.isoformat() if isinstance(value, date) else value
                          for value in values)
            yield parts, (batch if len(tuples) == 1
                          else batch.take(np.flatnonzero(numbers == number)))

    def _put(self, one: _Open) -> None:
        """The rows that wait are a row group."""
        import pyarrow as pa

        if not one.waiting:
            return
        if one.writer is None:
            self._begin(one)
        table = pa.Table.from_batches(one.waiting)
        one.writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._waiting_bytes -= one.waiting_bytes
        one.waiting, one.waiting_bytes = [], 0
        if (self._root / one.path).stat().st_size >= self._form.file_bytes:
            self._close(one)

    def _begin(self, one: _Open) -> None:
        import pyarrow.parquet as pq

        folder = folder_of(one.parts)
        (self._root / folder).mkdir(parents=True, exist_ok=True)
        name = f"{PREFIX}{self._tag}{uuid.uuid4().hex}{SUFFIX}"
        one.path = f"{folder}/{name}" if folder else name
        one.footers = []
        self._made.append(one.path)
        leaves = [leaf for column in self._shape.schema for leaf in _leaves(column)]
        form = self._form
        one.writer = pq.ParquetWriter(
            str(self._root / one.path), self._shape.schema, store_schema=False,
            compression=None if form.compression == NO_PARTS else form.compression,
            compression_level=form.compression_level,
            use_dictionary=[leaf for leaf in leaves if leaf.rpartition(".")[2] in REPEATED],
            write_page_checksum=True, metadata_collector=one.footers)

    def _close(self, one: _Open) -> None:
        if one.writer is None:
            return
        one.writer.close()
        one.writer = None
        path = self._root / one.path
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        footer = one.footers[0]
        self._done.append(DataFile(one.path, footer.num_rows, path.stat().st_size, one.parts,
                                   _stats(footer, self._shape)))


def _part_column(batch: Any, name: str) -> Any:
    import pyarrow as pa

    return batch.column(DAY_OF).cast(pa.date32()) if name == DAY else batch.column(name)


def _leaves(column: Any) -> list[str]:
    """The names of a column's values in Parquet."""
    import pyarrow as pa

    kind, name = column.type, column.name
    if pa.types.is_map(kind):
        return [f"{name}.key_value.key", f"{name}.key_value.value"]
    if pa.types.is_list(kind):
        return [f"{name}.list.element"]
    return [name]


def _stats(footer: Any, shape: Shape) -> dict[str, Any]:
    """Delta's statistics: rows, and least, largest and missing values of columns."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            name, found = column.path_in_schema, column.statistics
            if "." in name or name in shape.parts or found is None or not found.has_null_count:
                unknown.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if not found.has_min_max:
                if found.null_count < row_group.num_rows:
                    unknown.add(name)
                continue
            bounds = _bounds(shape.schema.field(name).type, found)
            if None in bounds:
                unknown.add(name)
                continue
            low[name] = min(low.get(name, bounds[0]), bounds[0])
            high[name] = max(high.get(name, bounds[1]), bounds[1])
    known = [name for name in nulls if name not in unknown]
    return {"numRecords": footer.num_rows,
            "minValues": {name: low[name] for name in known if name in low},
            "maxValues": {name: high[name] for name in known if name in high},
            "nullCount": {name: nulls[name] for name in known}}


def _bounds(kind: Any, found: Any) -> tuple[Any, Any]:
    """Least and largest value in JSON; None where one cannot be told exactly."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _time_shown(found.min_raw), _time_shown(found.max_raw)
    if pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _shown(found.min), _shown(found.max)
    return None, None


def _time_shown(microseconds: int) -> str | None:
    """Times of messages are what their senders say: any 64 bits."""
    if microseconds % 1000 or not FIRST_US <= microseconds <= LAST_US:
        return None
    time = _EPOCH + timedelta(microseconds=microseconds)
    return time.isoformat(timespec="milliseconds") + "Z"


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value.encode()) <= STATS_TEXT_MAX else None
    return value
