"""
The source of the job `archive`: its tasks write what they read to files of a table by themselves,
and give Spark one row for each file. The messages do not pass through the JVM.

The sink `rocketmq-lake` takes such rows as files that are written already.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from mqcore.spark.errors import OptionError, SparkSourceError, one_line
from mqcore.spark.lake.files import FileWriter, Form
from mqcore.spark.lake.options import LAKE
from mqcore.spark.lake.rows import FILE, FILE_ROWS, MESSAGES, form_of, shape_of
from mqcore.spark.lake.table import Shape, local_folder
from mqcore.spark.options import ROCKETMQ, STREAM, WRITE, Options, read_options
from mqcore.spark.topics.stream import StreamReader
from mqcore.spark.topics.topic_read import GroupedPartition, TopicRead, grouped

NAME = "rocketmq-archive"
_LAKE_NAMES = frozenset(option.name.lower() for option in LAKE)


class FilingReader(StreamReader):
    """Reads what comes, into files."""

    def __init__(self, reading: TopicRead, root: Path, shape: Shape, form: Form) -> None:
        super().__init__(reading)
        self._files = root, shape, form

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_files": self._files}

    @one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """As many tasks as `minPartitions` says, of about as many messages each."""
        parts = self._parts(start, end)
        each = sum(one.size for one in parts) / (self._reading.options["minPartitions"] or 1)
        return list(grouped(parts, lambda size, more: size + more / 2 <= each))

    @one_line
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A row for each file of the task. Raises SparkSourceError."""
        import pyarrow as pa

        assert isinstance(partition, GroupedPartition)
        files = FileWriter(*self._files)
        try:
            for one in partition.parts:
                for batch in self._reading.read(one):
                    files.write(batch)
            done = files.finish()
        except OSError as error:
            files.discard()
            raise SparkSourceError(f"writing below {self._files[0]}: {error}") from None
        except BaseException:
            files.discard()
            raise
        return iter([pa.RecordBatch.from_arrays(
            [pa.array([json.dumps(asdict(one)) for one in done], pa.string()),
             pa.array([one.rows for one in done], pa.int64())], [FILE, FILE_ROWS])])


class RocketMQArchive(DataSource):
    """Topics, as files of a table that are not in it yet."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return f"{FILE} string, {FILE_ROWS} bigint"

    @one_line
    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        given = dict(self.options.items())
        sink = self._sink({key: value for key, value in given.items()
                           if key.lower() in _LAKE_NAMES or key.lower() == "path"})
        source = {key: value for key, value in given.items() if key.lower() not in _LAKE_NAMES}
        path = given.get("path")
        if not path:
            raise OptionError(f"{NAME} needs the table's folder: .load(PATH)")
        return FilingReader(
            TopicRead(read_options(source, ROCKETMQ, STREAM, NAME), MESSAGES),
            local_folder(path), shape_of(sink, path), form_of(sink))

    @staticmethod
    def _sink(given: dict[str, str]) -> Options:
        return read_options(given, LAKE, WRITE, NAME)
