"""Messages as consumers get them (client.md 2.14)."""
from __future__ import annotations

import json
from typing import Any, Self

from mqcore.client.message import MessageQueue
from mqcore.client.native.records import StoredRecord, fill, set_bounds
from mqcore.wire import properties as names
from mqcore.wire.ids import offset_message_id
from mqcore.wire.properties import TRANSACTION_PREPARED
from mqcore.wire.records import Record, encode_record


class ReceivedMessage(StoredRecord):
    """A message that was pulled. Its fields are decoded when they are first looked at.

    topic              the one that it was sent to, also when it comes again
    queue              where it was pulled from; `queue_offset` is its place there
    body               decompressed; raises RecordError when that fails. `body_size` is as stored
    properties         all properties, a dict of this message
    reconsume_times    how often it was tried before
    born_timestamp_ms  when it was sent, store_timestamp_ms when it was stored; epoch ms
    """

    __slots__ = ()

    @classmethod
    def from_record(cls, record: Record, queue: MessageQueue) -> Self:
        """What `record`, from `queue`, is to an application; raises RecordError."""
        return cls.from_bytes(encode_record(record), queue)

    @classmethod
    def from_bytes(cls, record: bytes, queue: MessageQueue) -> Self:
        """One record as brokers store it, from `queue`; raises RecordError."""
        message = cls.__new__(cls)
        fill(message, record, queue)
        return message

    @property
    def offset_message_id(self) -> str:
        """The broker's id: its address and the place in its log."""
        return offset_message_id(*self.store_host, self.commit_log_offset)

    @property
    def message_id(self) -> str:
        """The message id of clients: UNIQ_KEY, else the broker's id."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_message_id

    @property
    def transaction_id(self) -> str | None:
        """Of a transaction's message; None: it is none."""
        if self.properties.get(TRANSACTION_PREPARED) != "true":
            return None
        return self.properties.get(names.UNIQ_KEY)

    @property
    def tags(self) -> str | None:
        """The tags that its sender gave to filter by; None without."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys that its sender gave to find it by."""
        return self.properties.get(names.KEYS, "").split()

    @property
    def user_properties(self) -> dict[str, str]:
        """Those of `properties` that are the application's, not RocketMQ's own."""
        return names.user_properties(self.properties)

    @property
    def delay_level(self) -> int:
        """1 to 18 if it was sent to be delivered later, else 0."""
        return int(self.properties.get(names.DELAY, "0"))

    def text(self) -> str:
        """The body as UTF-8; raises UnicodeDecodeError."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON; raises ValueError."""
        return json.loads(self.body)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles, for another process, as a ReceivedMessage: only the consumer that has it can say
        that it is done."""
        return _restored, (self.record, self.queue, self.topic, self.reconsume_times, self.bounds)

    def __repr__(self) -> str:
        return (f"<{type(self).__name__} {self.topic} {self.queue.broker_name}"
                f"/{self.queue.queue_id} offset {self.queue_offset}, {self.body_size} bytes>")


def _restored(record: bytes, queue: MessageQueue, topic: str, reconsume_times: int,
              bounds: tuple[int, int]) -> ReceivedMessage:
    message = ReceivedMessage.from_bytes(record, queue)
    message.topic, message.reconsume_times = topic, reconsume_times
    set_bounds(message, *bounds)
    return message
