"""
The sink's rows as copies: messages of another cluster that stay as they are, each stored once.

A queue's copies come in the order of their origin, one request at a time. So its last copy says how
far it is: a task that may be a repetition looks there, and passes over what is stored.
"""
from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from mqcore.client.message import MessageQueue
from mqcore.spark.columns import BROKEN_BODY, Cutter, picked_by_names
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.options import Options, client_config
from mqcore.spark.topics.catalog import READ_GROUP, Catalog
from mqcore.spark.topics.outbox import Chunk
from mqcore.spark.topics.ranges import Missing, OffsetRange, RangeReader
from mqcore.spark.topics.rows import Group
from mqcore.wire.codes import RETRY_PREFIX
from mqcore.wire.properties import DELAY, TRANSACTION_PREPARED
from mqcore.wire.records import COMPRESSION_MASK, FLAG_COMPRESSED, decode_batch
from mqcore.wire.tags import parse_subscription

# Properties of a copy: where it was.
ORIGIN_PREFIX: Final = "MQCORE_ORIGIN_"
ORIGIN_BROKER: Final = "MQCORE_ORIGIN_BROKER"
ORIGIN_QUEUE_ID: Final = "MQCORE_ORIGIN_QUEUE_ID"
ORIGIN_OFFSET: Final = "MQCORE_ORIGIN_OFFSET"
ORIGIN_STORE_TIME: Final = "MQCORE_ORIGIN_STORE_TIME"       # milliseconds since 1970
ORIGIN_BORN_HOST: Final = "MQCORE_ORIGIN_BORN_HOST"         # address:port
ORIGIN_BODY: Final = "MQCORE_ORIGIN_BODY"                   # of one that nobody can decompress

COLUMNS_NEEDED: Final = {           # that rows have, besides what every sink takes
    "properties": "map<string,string>", "queueId": "int", "queueOffset": "bigint",
    "bornTimestamp": "timestamp", "reconsumeTimes": "int",
}
PULLS: Final = 4
LOOK_BACK: Final = (1, 32, 1_024, 8_192)            # messages before a queue's end
ALONE_BYTES: Final = 1 << 20        # of one message, which no batch has room for then

Origin = tuple[str | None, str | None]

log = logging.getLogger("mqcore.spark")


def check_columns(schema: Any) -> None:
    """Whether a frame can be copied; raises OptionError."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in COLUMNS_NEEDED.items():
        if kinds.get(name) != kind:
            raise OptionError(f"copies need a column {name}, {kind}, as the source rocketmq gives"
                              f" it: the frame has {kinds.get(name, 'none')}")


class Copies:
    """What a task that copies does besides."""

    def __init__(self, options: Options, catalog: Catalog, attempt: int) -> None:
        """attempt: 0 of the first try."""
        self._options = options
        self._catalog = catalog
        self._attempt = attempt
        self._origins: dict[MessageQueue, Origin] = {}      # which old queue goes there
        self._found: dict[MessageQueue, int] = {}       # the last copy when the task began
        self._sent: dict[MessageQueue, int] = {}

    def rest(self, group: Group) -> Group:
        """The rows that their queue does not have yet. Raises SparkSourceError, RocketMQError."""
        queue = group.queue
        if queue is None:
            raise SparkSourceError("copies need a queueId in each row")
        if not group.batch.num_rows:
            return group
        if queue not in self._found:
            self._origins[queue] = _origin_of(group.batch)
            last = self._last_copy(queue)
            if last is None and self._attempt:
                self._check_seen(queue)
            self._found[queue] = -1 if last is None else last
        offsets = _numbers(group.batch, "queueOffset")
        if np.any(np.diff(offsets) <= 0) or offsets[0] <= self._sent.get(queue, -1):
            raise SparkSourceError(f"copies to {queue} do not come in their order: one task has to"
                                   " read a queue whole")
        self._sent[queue] = int(offsets[-1])
        begin = int(np.searchsorted(offsets, self._found[queue], "right"))
        return replace(group, batch=group.batch.slice(begin))

    def runs(self, batch: Any) -> Iterator[tuple[int, int]]:
        """Rows that one request can have: of one born time and count of tries; or a broken one."""
        if not batch.num_rows:
            return
        born, tries = self._born_ms(batch), _numbers(batch, "reconsumeTimes")
        broken = _broken(batch)
        ends = np.flatnonzero((np.diff(born) != 0) | (np.diff(tries) != 0)
                              | broken[1:] | broken[:-1]) + 1
        begin = 0
        for end in [*ends.tolist(), batch.num_rows]:
            yield begin, end
            begin = end

    def mark(self, chunk: Chunk, batch: Any, begin: int, end: int) -> None:
        """Give a chunk what its rows say."""
        offsets = _numbers(batch, "queueOffset")
        chunk.first, chunk.last = str(offsets[begin]), str(offsets[end - 1])
        chunk.born_ms = int(self._born_ms(batch)[begin])
        chunk.reconsumed = int(_numbers(batch, "reconsumeTimes")[begin])
        is_broken = bool(_broken(batch)[begin])
        if is_broken:                   # with its bytes goes what says how they are to be read
            chunk.sys_flag = int(_numbers(batch, "sysFlag")[begin]) & (
                FLAG_COMPRESSED | COMPRESSION_MASK)
        if is_broken or is_alone(chunk.topic) or (
                chunk.count == 1 and len(chunk.body) > ALONE_BYTES):
            item = decode_batch(chunk.body)[0]
            chunk.body, chunk.flag = item.body, item.flag
            chunk.properties = {name: value for name, value in item.properties.items()
                                if name not in (DELAY, TRANSACTION_PREPARED)}

    def is_stored(self, chunk: Chunk) -> bool:
        """Whether a chunk that nobody answered is stored. Raises SparkSourceError."""
        assert chunk.queue is not None
        last = self._last_copy(chunk.queue)
        if last is None or last < int(chunk.first):
            return False
        if last < int(chunk.last):
            raise SparkSourceError(f"{chunk.queue} has a part of a request, up to {last}: the next"
                                   " run goes on there")
        return True

    # -- inside -----------------------------------------------------------------------------------

    def _born_ms(self, batch: Any) -> Any:
        return _numbers(batch, "bornTimestamp") // 1_000

    def _last_copy(self, queue: MessageQueue) -> int | None:
        """The origin's offset of the last copy from there that a queue has; None: its end has none.
        """
        origin = self._origins[queue]
        end = self._catalog.ends([queue])[queue]
        for count in LOOK_BACK:
            begin = max(end - count, 0)
            for properties in reversed(self._properties(queue, begin, end)):
                said = properties.get(ORIGIN_OFFSET, "")
                if said.isdigit() and _origin(properties) == origin:
                    return int(said)
            if begin == 0:
                return None
        log.info("the last %d messages of %s are no copies", LOOK_BACK[-1], queue)
        return None

    def _check_seen(self, queue: MessageQueue) -> None:
        """Whether another try can know that a queue has no copy."""
        if self._catalog.ends([queue])[queue] > LOOK_BACK[-1]:
            raise SparkSourceError(f"others write to {queue}: the last {LOOK_BACK[-1]} messages are"
                                   " no copies, and it cannot be told what is stored; run again")

    def _properties(self, queue: MessageQueue, begin: int, end: int) -> list[dict[str, str]]:
        """Of the messages there; nobody looks at their bodies."""
        topic = self._catalog.wrap(queue.topic)

        def locate() -> str:
            self._catalog.queues(queue.topic)
            return self._catalog.address(queue.broker_name)

        reader = RangeReader(
            client_config(self._options), locate, OffsetRange(queue, begin, end), topic,
            parse_subscription("", "*"), group=READ_GROUP, in_flight=PULLS,
            timeout=self._options["timeout"])
        cutter = Cutter(picked_by_names("properties"))
        return [dict(said) for piece in reader if not isinstance(piece, Missing)
                for said in cutter.cut([piece.records], piece.count, broker=None)[0].to_pylist()]


def plain(group: Group) -> Group:
    """The rows with the bodies that are sent. Raises SparkSourceError for those that have none."""
    import pyarrow.compute as pc

    batch, body = group.batch, group.batch.schema.get_field_index("body")
    if BROKEN_BODY in batch.schema.names:
        batch = batch.set_column(body, "body", pc.coalesce(batch["body"], batch[BROKEN_BODY]))
    if batch["body"].null_count:
        row = batch["body"].is_null().index(True).as_py()
        raise SparkSourceError(
            f"nobody can decompress the body of the message that goes to {group.queue} from offset"
            f" {batch['queueOffset'][row]}: --broken raw copies such bodies as they are stored")
    return replace(group, batch=batch)


def _broken(batch: Any) -> Any:
    """Which rows' bodies are as they are stored, since nobody can decompress them."""
    if BROKEN_BODY not in batch.schema.names:
        return np.zeros(batch.num_rows, bool)
    return batch[BROKEN_BODY].is_valid().to_numpy(zero_copy_only=False)


def is_alone(topic: str) -> bool:
    """Brokers take no batches for groups' retry topics."""
    return topic.startswith(RETRY_PREFIX)


def _origin(properties: Mapping[str, str]) -> Origin:
    return properties.get(ORIGIN_BROKER), properties.get(ORIGIN_QUEUE_ID)


def _origin_of(batch: Any) -> Origin:
    """Which queue the rows are copied from: broker and number."""
    said = dict(batch.column("properties")[0].as_py() or ())
    if None in _origin(said) or not said.get(ORIGIN_OFFSET):
        raise SparkSourceError(f"copies need the properties {ORIGIN_BROKER}, {ORIGIN_QUEUE_ID} and"
                               f" {ORIGIN_OFFSET} in each row")
    return _origin(said)


def _numbers(batch: Any, name: str) -> Any:
    """A column of numbers, or microseconds."""
    column = batch.column(name)
    if column.null_count:
        raise SparkSourceError(f"copies need a {name} in each row")
    kind = "int64" if column.type.bit_width == 64 else "int32"
    return np.asarray(column.cast(kind) if str(column.type) != kind else column)

