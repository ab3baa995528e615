"""
The client of a user who may not see all of messages: what it brings has its masked fields hidden.

Each message that it hands out is masked, so that every page, search and file is. It refuses a
search in which a broker compares what is hidden, since the answer would tell it. A message that is
sent again goes unmasked.
"""
from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mqcore.admin.shell.exits import Exit, Failure
from mqcore.admin.shell.limited import Limited, LimitedError
from mqcore.broker.settings.masks import Mask
from mqcore.client import AsyncAdmin, MessageQueue, ReceivedMessage
from mqcore.client.admin import (
    DeadLetter,
    Found,
    HalfMessage,
    MessageTrace,
    Resent,
    Track,
    TrackState,
)
from mqcore.client.admin.link import Target
from mqcore.client.admin.messages import QUERY_COUNT_MAX
from mqcore.client.admin.transactions import PENDING, SETTLED
from mqcore.page.decoders import BYTES_MAX, Schema
from mqcore.page.masking_child import MASK
from mqcore.wire.codes import SYSTEM_TOPICS, TIMER_TOPIC
from mqcore.wire.properties import KEYS, REAL_TOPIC, RESERVED, RETRY_TOPIC, TAGS
from mqcore.wire.records import RecordError, decode_record
from mqcore.wire.tags import SUBSCRIBE_ALL, Subscription

WORK: Final = "mqcore.page.masking_child:work"
MASKING_S: Final = 1.0                    # of processor time for one request
BATCH_MAX, BATCH_BYTES = 32, BYTES_MAX
AT_ONCE: Final = 2                      # processes
SEARCH_BYTES: Final = 8 << 20           # bodies that one search holds at a time
FAILURES_MAX: Final = 3                 # requests without an answer, then the rest is hidden whole
COMPRESSED: Final = 0x1                 # of a record's sysFlag
# topics that hold messages of other topics, or names and keys from such messages
MIXED: Final = ("%", "RMQ_SYS_", "rmq_sys_", TIMER_TOPIC, *SYSTEM_TOPICS)
MIXED_END: Final = "_REPLY_TOPIC"

Names = Sequence[str]                   # of the topics that a message is of


class MaskedMessage(ReceivedMessage):
    """A message with hidden fields; original: as stored, to be sent again."""

    __slots__ = ("original",)
    original: ReceivedMessage


@dataclass(frozen=True)
class Masks:
    """The masks of a page; schemas: of bodies that are protobuf, by topic."""

    masks: tuple[Mask, ...] = ()
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def of(self, names: Names) -> tuple[list[Mask], bool]:
        """
        The masks of a message, and whether all of its body is hidden.

        A topic that holds messages of others says of most which they are of; of one that does not
        say it all masks count.
        """
        if not self.masks:
            return [], False
        if all(map(is_mixed, names)):
            return list(self.masks), True
        return [mask for mask in self.masks if any(map(mask.fits, names))], False

    async def applied(self, asked: Sequence[tuple[Names, Mapping[str, str], bytes]],
                      ) -> list[tuple[dict[str, str], bytes] | None]:
        """Properties and body of messages, masked; None for one that no mask is about."""
        found: list[tuple[dict[str, str], bytes] | None] = [None] * len(asked)
        wanted = [number for number, (names, _, _) in enumerate(asked) if self.of(names)[0]]
        failures = 0
        for batch in _batches(wanted, asked):
            try:
                if failures == FAILURES_MAX:
                    raise LimitedError("too much is hidden")
                answers = await self._asked([asked[number] for number in batch])
            except LimitedError:
                failures = min(failures + 1, FAILURES_MAX)
                answers = [_all_hidden(asked[number][1]) for number in batch]
            for number, (properties, text) in zip(batch, answers, strict=True):
                body = asked[number][2]
                found[number] = properties, (
                    body if text is None else hidden(body) if isinstance(text, bool)
                    else text.encode(errors="replace"))
        return found

    async def _asked(self, batch: Sequence[tuple[Names, Mapping[str, str], bytes]],
                     ) -> list[tuple[dict[str, str], str | bool | None]]:
        heads, bodies = [], []
        for names, properties, body in batch:
            masks, whole = self.of(names)
            schema = next((self.schemas[name] for name in names if name in self.schemas), None)
            piece = b"" if whole else body[:BYTES_MAX + 1]     # a byte more: it is too large
            bodies.append(piece)
            heads.append([[mask.line for mask in masks], dict(properties), len(piece), whole,
                          [schema.file, schema.name] if schema else None])
        async with self._places, Limited(WORK, "masked fields", MASKING_S) as child:
            answer = await child.ask(json.dumps(heads).encode() + b"\n" + b"".join(bodies))
        return [(properties, text) for properties, text in json.loads(answer)]

    async def messages(self, messages: Sequence[ReceivedMessage]) -> tuple[ReceivedMessage, ...]:
        """Messages as a page shows them."""
        asked = []
        for one in messages:
            try:
                body = one.body
            except RecordError:             # it is not shown
                body = b""
            asked.append((names_of(one), one.properties, body))
        return tuple(one if masked is None else _masked(one, *masked) for one, masked in zip(
            messages, await self.applied(asked), strict=True))


def is_mixed(topic: str) -> bool:
    """Whether a topic holds messages of other topics, or data from such messages."""
    return not topic or topic.startswith(MIXED) or topic.endswith(MIXED_END)


def names_of(message: ReceivedMessage) -> Names:
    """The topics that a message is of: where it is stored, where it came from, where it goes."""
    return [message.queue.topic, message.topic, message.stored_topic,
            *(message.properties[name] for name in (REAL_TOPIC, RETRY_TOPIC)
              if name in message.properties)]


def _batches(numbers: Sequence[int], asked: Sequence[tuple[Names, Mapping[str, str], bytes]],
             ) -> list[list[int]]:
    batches: list[list[int]] = []
    size = 0
    for number in numbers:
        cost = min(len(asked[number][2]), BYTES_MAX)
        if not batches or len(batches[-1]) == BATCH_MAX or size + cost > BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(number)
        size += cost
    return batches


def hidden(body: bytes) -> bytes:
    """In place of a body of which nothing may be shown."""
    return f"<{len(body):,} bytes are hidden: some of their fields may not be shown>".encode()


def _all_hidden(properties: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """Of a message whose fields cannot be looked for within the bounds."""
    return {name: value if name in RESERVED and name not in (KEYS, TAGS) else MASK
            for name, value in properties.items()}, False


def _masked(message: ReceivedMessage, properties: dict[str, str], body: bytes) -> MaskedMessage:
    record = decode_record(message.record)
    masked = MaskedMessage.from_record(replace(
        record, body=body, properties=properties, sys_flag=record.sys_flag & ~COMPRESSED),
        message.queue)
    masked.topic, masked.reconsume_times = message.topic, message.reconsume_times
    masked.original = message
    return masked


def _original(message: ReceivedMessage) -> ReceivedMessage:
    return message.original if isinstance(message, MaskedMessage) else message


class PageAdmin(AsyncAdmin):
    """The client of a page; masks: what its user may not see."""

    masks: Masks = Masks()
    read_bytes_max = SEARCH_BYTES

    async def shown(self, messages: Sequence[ReceivedMessage]) -> tuple[ReceivedMessage, ...]:
        """Messages that were read beside it, as its user may see them."""
        return tuple(messages)

    async def check_search(self, topic: str, tags: str | None = None, sql: str | None = None,
                           key: str = "") -> None:
        """Raises Failure for a search that its user may not make, or that finds all by mistake."""
        if sql:
            # -- brokers let all messages pass where a condition is none
            from mqcore.filter.sql92_compiler import compile_program

            try:
                compile_program(sql)
            except ValueError as error:
                raise Failure(f"condition {sql!r:.200}: {error}", Exit.USAGE) from None

    async def read(self, topic: str, *, expression: str = "*", sql: bool = False,
                   **options: Any) -> Found[ReceivedMessage]:
        """As AsyncAdmin, but for searches that are refused."""
        await self.check_search(topic, None if sql else expression, expression if sql else None)
        return await super().read(topic, expression=expression, sql=sql, **options)

    async def readers(self, topic: str) -> list[Target]:
        """A broker of each name that has the topic."""
        return await self._readers(topic)

    async def pulled(
        self, target: Target, queue: MessageQueue, offset: int, subscription: Subscription,
        count: int,
    ) -> tuple[list[ReceivedMessage], int]:
        """The stored messages of one pull, and the next offset; no group is concerned."""
        return await self._pull(target, queue, offset, subscription, count)

    def hides(self, names: Names) -> bool:
        """Whether a field of a message of the given topics is hidden from its user."""
        return bool(self.masks.of(names)[0])


class MaskedAdmin(PageAdmin):
    """The client of a user who may not see what `masks` hide."""

    async def shown(self, messages: Sequence[ReceivedMessage]) -> tuple[ReceivedMessage, ...]:
        """Messages that were read beside it, as its user may see them."""
        return await self.masks.messages(messages)

    async def check_search(self, topic: str, tags: str | None = None, sql: str | None = None,
                           key: str = "") -> None:
        """A broker compares stored tags, keys and properties."""
        await super().check_search(topic, tags, sql, key)
        masks, whole = self.masks.of([topic])
        names = {mask.what for mask in masks if mask.kind == "property"}
        if sql and (any(mask.kind == "text" for mask in masks)
                    or any(name in sql for name in names)):
            raise _refused("a condition", topic)
        if tags and tags != SUBSCRIBE_ALL and (
                TAGS in names or await self._is_hidden(topic, tags)):
            raise _refused("a tag", topic)
        if key and (whole or KEYS in names or await self._is_hidden(topic, key)):
            raise _refused("a key", topic)

    async def _is_hidden(self, topic: str, text: str) -> bool:
        """Whether an expression hides a part of what a user looks for."""
        if not any(mask.kind == "text" for mask in self.masks.of([topic])[0]):
            return False
        found, = await self.masks.applied([([topic], {KEYS: text}, b"")])
        return found is None or found[0].get(KEYS) != text

    async def message(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage:
        """As AsyncAdmin."""
        return await self._one(await super().message(message_id, topic=topic))

    async def message_at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """As AsyncAdmin."""
        return await self._one(await super().message_at(queue, offset))

    async def _one(self, message: ReceivedMessage) -> ReceivedMessage:
        return (await self.masks.messages([message]))[0]

    async def query(self, topic: str, key: str, **options: Any) -> Found[ReceivedMessage]:
        """By the id of a client; by a key only where keys are not hidden."""
        try:
            await self.check_search(topic, key=key)
            found = await super().query(topic, key, **options)
        except Failure:
            found = await self._by_id(topic, key)
            if not found.items:
                raise
        return replace(found, items=await self.masks.messages(found.items))

    async def _by_id(self, topic: str, name: str) -> Found[ReceivedMessage]:
        found = await self._query(topic, name, QUERY_COUNT_MAX, 0, (1 << 63) - 1, unique=True)
        return replace(found, items=tuple(one for one in found if one.message_id == name))

    async def read(self, topic: str, *, expression: str = "*", sql: bool = False,
                   **options: Any) -> Found[ReceivedMessage]:
        """As AsyncAdmin."""
        found = await super().read(topic, expression=expression, sql=sql, **options)
        return replace(found, items=await self.masks.messages(found.items))

    async def trace(self, message_id: str, **options: Any) -> MessageTrace:
        """As AsyncAdmin."""
        found = await super().trace(message_id, **options)
        asked = [([one.topic], {KEYS: " ".join(one.keys), TAGS: one.tags}, b"")
                 for one in found.sends]
        sends = [one if masked is None else msgspec.structs.replace(
            one, keys=tuple(masked[0][KEYS].split()), tags=masked[0][TAGS])
            for one, masked in zip(found.sends, await self.masks.applied(asked), strict=True)]
        return msgspec.structs.replace(found, sends=tuple(sends))

    async def pending_transactions(self, broker: str, *, limit: int = 100) -> Found[HalfMessage]:
        """As AsyncAdmin."""
        found = await super().pending_transactions(broker, limit=limit)
        return replace(found, items=await self._halves(found.items))

    async def transaction(self, message_id: str, *, broker: str | None = None) -> HalfMessage:
        """As AsyncAdmin."""
        return (await self._halves([await super().transaction(message_id, broker=broker)]))[0]

    async def _halves(self, halves: Sequence[HalfMessage]) -> tuple[HalfMessage, ...]:
        asked = [([*filter(None, (one.topic, "" if one.state in (PENDING, SETTLED)
                                  else one.state))], one.properties, one.body) for one in halves]
        return tuple(one if masked is None else msgspec.structs.replace(
            one, properties=MappingProxyType(masked[0]), body=masked[1],
            keys=tuple(masked[0].get(KEYS, "").split()))
            for one, masked in zip(halves, await self.masks.applied(asked), strict=True))

    async def consumed_by(self, message: ReceivedMessage) -> Found[Track]:
        """As AsyncAdmin; whether a hidden tag passes the filter of a group is not said."""
        found = await super().consumed_by(message)
        if message.tags == _original(message).tags:
            return found
        return replace(found, items=tuple(
            one if one.state not in (TrackState.CONSUMED, TrackState.CONSUMED_BUT_FILTERED)
            else msgspec.structs.replace(one, state=TrackState.UNKNOWN) for one in found))

    # -- messages sent again go unmasked -----------------------------------------------------------

    async def resend(self, message: ReceivedMessage) -> Any:
        """As AsyncAdmin."""
        return await super().resend(_original(message))

    async def resend_dead_letters(
        self, group: str, letters: Sequence[DeadLetter], *, to: str = "group",
    ) -> tuple[Resent, ...]:
        """As AsyncAdmin."""
        return await super().resend_dead_letters(group, [
            msgspec.structs.replace(one, message=_original(one.message)) for one in letters], to=to)


def _refused(what: str, topic: str) -> Failure:
    return Failure(f"{what} of topic {topic}: some of its fields are hidden from you, so they are "
                   "not searched either", Exit.DENIED)
