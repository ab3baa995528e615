"""Messages, queues and results as applications see them (client.md 2.8, 2.14)."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, NamedTuple

from mqcore.client.core.options import whole
from mqcore.client.errors import ConfigError
from mqcore.client.native.messages import MessageCore, ResultCore
from mqcore.wire import properties as names
from mqcore.wire.recall_handle import RecallOutcome


@dataclass(slots=True, frozen=True, order=True)
class MessageQueue:
    """One queue of a topic; the order is the one that all members of a group agree on.

    broker_name   of the broker, or of the master and its slaves
    queue_id      0 to the topic's number of queues on that broker - 1
    """

    topic: str
    broker_name: str
    queue_id: int


def _bytes_of(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise ConfigError(f"body: expected bytes or str, not {type(body).__name__}")


def _joined(keys: Iterable[str]) -> str:
    try:
        return " ".join(keys)
    except TypeError:
        raise ConfigError(f"keys {keys!r}: expected a str, or several") from None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _milliseconds(delay: float | timedelta) -> int:
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not math.isfinite(delay):
        raise ConfigError(f"delay {delay!r}: expected seconds or a timedelta")
    if delay < 0:
        raise ConfigError(f"delay {delay!r}: expected 0 or more")
    return math.ceil(delay * 1000 - 1e-6)


def _time(deliver_at: object) -> int:
    if not isinstance(deliver_at, datetime):
        raise ConfigError(f"deliver_at {deliver_at!r}: expected a datetime")
    if deliver_at.utcoffset() is None:
        raise ConfigError(f"deliver_at {deliver_at}: expected a zone, as datetime.now(UTC) has or"
                          " .astimezone() gives")
    return max(-(-(deliver_at - _EPOCH) // timedelta(milliseconds=1)), 0)


class Message(MessageCore):
    """A message to send (client.md 2.14).

    topic        where it goes: 1 to 127 of a-z A-Z 0-9 % | - _
    body         bytes; a str is sent as UTF-8
    tags         what consumers filter by: one tag as a rule
    keys         what it can be found by; one, or several
    properties   the application's own, str to str; brokers keep 32,767 bytes of all together
    delay_level  1 to 18: consumers get it later (1 s, 5 s, 10 s, 30 s, 1 min ... 2 h)
    delay        consumers get it so much later: seconds, as exact as a millisecond, or a timedelta
    deliver_at   consumers get it then: a datetime with a zone. Brokers of 4.9 deliver both at once
    flag         a number of the application's own, 32 bits
    wait_store   False: the answer does not wait for the disk
    Raises ConfigError, naming the parameter.
    """

    __slots__ = ()

    def __init__(
        self, topic: str, body: bytes | bytearray | memoryview | str = b"", *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None, properties: Mapping[str, str] | None = None,
        delay_level: int = 0, delay: float | timedelta | None = None,
        deliver_at: datetime | None = None, flag: int = 0, wait_store: bool = True,
    ) -> None:
        self.topic: str = topic
        self.body: bytes = body if type(body) is bytes else _bytes_of(body)
        self.flag: int = flag and whole(flag, "flag", -(1 << 31), (1 << 31) - 1)
        if tags is not None and not isinstance(tags, str):
            raise ConfigError(f"tags {tags!r}: expected a str")
        joined = keys if keys is None or isinstance(keys, str) else _joined(keys)
        self.describe(wait_store, tags or None, joined or None)
        if delay_level:
            self.properties[names.DELAY] = str(whole(delay_level, "delay_level", 0, 18))
        if delay is not None or deliver_at is not None:
            if bool(delay_level) + (delay is not None) + (deliver_at is not None) > 1:
                raise ConfigError("delay_level, delay and deliver_at: expected only one")
            if delay is not None:
                self.properties[names.TIMER_DELAY_MS] = str(_milliseconds(delay))
            else:
                self.properties[names.TIMER_DELIVER_MS] = str(_time(deliver_at))
        if properties:
            for name, value in properties.items():
                self.set_property(name, value)

    def set_property(self, name: str, value: str) -> None:
        """Set a property of the application's own.

        name, value   not blank, without the characters 1 and 2
        Raises ConfigError, also for a name that is reserved.
        """
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigError(f"property {name!r}: {value!r}: expected two str")
        if name in names.RESERVED:
            raise ConfigError(f"property {name!r} is reserved")
        if not name.strip() or not value.strip():
            raise ConfigError(f"property {name!r}: expected a name and a value that are not blank")
        if any(mark in name or mark in value for mark in (names.NAME_END, names.ITEM_END)):
            raise ConfigError(f"property {name!r}: expected no characters 1 and 2")
        self.properties[name] = value

    @property
    def user_properties(self) -> dict[str, str]:
        """Those of `properties` that are the application's, not RocketMQ's own."""
        return names.user_properties(self.properties)

    @property
    def tags(self) -> str | None:
        """The tags that consumers filter by; None without."""
        return self.property_text(names.TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys that queries find it by."""
        return (self.property_text(names.KEYS) or "").split()

    @property
    def delay_level(self) -> int:
        """1 to 18: consumers get it later; 0: at once."""
        return int(self.property_text(names.DELAY) or "0")

    @property
    def delay(self) -> float | None:
        """Seconds after which consumers get it; None without."""
        given = self.property_text(names.TIMER_DELAY_MS)
        return None if given is None else int(given) / 1000

    @property
    def deliver_at(self) -> datetime | None:
        """When consumers get it, in UTC; None without."""
        given = self.property_text(names.TIMER_DELIVER_MS)
        return None if given is None else _EPOCH + timedelta(milliseconds=int(given))

    @property
    def wait_store(self) -> bool:
        """Whether the answer waits for the disk, if the broker does."""
        return (self.property_text(names.WAIT) or "true") == "true"

    @property
    def unique_key(self) -> str | None:
        """The client's message id, once it is sent; None before."""
        return self.property_text(names.UNIQ_KEY)


class SendStatus(IntEnum):
    """All four mean that the master has the message; the last three not what was waited for."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


@dataclass(slots=True)
class SendResult(ResultCore):
    """Where a message went (client.md 2.8); one of `send_batch` joins its ids by commas.

    message_id         UNIQ_KEY, made by the client; the same for all tries
    offset_message_id  the broker's: its address and the place in its log
    queue_offset       of a batch: its first message's
    transaction_id     "" unless the broker gave one
    is_traced          whether the broker wants trace messages for it
    recall_handle      takes a message with a time of delivery back (`producer.recall`); else ""

    `recall()` does so with the producer that sent it.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    region_id: str = "DefaultRegion"
    transaction_id: str = ""
    is_traced: bool = True
    recall_handle: str = ""

    def recall(self, *, timeout: float | None = None) -> Any:
        """The result of the producer's `recall` for this message; an awaitable with asyncio.

        timeout   seconds; None: the option send_timeout
        Raises ConfigError when the message had no time of delivery.
        """
        raise ConfigError(f"message {self.message_id} has no recall_handle: it was sent without a"
                          " time of delivery, or to a broker that takes nothing back")


class TimedSendResult(SendResult):
    """That of a message with a time of delivery."""

    __slots__ = ("recaller",)
    recaller: Callable[..., Any]

    def recall(self, *, timeout: float | None = None) -> Any:
        return self.recaller(self, timeout=timeout)


class RecallResult(NamedTuple):
    """The outcome of a recall; `outcome` is the broker's (docs/client/producer.md)."""

    message_id: str
    outcome: RecallOutcome

    @property
    def recalled(self) -> bool:
        """Whether it was in time, this one or an earlier one."""
        return self.outcome is RecallOutcome.RECALLED


class PullStatus(IntEnum):
    """A broker's answer to a pull: messages, none yet, none that match, or none at that offset."""
    FOUND = 0
    NO_NEW_MESSAGE = 1
    NO_MATCHED_MESSAGE = 2
    OFFSET_ILLEGAL = 3
