"""
The data source `rocketmq-store`: a store directory at rest, stock's or ours, read without a broker.

    spark.read.format("rocketmq-store").load(DIR)
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqcore.spark.columns import Column, Picked, picked_by_names, picked_by_schema
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.options import BATCH, Options, read_options, tell_of_filters
from mqcore.spark.store.at_rest import (
    LogPart,
    StoreAtRest,
    StoreError,
    Trouble,
    WantedRecords,
    plan,
    read_part,
)
from mqcore.spark.store.batches import LogCutter
from mqcore.spark.store.entries import (
    IndexFile,
    QueueFile,
    index_batches,
    index_files,
    queue_batches,
    queue_files,
)
from mqcore.spark.store.options import KNOWN, LOG, NOT_FOR, QUEUES, STORE
from mqcore.store.log.folders import LogFolders
from mqcore.store.ownership import StoreInUseError
from mqcore.store.verify.report import Report
from mqcore.wire.records import RecordError

NAME: Final = "rocketmq-store"
QUEUE_FILE_BYTES: Final = 8 << 10      # what a queue's file costs beside its length, about


class DamagedStore(SparkSourceError):
    """A store has what cannot be read, and `failOnDamage` is true."""


@dataclass(frozen=True)
class LogTask(InputPartition):
    """A part of the log, and what is known to be wrong before it is read."""

    part: LogPart | None
    wanted: WantedRecords
    troubles: tuple[Trouble, ...] = ()


@dataclass(frozen=True)
class EntriesTask(InputPartition):
    """Files of queues, or of the index."""

    files: tuple[QueueFile | IndexFile, ...]


class RocketMQStoreDataSource(DataSource):
    """What Spark asks for; it travels to other processes, so it holds nothing but options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return _picked(self._read_options(), None).ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._read_options()
        path = self.options.get("path")
        if path is None:
            raise OptionError(f"{NAME}: expected the store's folder: .load(DIR)")
        if "," in path and not Path(path).exists():
            raise OptionError(f"{NAME}: expected one folder, not {path}")
        tell_of_filters(options)
        return StoreReader(_local(path), options, _picked(options, schema))

    def _read_options(self) -> Options:
        return read_options(self.options, STORE, BATCH, NAME)


def _local(path: str) -> str:
    return path.removeprefix("file://").removeprefix("file:") or "/"


def _picked(options: Options, schema: StructType | None) -> Picked:
    """The columns that the user asked for; raises OptionError."""
    known = KNOWN[options["what"]]
    if schema is not None:
        return picked_by_schema(schema, known=known)
    if options.has("columns"):
        found = picked_by_names(options["columns"], known=known)
    else:
        wanted: list[Column] = [column for column in known if not column.is_extra or (
            column.name == "damage" and not options["failOnDamage"])]
        found = Picked(tuple((column.name, column.type) for column in wanted))
    if options["propertiesAs"] == "json":
        found = Picked(tuple((name, "string" if name == "properties" else kind)
                             for name, kind in found.fields))
    return found


class StoreReader(DataSourceReader):
    """Plans and reads one frame."""

    def __init__(self, root: str, options: Options, picked: Picked) -> None:
        for name in NOT_FOR[options["what"]]:
            if options.has(name):
                raise OptionError(f"{name}: rows of what={options['what']} cannot be chosen by it:"
                                  f" expected what={LOG}")
        self._root = root
        self._options = options
        self._picked = picked
        self._store, self._report = self._open()
        self._wanted = WantedRecords(
            topics=_none_or(tuple, options["topic"]),
            queue_ids=_numbers(options["queueIds"]),
            from_ms=options["startingTimestamp"] if options.has("startingTimestamp")
            else WantedRecords.from_ms,
            to_ms=options["endingTimestamp"] - 1 if options.has("endingTimestamp")
            else WantedRecords.to_ms,
            decided=options["transactions"] == "committed")

    def _open(self) -> tuple[StoreAtRest, Report]:
        paths = self._options["commitLogPaths"]
        folders = None if paths is None else LogFolders(
            tuple(Path(_local(path)).absolute() for path in paths))
        for folder in folders.all() if folders is not None else ():
            if not folder.is_dir():
                raise OptionError(f"commitLogPaths: {folder}: there is no such directory")
        try:
            return StoreAtRest.open(self._root, folders, force=self._options["force"])
        except StoreInUseError as error:
            raise StoreError(f"{error}: stop it, or give the option force") from None

    # -- in the driver -----------------------------------------------------------------------------

    def partitions(self) -> list[InputPartition]:
        what = self._options["what"]
        if what == LOG:
            return list(self._log_tasks())
        if what == QUEUES:
            wanted = self._wanted
            files = list(queue_files(
                Path(self._store.root), _none_or(set, wanted.topics),
                _none_or(set, wanted.queue_ids)))
            tasks = [EntriesTask(tuple(some)) for some in self._shares(files)]
        else:
            found, wrong = index_files(self._store.listing(), self._options["indexSlots"])
            if wrong and self._options["failOnDamage"]:
                raise DamagedStore(f"{self._root}: {wrong[0]}: give failOnDamage=false to read on")
            tasks = [EntriesTask((file,)) for file in found]
        return list(tasks) or [EntriesTask(())]

    def _shares(self, files: list[QueueFile]) -> Iterator[list[QueueFile]]:
        """Of each task: about `splitBytes`, and less where `minPartitions` asks for more tasks."""
        costs = [QUEUE_FILE_BYTES + Path(file.path).stat().st_size for file in files]
        each = min(self._options["splitBytes"], sum(costs) // self._options["minPartitions"])
        share: list[QueueFile] = []
        taken = 0
        for file, cost in zip(files, costs, strict=True):
            if share and taken + cost > each:
                yield share
                share, taken = [], 0
            share.append(file)
            taken += cost
        if share:
            yield share

    def _log_tasks(self) -> Iterator[LogTask]:
        wanted = self._wanted
        made = plan(self._store, self._report, split_bytes=self._options["splitBytes"],
                    parts_min=self._options["minPartitions"], wanted=wanted)
        for trouble in made.troubles:
            if trouble.damaged and self._options["failOnDamage"]:
                raise _damaged(self._root, trouble)
        yield LogTask(None, wanted, tuple(made.troubles))
        for part in made.parts:
            yield LogTask(part, wanted)

    # -- in a task ---------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, LogTask):
            return self._read_log(partition)
        assert isinstance(partition, EntriesTask)
        return self._read_entries(partition)

    def _read_entries(self, task: EntriesTask) -> Iterator[Any]:
        with self._store.held():
            for file in task.files:
                yield from (queue_batches(file, self._picked) if isinstance(file, QueueFile)
                            else index_batches(file, self._picked))

    def _read_log(self, task: LogTask) -> Iterator[Any]:
        cutter = LogCutter(self._picked)
        broker = self._options["brokerName"]
        if not self._options["failOnDamage"]:
            for trouble in task.troubles:
                yield cutter.trouble(trouble)
        if task.part is None:
            return
        for found in read_part(self._store, task.part, task.wanted):
            if not isinstance(found, Trouble):
                try:
                    yield from cutter.cut_all([found[0]], found[1], broker=broker)
                except RecordError as error:
                    raise SparkSourceError(f"{self._root}: {error}") from None
            elif self._options["failOnDamage"]:
                raise _damaged(self._root, found)
            else:
                yield cutter.trouble(found)


def _damaged(root: str, trouble: Trouble) -> DamagedStore:
    return DamagedStore(f"{root}: {trouble.text}: `mqcore store verify` says more, "
                        "failOnDamage=false reads on")


def _none_or(kind: Any, values: Any) -> Any:
    return None if values is None else kind(values)


def _numbers(values: list[str] | None) -> tuple[int, ...] | None:
    if values is None:
        return None
    if not all(value.isascii() and value.isdecimal() for value in values):
        raise OptionError(f"queueIds {','.join(values)!r}: expected numbers, separated by commas")
    return tuple(int(value) for value in values)
