"""
The stream read of topics.

A stream's offset has every queue that was ever seen. A queue that is new gets its first offset
there in one batch, and is read from the next one on: so what a batch reads is written down before
it is read, and is the same when it is repeated.
"""
from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from mqcore.client.errors import RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.spark.errors import SparkSourceError, one_line
from mqcore.spark.topics.catalog import Offsets, catalog_of
from mqcore.spark.topics.ends import Ends
from mqcore.spark.topics.positions import as_checkpoint, begins, from_checkpoint, shown
from mqcore.spark.topics.ranges import OffsetRange
from mqcore.spark.topics.state import first_offsets, keep_first_offsets
from mqcore.spark.topics.topic_read import GroupedPartition, RangePartition, TopicRead, grouped

BUNDLE_OFFSETS = 2_048              # of several queues, that one task reads

log = logging.getLogger("mqcore.spark")


def allotted(backlog: Mapping[MessageQueue, int], total: int) -> Offsets:
    """`total` shared out by backlog, to the last one: what rounding leaves goes to queues that
    have nothing yet, then to those that lost most by it."""
    whole = sum(backlog.values())
    if whole <= total:
        return dict(backlog)
    shares = {queue: size * total // whole for queue, size in backlog.items()}
    lost = {queue: size * total % whole for queue, size in backlog.items()}
    due = sorted((queue for queue in backlog if lost[queue]),
                 key=lambda queue: (shares[queue] > 0, -lost[queue], queue))
    for queue in due[:total - sum(shares.values())]:
        shares[queue] += 1
    return shares


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes, batch after batch."""

    def __init__(self, reading: TopicRead) -> None:
        self._reading = reading
        self._ends = Ends(reading)
        self._first: Offsets | None = None
        self._target: Offsets | None = None         # of a run that ends (AvailableNow)
        self._batch_s = time.monotonic()            # when the last batch had something

    def __getstate__(self) -> dict[str, Any]:
        """What executors need."""
        return {"_reading": self._reading}

    # -- the driver's questions -------------------------------------------------------------------

    @one_line
    def initialOffset(self) -> dict[str, Any]:
        """Where the stream begins; the same whenever it is asked. Raises SparkSourceError."""
        if self._first is None:
            folder = self._reading.options["stateDir"]
            self._first = first_offsets(folder)
            if self._first is None:
                self._first = keep_first_offsets(folder, self._begins())
        return as_checkpoint(self._first)

    def _begins(self) -> Offsets:
        reading = self._reading
        try:
            with catalog_of(reading.options) as catalog:
                queues = reading.subject.existing(catalog)
                return begins(reading.options, catalog, queues, "latest")
        except RocketMQError as error:
            raise SparkSourceError(f"reading {reading.subject}: {error}") from None

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._reading.options
        if options["maxOffsetsPerTrigger"] is not None:
            return ReadMaxRows(options["maxOffsetsPerTrigger"])
        if options["maxBytesPerTrigger"] is not None:
            return ReadMaxBytes(options["maxBytesPerTrigger"])
        if options["minOffsetsPerTrigger"] is not None:
            return ReadMinRows(options["minOffsetsPerTrigger"])
        return ReadAllAvailable()

    @one_line
    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing counts that comes later."""
        self._target = dict(self._ends.latest())

    @one_line
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends, for the lag in a query's progress."""
        return as_checkpoint(self._ends.latest())

    @one_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends. Raises SparkSourceError, DataLoss."""
        begin = from_checkpoint(start)
        end = dict(self._ends.latest())
        if self._target is not None:
            end = {queue: min(end[queue], offset) for queue, offset in self._target.items()
                   if queue in end}
        fresh = self._first_of([queue for queue in end if queue not in begin])
        until = {**begin}
        backlog: Offsets = {}
        for queue, offset in end.items():
            if queue not in begin:
                continue
            if offset < begin[queue]:
                until[queue] = self._again(queue, begin[queue], offset)
                continue
            backlog[queue] = offset - begin[queue]
        for queue, count in self._limited(begin, backlog, limit).items():
            until[queue] += count
        until |= fresh
        if until != begin:
            self._batch_s = time.monotonic()
        return as_checkpoint(until)

    def _first_of(self, queues: list[MessageQueue]) -> Offsets:
        """Where queues that are new begin; none while their broker does not say."""
        try:
            return self._ends.begins(queues) if queues else {}
        except RocketMQError as error:
            log.info("%d new queues wait: %s", len(queues), error)
            return {}

    def _again(self, queue: MessageQueue, begin: int, end: int) -> int:
        """A queue that ends before what was read of it: where to continue. Raises DataLoss."""
        self._reading.lost(queue, end, begin, f"{shown(queue)} ends at {end}, and was read up to"
                           f" {begin}: its topic was made anew, or its broker lost messages")
        with catalog_of(self._reading.options) as catalog:
            return catalog.begins([queue])[queue]

    def _limited(
        self, begin: Offsets, backlog: Offsets, limit: ReadLimit
    ) -> Offsets:
        """How many offsets of each queue the batch has."""
        options, total = self._reading.options, sum(backlog.values())
        if isinstance(limit, ReadAllAvailable) or not total:
            return backlog
        least = options["minOffsetsPerTrigger"]
        waited_s = time.monotonic() - self._batch_s
        if (least is not None and total < least and self._target is None
                and waited_s < options["maxTriggerDelay"]):
            return {}
        if isinstance(limit, ReadMaxRows):
            return allotted(backlog, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            with catalog_of(options) as catalog:
                sizes = catalog.sizes({queue: begin[queue] for queue, count in backlog.items()
                                       if count})
            mean = sum(backlog[queue] * size for queue, size in sizes.items()) / total
            return allotted(backlog, max(1, int(limit.max_bytes / max(mean, 1.0))))
        return backlog

    @one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """
        The tasks of a batch: the same for the same offsets. A task costs as much as thousands of
        messages: ranges of several queues that have few together are one, unless `minPartitions`
        asks for more.
        """
        options, parts = self._reading.options, self._parts(start, end)
        if options["minPartitions"] is not None:
            return list(parts)
        size_max = min(BUNDLE_OFFSETS, options["maxRecordsPerPartition"] or BUNDLE_OFFSETS)
        return list(grouped(parts, lambda size, more: size + more <= size_max))

    def _parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        begin, until = from_checkpoint(start), from_checkpoint(end)
        ranges = [OffsetRange(queue, begin[queue], offset)
                  for queue, offset in sorted(until.items()) if queue in begin]
        try:
            with catalog_of(self._reading.options) as catalog:
                return self._reading.parts(catalog, ranges)
        except RocketMQError as error:
            raise SparkSourceError(f"reading {self._reading.subject}: {error}") from None

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is to do: `mqcore.spark.track` tells brokers, and not one batch late."""

    def stop(self) -> None:
        """Spark does not call it; what is open is closed when it lies idle."""

    # -- executors --------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        parts = partition.parts if isinstance(partition, GroupedPartition) else [partition]
        for one in parts:
            if isinstance(one, RangePartition):
                yield from self._reading.read(one)
