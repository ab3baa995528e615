"""The batch read of topics."""
from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from mqcore.client.errors import RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.spark.errors import SparkSourceError, one_line
from mqcore.spark.topics.catalog import Catalog, Offsets, catalog_of
from mqcore.spark.topics.positions import begins, ends
from mqcore.spark.topics.ranges import OffsetRange
from mqcore.spark.topics.topic_read import RangePartition, TopicRead

CLOCK_SLACK_MS = 60_000             # store times may go back a little; Spark looks again
_END = (1 << 63) - 1
_NEVER_NULL = frozenset({"topic", "brokername", "queueid", "queueoffset"})


class Wanted:
    """What filters leave of queues and offsets; all of them hold at once."""

    def __init__(self) -> None:
        self.queue_ids: set[int] | None = None
        self.brokers: set[str] | None = None
        self.topics: set[str] | None = None
        self.begin, self.end = 0, _END
        self.begin_ms, self.end_ms = 0, _END

    def take(self, one: Filter) -> bool:
        """Note a filter; whether it is wholly kept by that, so that Spark needs not look again."""
        if len(getattr(one, "attribute", ())) != 1:
            return False
        name, value = one.attribute[0].lower(), getattr(one, "value", None)
        if isinstance(one, IsNotNull):
            return name in _NEVER_NULL
        if value is None:
            return False
        if name == "queueid":
            self.queue_ids, kept = _chosen(self.queue_ids, one, value)
            return kept
        if name == "brokername":
            self.brokers, kept = _chosen(self.brokers, one, value)
            return kept
        if name == "topic":
            self.topics, kept = _chosen(self.topics, one, value)
            return kept
        if name == "queueoffset" and isinstance(value, int):
            low, high = _bounds(one, value)
            self.begin, self.end = max(self.begin, low), min(self.end, high)
            return (low, high) != (0, _END)
        if name == "storetimestamp" and isinstance(value, datetime):
            low, high = _bounds(one, _ms(value))
            if low:
                self.begin_ms = max(self.begin_ms, low - CLOCK_SLACK_MS)
            if high != _END:
                self.end_ms = min(self.end_ms, high + CLOCK_SLACK_MS)
        return False

    def has(self, queue: MessageQueue) -> bool:
        """Whether anything of a queue is wanted."""
        return ((self.queue_ids is None or queue.queue_id in self.queue_ids)
                and (self.brokers is None or queue.broker_name in self.brokers)
                and (self.topics is None or queue.topic in self.topics))

    def cut(self, catalog: Catalog, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """What is wanted of these ranges."""
        queues = [one.queue for one in ranges if self.has(one.queue)]
        low: Offsets = dict.fromkeys(queues, self.begin)
        high: Offsets = dict.fromkeys(queues, self.end)
        if self.begin_ms > 0:
            found = catalog.at_times(dict.fromkeys(queues, self.begin_ms))
            low = {queue: max(low[queue], found[queue]) for queue in queues}
        if self.end_ms != _END:
            found = catalog.at_times(dict.fromkeys(queues, max(self.end_ms, 0)))
            high = {queue: min(high[queue], found[queue]) for queue in queues}
        return [OffsetRange(one.queue, max(one.begin, low[one.queue]),
                            min(one.end, high[one.queue]))
                for one in ranges if one.queue in low]


def _chosen(before: set[Any] | None, one: Filter, value: Any) -> tuple[set[Any] | None, bool]:
    if isinstance(one, EqualTo | EqualNullSafe):
        found = {value}
    elif isinstance(one, In):
        found = {each for each in value if each is not None}
    else:
        return before, False
    return found if before is None else before & found, True


def _bounds(one: Filter, value: int) -> tuple[int, int]:
    """The values that a filter lets through: from the first on, below the second."""
    if isinstance(one, EqualTo | EqualNullSafe):
        return value, value + 1
    if isinstance(one, GreaterThan):
        return value + 1, _END
    if isinstance(one, GreaterThanOrEqual):
        return value, _END
    if isinstance(one, LessThan):
        return 0, value
    if isinstance(one, LessThanOrEqual):
        return 0, value + 1
    return 0, _END


def _ms(value: datetime) -> int:
    aware = value if value.tzinfo is not None else value.astimezone(UTC)
    return int(aware.timestamp() * 1000)


class BatchReader(DataSourceReader):
    """Reads what topics hold, once."""

    def __init__(self, reading: TopicRead) -> None:
        self._reading = reading
        self._wanted = Wanted()

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
        queues = [queue for queue in reading.subject.existing(catalog) if self._wanted.has(queue)]
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
        return self._wanted.cut(
            catalog, [OffsetRange(queue, begin[queue], end[queue]) for queue in queues])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition) if isinstance(partition, RangePartition) else iter(())


class FilteringBatchReader(BatchReader):
    """The same, told what to leave out."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep what concerns queues and offsets; the filters that Spark has to look at again."""
        return [one for one in filters if not self._wanted.take(one)]


def batch_reader(reading: TopicRead) -> BatchReader:
    """
    The reader of a batch.

    Spark refuses one that takes filters while it has none to give
    (spark.sql.python.filterPushdown.enabled is false), and does not say so: but it asks from
    another program then. What one query of a frame has pushed it (4.3) keeps for all others of that
    frame, which would miss rows: so filters are taken only of who says that there are none.
    """
    frame = sys._getframe() if reading.options["pushFilters"] else None
    while frame is not None:
        if frame.f_code.co_filename.endswith("data_source_pushdown_filters.py"):
            return FilteringBatchReader(reading)
        frame = frame.f_back
    return BatchReader(reading)
