"""What a sink takes: the columns of rows, and rows as messages of a topic and a queue."""
from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from mqcore.client.core.selection import queue_by_shard
from mqcore.client.errors import ConfigError
from mqcore.client.message import MessageQueue
from mqcore.client.native.arrow_rows import ArrowRows
from mqcore.spark.arrow_groups import alike
from mqcore.spark.columns import COLUMNS, MAP, TEXTS
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.wire.properties import DELAY, TIMER_DELIVER_MS

WRITTEN: Mapping[str, tuple[str, ...]] = {
    "body": ("binary", "string"), "topic": ("string",), "tags": ("string",),
    "keys": ("string", TEXTS), "properties": (MAP,), "queueId": ("int", "bigint"),
    "brokerName": ("string",), "delayTimeLevel": ("int", "bigint"), "deliverAt": ("timestamp",),
    "shardingKey": ("string", "int", "bigint"), "flag": ("int",),
}
_LOWER = {name.lower(): name for name in WRITTEN}
_READ = {column.name.lower() for column in COLUMNS}     # what a frame from a topic has besides
LEVEL_MAX = 18
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Queues = Callable[[str], list[MessageQueue]]


def checked_columns(schema: Any, topic: str | None) -> dict[str, str]:
    """The columns that are written: our name -> the frame's. Raises OptionError."""
    found = {}
    for field in schema.fields:
        low = field.name.lower()
        name = _LOWER.get(low)
        if name is None:
            if low in _READ:
                continue
            near = difflib.get_close_matches(low, list(_LOWER), 1)
            hint = f"did you mean {_LOWER[near[0]]}?" if near else f"it takes {', '.join(WRITTEN)}"
            raise OptionError(f"the sink has no column {field.name}: {hint}")
        kind = field.dataType.simpleString()
        if kind not in WRITTEN[name]:
            raise OptionError(
                f"the sink's column {name} is {kind}: expected {' or '.join(WRITTEN[name])}")
        found[name] = field.name
    if "body" not in found:
        raise OptionError("the sink needs a column body, binary or string")
    if topic is None and "topic" not in found:
        raise OptionError("the sink needs the option topic, or a column topic")
    return found


@dataclass(frozen=True, slots=True)
class Group:
    """
    Rows of one record batch that go one way.

    queue  None: any
    delay  the property, name and text, that lets a broker keep the messages back; None: none
    """

    topic: str
    queue: MessageQueue | None
    delay: tuple[str, str] | None
    batch: Any


class Grouping:
    """Parts record batches by topic, queue and delay; rows of a group keep their order."""

    def __init__(self, columns: Mapping[str, str], topic: str | None, queues: Queues) -> None:
        """
        columns  as `checked_columns` gives them
        topic    of all rows; None: the column says it
        queues   the queues of a topic, for sharding keys and queue ids
        """
        self._columns = columns
        self._topic = topic
        self._queues = queues

    def groups(self, batch: Any) -> Iterator[Group]:
        """In the order of the values. Raises SparkSourceError."""
        parts = [name for name in ("topic", "queueId", "brokerName", "shardingKey",
                                   "delayTimeLevel", "deliverAt")
                 if name in self._columns and not (name == "topic" and self._topic is not None)]
        if not parts:
            yield Group(self._topic or "", None, None, batch)
            return
        distinct, inverse = alike([batch.column(self._columns[name]) for name in parts])
        ways: dict[tuple[str, MessageQueue | None, tuple[str, str] | None], int] = {}
        way_of = np.array([ways.setdefault(self._way(dict(zip(parts, values, strict=True))),
                                           len(ways)) for values in distinct], np.int64)
        if len(ways) == 1:
            yield Group(*next(iter(ways)), batch)
            return
        of_rows = way_of[inverse]
        for way, number in ways.items():
            yield Group(*way, batch.take(np.flatnonzero(of_rows == number)))

    def _way(
        self, said: Mapping[str, Any],
    ) -> tuple[str, MessageQueue | None, tuple[str, str] | None]:
        topic = self._topic or said["topic"]
        if not topic:
            raise SparkSourceError("a row has no topic: give the option topic")
        queue = None
        if said.get("queueId") is not None:
            queue = self._named(topic, said.get("brokerName"), said["queueId"])
        elif said.get("shardingKey") is not None:
            queue = queue_by_shard(self._queues(topic), said["shardingKey"])
        return topic, queue, _delay(said.get("delayTimeLevel") or 0, said.get("deliverAt"))

    def _named(self, topic: str, broker: str | None, queue_id: int) -> MessageQueue:
        found = [queue for queue in self._queues(topic)
                 if queue.queue_id == queue_id and broker in (None, queue.broker_name)]
        if len(found) != 1:
            on = f" on broker {broker}" if broker else ""
            why = "is not there" if not found else "is on several brokers: give brokerName, too"
            raise SparkSourceError(f"queue {queue_id} of topic {topic}{on} {why}; without the"
                                   " column queueId rows go to any queue")
        return found[0]


def _delay(level: int, at: datetime | None) -> tuple[str, str] | None:
    """The property of a delay by level, or until a moment."""
    if not 0 <= level <= LEVEL_MAX:
        raise SparkSourceError(f"delayTimeLevel {level}: expected 0 to {LEVEL_MAX}")
    if at is None:
        return (DELAY, str(level)) if level else None
    if level:
        raise SparkSourceError(f"a row has delayTimeLevel {level} and deliverAt {at}: expected"
                               " only one")
    return TIMER_DELIVER_MS, str(max(0, -((_EPOCH - at) // timedelta(milliseconds=1))))


def messages(batch: Any, columns: Mapping[str, str], *, verbatim: bool = False) -> ArrowRows:
    """
    The rows of a record batch, ready to be written.

    verbatim  `properties` are all that messages have, tags and ids too
    Raises SparkSourceError.
    """
    import pyarrow as pa

    def texts(array: Any) -> Any:
        if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
            array = array.cast(pa.binary())
        there, ends, data = map(_bytes, array.buffers())
        return there, ends, data, array.offset

    def rows(array: Any) -> Any:
        there, ends = map(_bytes, array.buffers()[:2])
        return there, ends, None, array.offset

    given: dict[str, Any] = {}
    if "tags" in columns:
        given["tags"] = texts(batch.column(columns["tags"]))
    if "keys" in columns:
        keys = batch.column(columns["keys"])
        if pa.types.is_list(keys.type):
            given["keys"], given["keys_rows"] = texts(keys.values), rows(keys)
        else:
            given["keys"] = texts(keys)
    if "properties" in columns:
        items = batch.column(columns["properties"])
        given["names"], given["values"] = texts(items.keys), texts(items.items)
        given["map_rows"] = rows(items)
    if "flag" in columns:
        flags = batch.column(columns["flag"]).fill_null(0)
        given["flags"] = (None, _bytes(flags.buffers()[1]), None, flags.offset)
    try:
        return ArrowRows(batch.num_rows, texts(batch.column(columns["body"])), verbatim=verbatim,
                         **given)
    except ConfigError as error:
        raise SparkSourceError(str(error)) from None


def _bytes(buffer: Any) -> memoryview | None:
    """An Arrow buffer as bytes."""
    return None if buffer is None else memoryview(buffer).cast("B")
