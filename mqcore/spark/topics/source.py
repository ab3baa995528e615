"""The data source `rocketmq`."""
from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from mqcore.spark.columns import MAP, Picked, all_columns, picked_by_names, picked_by_schema
from mqcore.spark.errors import one_line
from mqcore.spark.options import (
    BATCH,
    ROCKETMQ,
    STREAM,
    WRITE,
    Options,
    read_options,
    tell_of_filters,
)
from mqcore.spark.topics.batch import BatchReader
from mqcore.spark.topics.stream import StreamReader
from mqcore.spark.topics.topic_read import TopicRead
from mqcore.spark.topics.writer import TopicStreamWriter, TopicWriter, refuse_overwrite

NAME = "rocketmq"


class RocketMQ(DataSource):
    """Topics of a RocketMQ 4.9 cluster, or of mqcore: read and written, in batches and streams."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @one_line
    def schema(self) -> str:
        """Without a schema of the user's: all columns, or those of the option `columns`."""
        given = {key.lower(): value for key, value in self.options.items()}
        picked = picked_by_names(given["columns"]) if "columns" in given else all_columns()
        as_json = given.get("propertiesas", "").strip().lower() == "json"
        return Picked(tuple((name, "string" if as_json and kind == MAP else kind)
                            for name, kind in picked.fields)).ddl

    @one_line
    def reader(self, schema: Any) -> DataSourceReader:
        options = self._options(BATCH)
        tell_of_filters(options)
        return BatchReader(TopicRead(options, picked_by_schema(schema)))

    @one_line
    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StreamReader(TopicRead(self._options(STREAM), picked_by_schema(schema)))

    @one_line
    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        refuse_overwrite(overwrite)
        return TopicWriter(self._options(WRITE), schema)

    @one_line
    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        return TopicStreamWriter(self._options(WRITE), schema)

    def _options(self, on: str) -> Options:
        return read_options(dict(self.options.items()), ROCKETMQ, on, NAME)
