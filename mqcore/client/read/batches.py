"""Results of a reader: stored records, the same in Arrow, gaps."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mqcore.client.errors import ClientError, RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.client.native.columns import TooMuch, columns
from mqcore.client.native.records import cut
from mqcore.client.received import ReceivedMessage
from mqcore.wire.records import RecordError, decode_record


class ReadGap(RocketMQError):
    """
    Offsets of a queue that a reader should have read and that are not there.

    queue       the MessageQueue
    begin, end  the offsets that are missing: from `begin` on, below `end`
    """

    def __init__(self, queue: MessageQueue, begin: int, end: int, message: str) -> None:
        super().__init__(message, topic=queue.topic)
        self.queue = queue
        self.begin = begin
        self.end = end


def halves(bodies: Sequence[bytes], count: int) -> tuple[list[bytes], int, list[bytes], int]:
    """Records, `count` together, cut in the middle: the first ones and how many, and the others.

    Raises RecordError for fewer than two.
    """
    if count < 2:
        raise RecordError(f"{count} messages: expected two or more to cut in the middle")
    first: list[bytes] = []
    wanted = count // 2
    for index, body in enumerate(bodies):
        at = 0
        while at < len(body) and wanted:
            at += int.from_bytes(body[at:at + 4], "big")
            wanted -= 1
        first.append(body[:at])
        if not wanted:
            rest = [body[at:], *bodies[index + 1:]]
            return first, count // 2, [one for one in rest if one], count - count // 2
    raise RecordError(f"fewer than {count} messages")


@dataclass(slots=True, frozen=True)
class RawBatch:
    """
    Messages of one queue, as the broker stores them (docs/protocol/store.md 2.1).

    queue        where they are from
    records      the records end to end, bodies as sent: maybe compressed
    count        how many
    begin, next  the offsets that were read: from `begin` on, below `next`; filtered ones too
    store_timestamp_ms  of the first one
    """

    queue: MessageQueue
    records: bytes
    count: int
    begin: int
    next: int
    store_timestamp_ms: int

    def __len__(self) -> int:
        return self.count

    def halves(self) -> tuple[RawBatch, RawBatch]:
        """Two of about half as many messages; raises RecordError for one message."""
        (first,), count, (rest,), others = halves([self.records], self.count)
        middle = decode_record(rest[:int.from_bytes(rest[:4], "big")])
        return (replace(self, records=first, count=count, next=middle.queue_offset),
                replace(self, records=rest, count=others, begin=middle.queue_offset,
                        store_timestamp_ms=middle.store_timestamp_ms))

    def messages(self) -> list[ReceivedMessage]:
        """The messages; raises ClientError for bytes that are none."""
        try:
            return cut(self.records, ReceivedMessage, self.queue)
        except RecordError as error:
            raise ClientError(f"{self.queue}: {error}", topic=self.queue.topic) from error


def arrow() -> Any:
    """The module pyarrow; raises ClientError, saying how to install it."""
    try:
        import pyarrow
    except ImportError as error:
        raise ClientError("Arrow batches need pyarrow: pip install 'mqcore[arrow]'") from error
    return pyarrow


def arrow_schema() -> Any:
    """The pyarrow.Schema of Arrow batches; raises ClientError without pyarrow."""
    pa = arrow()
    name = pa.dictionary(pa.int32(), pa.string())
    time = pa.timestamp("ms", tz="UTC")
    return pa.schema([
        pa.field("topic", name, nullable=False),
        pa.field("broker", name, nullable=False),
        pa.field("queue", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("store_time", time, nullable=False),
        pa.field("born_time", time, nullable=False),
        pa.field("message_id", pa.string(), nullable=False),
        pa.field("tags", pa.string()),
        pa.field("keys", pa.list_(pa.string()), nullable=False),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("sys_flag", pa.int32(), nullable=False),
        pa.field("reconsume_times", pa.int32(), nullable=False),
        pa.field("log_position", pa.int64(), nullable=False),
    ])


def arrow_batch(batches: list[RawBatch], schema: Any) -> Any:
    """
    One pyarrow.RecordBatch of the messages of `batches`, in their order; bodies decompressed.

    schema is what `arrow_schema` gave. Most work runs without the GIL. Raises TooMuch when they
    have to be cut fewer at a time, ClientError for records that cannot be read.
    """
    pa = arrow()
    total = sum(batch.count for batch in batches)
    try:
        made = columns([batch.records for batch in batches], total)
    except TooMuch:
        raise
    except RecordError as error:
        raise ClientError(f"{batches[0].queue} and others: {error}") from error
    types = {field.name: field.type for field in schema}

    def numbers(name: str, data: bytes) -> Any:
        return pa.Array.from_buffers(types[name], total, [None, pa.py_buffer(data)])

    def texts(kind: Any, count: int, ends: bytes, data: bytes, there: bytes | None = None,
              missing: int = 0) -> Any:
        valid = None if there is None else pa.py_buffer(there)
        return pa.Array.from_buffers(
            kind, count, [valid, pa.py_buffer(ends), pa.py_buffer(data)], missing)

    def nested(name: str, rows: bytes, child: Any) -> Any:
        return pa.Array.from_buffers(types[name], total, [None, pa.py_buffer(rows)],
                                     children=[child])

    mapped = types["properties"]
    items = pa.Array.from_buffers(
        pa.struct([mapped.key_field, mapped.item_field]), made.item_count, [None],
        children=[texts(pa.string(), made.item_count, made.names_ends, made.names),
                  texts(pa.string(), made.item_count, made.values_ends, made.values)])
    keys = texts(pa.string(), made.key_count, made.keys_ends, made.keys)
    places = _places(pa, batches)
    return pa.RecordBatch.from_arrays([
        *places,
        numbers("offset", made.queue_offset),
        numbers("store_time", made.store_time),
        numbers("born_time", made.born_time),
        texts(pa.string(), total, made.ids_ends, made.ids),
        texts(pa.string(), total, made.tags_ends, made.tags, made.tags_there, made.tags_missing),
        nested("keys", made.keys_rows, keys),
        nested("properties", made.items_rows, items),
        texts(pa.binary(), total, made.body_ends, made.body),
        numbers("flag", made.flag),
        numbers("sys_flag", made.sys_flag),
        numbers("reconsume_times", made.reconsume_times),
        numbers("log_position", made.log_position),
    ], schema=schema)


def _places(pa: Any, batches: list[RawBatch]) -> list[Any]:
    """The columns topic, broker and queue: the same for all rows of one batch."""
    topics: dict[str, int] = {}
    brokers: dict[str, int] = {}
    rows: list[list[bytes]] = [[], [], []]
    for batch in batches:
        queue = batch.queue
        for column, number in enumerate((
                topics.setdefault(queue.topic, len(topics)),
                brokers.setdefault(queue.broker_name, len(brokers)), queue.queue_id)):
            rows[column].append(number.to_bytes(4, "little") * batch.count)
    total = sum(batch.count for batch in batches)
    topic, broker, number = (
        pa.Array.from_buffers(pa.int32(), total, [None, pa.py_buffer(b"".join(parts))])
        for parts in rows)
    return [pa.DictionaryArray.from_arrays(topic, pa.array(list(topics), pa.string())),
            pa.DictionaryArray.from_arrays(broker, pa.array(list(brokers), pa.string())), number]
