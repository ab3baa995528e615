"""What driver and executors of a read share: its options, its tasks, and what a task does."""
from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition

from mqcore.client.core.namespace import wrap
from mqcore.client.errors import RocketMQError
from mqcore.filter.sql92_filter import Filter
from mqcore.spark.columns import Cutter, Picked
from mqcore.spark.errors import DataLoss, OptionError, SparkSourceError, one_line
from mqcore.spark.options import Options, client_config
from mqcore.spark.topics.catalog import READ_GROUP, Catalog, catalog_of
from mqcore.spark.topics.positions import Subject, shown
from mqcore.spark.topics.ranges import FetchedRecords, Missing, OffsetRange, RangeReader
from mqcore.spark.topics.views import NOT_PULLED, ViewReader
from mqcore.wire.records import RecordError
from mqcore.wire.tags import (
    EXPRESSION_SQL92,
    SUBSCRIBE_ALL,
    Subscription,
    parse_subscription,
)

log = logging.getLogger("mqcore.spark")


class RangePartition(InputPartition):
    """One task: a range of one queue; `topic` as brokers know it, `address` "" when not known."""

    def __init__(self, one: OffsetRange, topic: str, address: str) -> None:
        super().__init__(None)
        self.range = one
        self.topic = topic
        self.address = address


    @property
    def size(self) -> int:
        """Offsets."""
        return self.range.end - self.range.begin


class GroupedPartition(InputPartition):
    """One task: several ranges, one after the other."""

    def __init__(self, parts: list[RangePartition]) -> None:
        super().__init__(None)
        self.parts = parts


def grouped(
    parts: Iterable[RangePartition], fits: Callable[[int, int], bool],
) -> Iterator[GroupedPartition]:
    """
    The ranges in their order, in as few tasks as may be.

    fits  whether a range of so many offsets (its second argument) joins a task that has some
    """
    waiting: list[RangePartition] = []
    size = 0
    for one in parts:
        if waiting and not fits(size, one.size):
            yield GroupedPartition(waiting)
            waiting, size = [], 0
        waiting.append(one)
        size += one.size
    if waiting:
        yield GroupedPartition(waiting)


def split(
    ranges: Iterable[OffsetRange], tasks_min: int | None, records_max: int | None,
) -> list[OffsetRange]:
    """Ranges of about equal size: at least `tasks_min` if there are so many offsets, and none of
    more than `records_max`."""
    wanted = [one for one in ranges if one.begin < one.end]
    total = sum(one.end - one.begin for one in wanted)
    size_max = min(records_max or total, max(1, total // (tasks_min or 1)))
    found = []
    for one in wanted:
        size = one.end - one.begin
        count = -(-size // size_max)
        bounds = [one.begin + size * part // count for part in range(count + 1)]
        found += [OffsetRange(one.queue, begin, end)
                  for begin, end in itertools.pairwise(bounds)]
    return found


class TopicRead:
    """One read, as it is sent to executors."""

    def __init__(self, options: Options, picked: Picked) -> None:
        """Raises OptionError."""
        self.options = options
        self.picked = picked
        self.subject = Subject(options)
        self.subscription = _subscription(options)
        client_config(options)              # what is wrong there is told before tasks begin

    @property
    def fails(self) -> bool:
        """Whether missing offsets are an error."""
        return bool(self.options["failOnDataLoss"])

    def parts(self, catalog: Catalog, ranges: Iterable[OffsetRange]) -> list[RangePartition]:
        """The tasks for these ranges."""
        parts = split(ranges, self.options["minPartitions"],
                      self.options["maxRecordsPerPartition"])
        known: dict[tuple[str, str], str] = {}
        for queue in {part.queue for part in parts}:
            place = queue.topic, queue.broker_name
            if place not in known:
                known[place] = _address(catalog, *place)
        return [RangePartition(part, catalog.wrap(part.queue.topic),
                      known[part.queue.topic, part.queue.broker_name]) for part in parts]

    def lost(self, queue: Any, begin: int, end: int, why: str) -> None:
        """Say that offsets are not there: DataLoss, or a line in the log."""
        text = (f"offsets {begin} to {end - 1} of {shown(queue)} cannot be read: {why}")
        if self.fails:
            raise DataLoss(f"{text}; begin further on, or go over them with"
                           " failOnDataLoss=false") from None
        log.warning("%s; failOnDataLoss=false goes over them", text)

    def read(self, part: RangePartition) -> Iterator[Any]:
        """The record batches of a task. Raises SparkSourceError."""
        batches = self._read(part)
        following = one_line(functools.partial(next, batches, None))
        with contextlib.closing(batches):
            while (batch := following()) is not None:
                yield batch

    def _read(self, part: RangePartition) -> Generator[Any, None, None]:
        try:
            yield from self._batches(part)
        except RocketMQError as error:
            raise SparkSourceError(f"reading {shown(part.range.queue)}: {error}") from None

    def _batches(self, part: RangePartition) -> Iterator[Any]:
        options, queue = self.options, part.range.queue
        config = client_config(options)
        if part.topic in NOT_PULLED and self.subscription.expression != SUBSCRIBE_ALL:
            raise SparkSourceError(f"brokers do not filter topic {part.topic}: leave subExpression"
                                   " out")
        locate, limits = _Locator(options, part), {
            "in_flight": options["pullsInFlight"], "timeout": options["timeout"]}
        reader: Iterable[FetchedRecords | Missing] = RangeReader(
            config, locate, part.range, part.topic, self.subscription,
            group=wrap(config.namespace, options["group"]) if options["group"] else READ_GROUP,
            **limits
        ) if part.topic not in NOT_PULLED else ViewReader(config, locate, part.range, **limits)
        cutter = Cutter(self.picked)
        rows_max, bytes_max = options["rowsPerBatch"], options["bytesPerBatch"]
        bodies: list[bytes] = []
        count = size = 0

        def cut() -> Iterator[Any]:
            try:
                yield from cutter.cut_all(
                    bodies, count, broker=queue.broker_name, topic=queue.topic)
            except RecordError as error:
                raise DataLoss(f"{shown(queue)} holds what cannot be read: {error}") from None

        for piece in reader:
            if isinstance(piece, Missing):
                if count:
                    yield from cut()
                    bodies, count, size = [], 0, 0
                self.lost(queue, piece.begin, piece.end, piece.why)
                if "gapEnd" in self.picked:
                    yield cutter.gap(queue.topic, queue.broker_name, queue.queue_id, piece.begin,
                                     piece.end)
                continue
            bodies.append(piece.records)
            count += piece.count
            size += len(piece.records)
            if count >= rows_max or size >= bytes_max:
                yield from cut()
                bodies, count, size = [], 0, 0
        if count:
            yield from cut()


class _Locator:
    """Where a range's broker is: what the driver said, then what name servers say."""

    def __init__(self, options: Options, part: RangePartition) -> None:
        self._options = options
        self._part = part
        self._said = part.address

    def __call__(self) -> str:
        said, self._said = self._said, ""
        if said:
            return said
        queue = self._part.range.queue
        with catalog_of(self._options) as catalog:
            catalog.queues(queue.topic)
            return catalog.address(queue.broker_name)


def _address(catalog: Catalog, topic: str, broker_name: str) -> str:
    try:
        catalog.queues(topic)
        return catalog.address(broker_name)
    except RocketMQError as error:
        log.info("no address of %s yet, its tasks will ask: %s", broker_name, error)
        return ""


def _subscription(options: Options) -> Subscription:
    expression, kind = options["subExpression"], options["subExpressionType"].upper()
    try:
        if kind == EXPRESSION_SQL92:
            Filter.compile(expression)      # brokers let everything pass one that they cannot
        return parse_subscription("", expression, expression_type=kind)
    except ValueError as error:
        raise OptionError(f"subExpression {expression!r}: {error}") from None
