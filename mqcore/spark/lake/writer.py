"""
The sink `rocketmq-lake`: rows to a table, once.

Tasks write files. What the driver has of them when all tasks are done is one change of the table,
under the name of the query and the number of the batch: a batch that is repeated finds it there.
"""
from __future__ import annotations

import contextlib
import json
import logging
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from mqcore.spark.errors import OptionError, SparkSourceError, one_line
from mqcore.spark.lake.files import FileWriter
from mqcore.spark.lake.options import LAKE
from mqcore.spark.lake.rows import FILE, are_files, form_of, shape_of, table_of
from mqcore.spark.lake.table import (
    NOTHING,
    Change,
    ChangedMeanwhile,
    DataFile,
    Table,
    local_folder,
)
from mqcore.spark.options import WRITE, Options, read_options

NAME = "rocketmq-lake"
MAINTAINER = "lake-maintain"            # the writer of all changes that remove files

log = logging.getLogger("mqcore.spark")


class Written(WriterCommitMessage):
    """The files of a task, and the stream that they belong to."""

    def __init__(self, files: list[DataFile], query: str | None) -> None:
        self.files = files
        self.query = query


class LakeSink:
    """What every task of a write does, and what the driver does with it."""

    def __init__(self, options: Options, path: str, schema: Any, overwrite: bool) -> None:
        """Raises OptionError."""
        self._options = options
        self._path = local_folder(path)
        self._overwrite = overwrite
        self._form = form_of(options)
        self._shape = shape_of(options, self._path, schema)
        self._are_files = are_files(schema)
        if (options["txnAppId"] is None) != (options["txnVersion"] is None):
            raise OptionError("txnAppId and txnVersion: expected both, or none")
        self._job = options["txnAppId"] or uuid.uuid4().hex
        self._number = options["txnVersion"] or 0

    def _table(self) -> Table:
        return table_of(self._options, self._path)

    @one_line
    def write(self, batches: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task to files. Raises SparkSourceError."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        if self._are_files:
            return Written([DataFile(**json.loads(text)) for batch in batches
                            for text in batch.column(FILE).to_pylist()], query)
        files = FileWriter(self._path, self._shape, self._form, self._options["fileTag"])
        try:
            for batch in batches:
                files.write(batch)
            return Written(files.finish(), query)
        except OSError as error:
            files.discard()
            raise SparkSourceError(f"writing below {self._path}: {error}") from None
        except BaseException:
            files.discard()
            raise

    def _commit(self, messages: list[WriterCommitMessage | None], batch: int | None) -> None:
        written = [one for one in messages if isinstance(one, Written)]
        files = tuple(each for one in written for each in one.files)
        query = next((one.query for one in written if one.query), None)
        table = self._table()
        try:
            change = self._change(table, files, query, batch)
            if not files and not change.remove:
                return
            if table.commit(change, self._shape):
                log.info("%s: change %d of %s: %d rows in %d files", self._path, change.number,
                         change.writer, sum(one.rows for one in files), len(files))
                return
            table.discard(one.path for one in files)
        except OSError as error:
            raise SparkSourceError(f"{self._path}: {error}") from None
        if change.remove:
            raise ChangedMeanwhile(f"{self._path}: another maintenance changed the table meanwhile:"
                                   " run this one again")
        log.info("%s: change %d of %s was there already", self._path, change.number, change.writer)

    def _change(self, table: Table, files: tuple[DataFile, ...], query: str | None,
                batch: int | None) -> Change:
        if self._overwrite:
            there = table.exists()
            return Change(MAINTAINER, (table.committed(MAINTAINER) if there else NOTHING) + 1,
                          files, tuple(one.path for one in table.state().files) if there else ())
        writer, number = (self._job, self._number) if batch is None or query is None else (
            query, batch)
        replaced = self._options["replaces"]
        return Change(writer, number, files, tuple(replaced or ()), same_rows=replaced is not None)

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks have written, unless the table has it all the same."""
        written = [one for one in messages if isinstance(one, Written)]
        with contextlib.suppress(SparkSourceError):     # then `lake-maintain` removes them
            self._table().discard(each.path for one in written for each in one.files)


class TableWriter(LakeSink, DataSourceArrowWriter):
    """Writes a batch."""

    @one_line
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class TableStreamWriter(LakeSink, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    @one_line
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


class RocketMQLake(DataSource):
    """Tables of Parquet files: written here; `mqcore.spark.read_lake` reads them."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @one_line
    def schema(self) -> str:
        raise OptionError(f"{NAME} is a sink: read its tables with mqcore.spark.read_lake(spark,"
                          " path)")

    def reader(self, schema: Any) -> DataSourceReader:
        raise OptionError(f"{NAME} is a sink: read its tables with mqcore.spark.read_lake(spark,"
                          " path)")

    @one_line
    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return TableWriter(self._options(), self._path(), schema, overwrite)

    @one_line
    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise OptionError(f"{NAME}: a stream appends: give outputMode append")
        return TableStreamWriter(self._options(), self._path(), schema, overwrite)

    def _options(self) -> Options:
        return read_options(dict(self.options.items()), LAKE, WRITE, NAME)

    def _path(self) -> str:
        path = self.options.get("path")
        if not path:
            raise OptionError(f"{NAME} needs the table's folder: .save(PATH), or .start(PATH)")
        return str(path)
