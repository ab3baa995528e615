"""
The data source of the job `store-audit`: what the records of a log ask of queues and index.

table `log`   a row for each entry that a queue should have, and for what is wrong in the log
table `keys`  a row for each key that the index should have
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqcore.spark.options import (
    BATCH,
    READ,
    Option,
    names,
    number,
    one_of,
    read_options,
    size,
    truth,
)
from mqcore.spark.store.at_rest import EVERYTHING, LogPart, StoreAtRest, Trouble, plan, read_part
from mqcore.spark.store.audit_rows import Side, Vectors, audit_rows
from mqcore.store.log.folders import LogFolders

NAME: Final = "rocketmq-store-audit"
ENTRY, UNQUEUED, FAULT, TROUBLE, ODD_END, PASSED = (
    "entry", "unqueued", "fault", "trouble", "oddEnd", "passed")
KEYS: Final = "keys"
LOG: Final = "log"
# side: 0 the record's own queue, 1 one that its list names, 2 a light one, 3 in no queue
SCHEMAS: Final = {
    LOG: (("kind", "string"), ("position", "bigint"), ("size", "int"), ("bodyLength", "int"),
          ("topic", "string"), ("queueId", "int"), ("queueOffset", "bigint"),
          ("tagsCode", "bigint"), ("delivery", "bigint"), ("storeTime", "bigint"), ("side", "int"),
          ("detail", "bigint"), ("expected", "bigint"), ("found", "bigint")),
    KEYS: (("position", "bigint"), ("keyHash", "int"), ("storeTime", "bigint")),
}
TYPES: Final = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32()}

OPTIONS: Final = (
    Option("table", one_of(LOG, KEYS), LOG, on=(READ,)),
    Option("commitLogPaths", names, on=(READ,)),
    Option("splitBytes", size, 256 << 20, on=(READ,)),
    Option("minPartitions", number(1, 1_000_000), 1, on=(READ,)),
    Option("delayLevels", names, on=(READ,), says="ms by level, from 1"),
    Option("force", truth, False, on=(READ,)),
)


@dataclass(frozen=True)
class Task(InputPartition):
    """A part of the log."""

    part: LogPart | None


class AuditSource(DataSource):
    """Registered by the job."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        table = read_options(self.options, OPTIONS, BATCH, NAME)["table"]
        return ", ".join(f"{name} {kind}" for name, kind in SCHEMAS[table])

    def reader(self, schema: StructType) -> DataSourceReader:
        return AuditReader(self.options["path"],
                           read_options(self.options, OPTIONS, BATCH, NAME).values)


class AuditReader(DataSourceReader):
    """Reads one table."""

    def __init__(self, root: str, options: dict[str, Any]) -> None:
        paths = options["commitLogPaths"]
        folders = None if paths is None else LogFolders(tuple(Path(path) for path in paths))
        self._store, self._report = StoreAtRest.open(root, folders, force=options["force"])
        self._options = options
        self._delay_ms = [int(word) for word in options["delayLevels"]]

    def partitions(self) -> list[InputPartition]:
        made = plan(self._store, self._report, split_bytes=self._options["splitBytes"],
                    parts_min=self._options["minPartitions"])
        return [Task(part) for part in made.parts] or [Task(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Task)
        part = partition.part
        if part is None:
            return
        is_log = self._options["table"] == LOG
        raw = self._store.records(part.start, part.stop, EVERYTHING)
        for found in read_part(self._store, part, EVERYTHING, raw):
            if not isinstance(found, Trouble):
                made = audit_rows(*found, self._delay_ms)
                yield entries_of(made) if is_log else keys_of(made)
                if is_log and made.fault_count:
                    yield faults_of(made)
            elif is_log:
                yield one_row(kind=TROUBLE, position=found.position, expected=found.further,
                              found=found.result)
        if is_log:
            for position, left, blank in raw.odd_ends():
                yield one_row(kind=ODD_END, position=position, expected=left, found=blank)
            yield one_row(kind=PASSED, found=raw.blanks)


def _schema(table: str) -> Any:
    return pa.schema([pa.field(name, TYPES[kind]) for name, kind in SCHEMAS[table]])


def _batch(count: int, columns: dict[str, Any], table: str = LOG) -> Any:
    schema = _schema(table)
    return pa.RecordBatch.from_arrays(
        [columns[field.name] if field.name in columns else pa.nulls(count, field.type)
         for field in schema], schema=schema)


def _numbers(kind: Any, count: int, data: bytes) -> Any:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def entries_of(made: Vectors) -> Any:
    """The rows of entries, and of records in no queue."""
    count = made.count
    i32, i64 = TYPES["int"], TYPES["bigint"]
    side = _numbers(i32, count, made.side)
    return _batch(count, {
        "kind": pa.array([ENTRY, UNQUEUED]).take(
            pa.compute.equal(side, int(Side.SIDE_UNQUEUED)).cast(pa.int32())),
        "position": _numbers(i64, count, made.position),
        "size": _numbers(i32, count, made.size),
        "bodyLength": _numbers(i32, count, made.body_length),
        "topic": pa.Array.from_buffers(pa.string(), count, [
            None, pa.py_buffer(made.topic_ends), pa.py_buffer(made.topic)]),
        "queueId": _numbers(i32, count, made.queue_id),
        "queueOffset": _numbers(i64, count, made.queue_offset),
        "tagsCode": _numbers(i64, count, made.tags_code),
        "delivery": _numbers(i64, count, made.delivery),
        "storeTime": _numbers(i64, count, made.store_time),
        "side": side,
    })


def keys_of(made: Vectors) -> Any:
    """The rows of keys."""
    count = made.key_count
    return _batch(count, {
        "position": _numbers(TYPES["bigint"], count, made.key_position),
        "keyHash": _numbers(TYPES["int"], count, made.key_hash),
        "storeTime": _numbers(TYPES["bigint"], count, made.key_time)}, KEYS)


def faults_of(made: Vectors) -> Any:
    """The rows of fields that cannot be."""
    count = made.fault_count
    return _batch(count, {
        "kind": pa.repeat(FAULT, count),
        "position": _numbers(TYPES["bigint"], count, made.fault_position),
        "detail": _numbers(TYPES["int"], count, made.fault_field).cast(pa.int64()),
        "found": _numbers(TYPES["bigint"], count, made.fault_value)})


def one_row(**values: Any) -> Any:
    """A row with these values."""
    return _batch(1, {name: pa.array([value], TYPES[dict(SCHEMAS[LOG])[name]])
                      for name, value in values.items()})
