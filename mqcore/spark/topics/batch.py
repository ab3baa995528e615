"""The batch read of topics."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from mqcore.client.errors import RocketMQError
from mqcore.spark.errors import SparkSourceError, one_line
from mqcore.spark.topics.catalog import Catalog, catalog_of
from mqcore.spark.topics.positions import begins, ends
from mqcore.spark.topics.ranges import OffsetRange
from mqcore.spark.topics.topic_read import RangePartition, TopicRead


class BatchReader(DataSourceReader):
    """Reads what topics hold, once."""

    def __init__(self, reading: TopicRead) -> None:
        self._reading = reading

    @one_line
    def partitions(self) -> list[InputPartition]:
        """The tasks. Raises SparkSourceError in one line."""
        reading = self._reading
        try:
            with catalog_of(reading.options) as catalog:
                return list(reading.parts(catalog, self._ranges(catalog)))
        except RocketMQError as error:
            raise SparkSourceError(f"reading {reading.subject}: {error}") from None

    def _ranges(self, catalog: Catalog) -> list[OffsetRange]:
        reading = self._reading
        queues = reading.subject.existing(catalog)
        begin = begins(reading.options, catalog, queues, "earliest")
        end = ends(reading.options, catalog, queues)
        first, last = catalog.begins(queues), catalog.ends(queues)
        for queue in queues:
            if begin[queue] > last[queue]:
                reading.lost(queue, last[queue], begin[queue], f"the queue ends at {last[queue]}")
                begin[queue] = last[queue]
            stop = min(first[queue], end[queue])
            if begin[queue] < stop and reading.fails:
                reading.lost(queue, begin[queue], stop, "retention has deleted them")
        return [OffsetRange(queue, begin[queue], end[queue]) for queue in queues]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition) if isinstance(partition, RangePartition) else iter(())
