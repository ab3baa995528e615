"""Messages, queues and results as applications see them (client.md 2.8, 2.14)."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from mqcore.wire import properties as names
from mqcore.wire.records import Record


@dataclass(slots=True, frozen=True, order=True)
class MessageQueue:
    """One queue of a topic; the order is the one that all members of a group agree on."""

    topic: str
    broker_name: str
    queue_id: int


class Message:
    """A message to send.

    `keys` may be several; `delay_level` 1 to 18 delays it; `wait_store` False does not wait for the
    disk. Raises ValueError for a reserved or blank property name.
    """

    __slots__ = ("body", "flag", "properties", "topic")

    def __init__(
        self, topic: str, body: bytes | str = b"", *, tags: str | None = None,
        keys: str | Iterable[str] | None = None, properties: Mapping[str, str] | None = None,
        delay_level: int = 0, flag: int = 0, wait_store: bool = True,
    ) -> None:
        self.topic = topic
        self.body = body.encode() if isinstance(body, str) else body
        self.flag = flag
        self.properties: dict[str, str] = {names.WAIT: "true" if wait_store else "false"}
        if tags:
            self.properties[names.TAGS] = tags
        if keys:
            self.properties[names.KEYS] = keys if isinstance(keys, str) else " ".join(keys)
        if delay_level:
            self.properties[names.DELAY] = str(delay_level)
        for name, value in (properties or {}).items():
            self.set_property(name, value)

    def set_property(self, name: str, value: str) -> None:
        """Set a property of the application's own."""
        if name in names.RESERVED:
            raise ValueError(f"property {name!r} is reserved")
        if not name.strip() or not value.strip():
            raise ValueError(f"property {name!r}: expected a name and a value that are not blank")
        self.properties[name] = value

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(names.KEYS, "").split()

    @property
    def delay_level(self) -> int:
        return int(self.properties.get(names.DELAY, "0"))

    @property
    def wait_store(self) -> bool:
        return self.properties.get(names.WAIT, "true") == "true"

    @property
    def unique_key(self) -> str | None:
        return self.properties.get(names.UNIQ_KEY)


class SendStatus(IntEnum):
    """All four mean that the master has the message; the last three not what was waited for."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


@dataclass(slots=True, frozen=True)
class SendResult:
    """Where a message went; a batch joins its ids by commas."""

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    region_id: str = "DefaultRegion"


@dataclass(slots=True)
class ReceivedMessage:
    """A message that was pulled; `body` is decompressed."""

    topic: str
    body: bytes
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    commit_log_offset: int
    properties: dict[str, str]
    flag: int
    sys_flag: int
    reconsume_times: int
    born_timestamp_ms: int
    born_host: tuple[str, int]
    store_timestamp_ms: int
    store_host: tuple[str, int]
    store_size: int

    @classmethod
    def from_record(cls, record: Record, queue: MessageQueue) -> ReceivedMessage:
        """What `record`, pulled from `queue`, is to an application; raises RecordError."""
        return cls(
            topic=record.topic, body=record.plain_body(), message_id=record.message_id,
            offset_message_id=record.offset_message_id, queue=queue,
            queue_offset=record.queue_offset, commit_log_offset=record.physical_offset,
            properties=record.properties, flag=record.flag, sys_flag=record.sys_flag,
            reconsume_times=record.reconsume_times, born_timestamp_ms=record.born_timestamp_ms,
            born_host=record.born_host, store_timestamp_ms=record.store_timestamp_ms,
            store_host=record.store_host, store_size=record.size,
        )

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(names.KEYS, "").split()


class PullStatus(IntEnum):
    FOUND = 0
    NO_NEW_MESSAGE = 1
    NO_MATCHED_MESSAGE = 2
    OFFSET_ILLEGAL = 3


@dataclass(slots=True)
class PullResult:
    """One answer to a pull; `messages` is already filtered by tag text."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = 0
    messages: list[ReceivedMessage] = field(default_factory=list)
