"""Half messages: what no producer has ended yet, and what an operator may do (broker.md 5)."""
from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import when
from mqcore.client.admin.link import Found, Link, Target, limited, some_at_once
from mqcore.client.admin.messages import Messages
from mqcore.client.errors import BrokerError, ClientError, ConfigError
from mqcore.client.message import MessageQueue
from mqcore.wire.codes import HALF_TOPIC, OP_TOPIC, RequestCode, ResponseCode
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.numbers import whole_number
from mqcore.wire.properties import (
    CHECK_TIMES,
    KEYS,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    UNIQ_KEY,
)
from mqcore.wire.records import Record, RecordError

CHECK_GROUP: Final = "CID_RMQ_SYS_TRANS"
PENDING, SETTLED = "pending", "settled"
ROLLBACK: Final = 12
ROWS_AT_ONCE: Final = 512               # queue entries of one request
VIEWS_AT_ONCE: Final = 64               # records that are asked for at a time
LIMIT_MAX: Final = 100_000


class HalfMessage(Struct, frozen=True):
    """
    A message that was sent in a transaction.

    state         "pending", "settled" (committed or rolled back), or the topic where it is now
    message_id    the broker's; unique_key is the producer's
    checks        how often producers were asked about it
    half_offset   its offset in the queue of half messages
    topic, queue_id   where it goes when it is committed; queue_id None: it does not say
    body          as stored: compressed when its producer did so
    """

    state: str
    message_id: str
    unique_key: str
    producer_group: str
    topic: str
    queue_id: int | None
    keys: tuple[str, ...]
    born: datetime | None
    checks: int
    half_offset: int
    log_position: int
    body: bytes
    properties: Mapping[str, str]


class Transactions(Messages, Link):
    """What AsyncAdmin does with transactions; each call is about one broker."""

    @limited
    async def pending_transactions(
        self, broker: str, *, limit: int = 100
    ) -> Found[HalfMessage]:
        """
        The oldest half messages of a broker that are neither committed nor rolled back.

        broker   `host:port` or a name
        limit    at most so many; `more` says that there are more
        """
        arguments.number(limit, "limit", 1, LIMIT_MAX)
        target = await self._address(broker)
        settled = await self._settled(target)
        first, end = await self._bounds(target, HALF_TOPIC)
        positions: list[int] = []
        more = False
        async for offset, position in self._positions(target, HALF_TOPIC, first, end):
            if offset in settled:
                continue
            if len(positions) == limit:
                more = True
                break
            positions.append(position)
        records = await self._records(target, positions)
        return Found(tuple(_half(record, PENDING) for record in records), more=more)

    @limited
    async def transaction(self, message_id: str, *, broker: str | None = None) -> HalfMessage:
        """One half message.

        message_id   the broker's id of the half message
        broker       ask this one, `host:port` or a name; None: the address in the id
        Raises ConfigError for what is no id, ClientError with code 208 when there is none.
        """
        target, record = await self._half_record(message_id, broker)
        return _half(record, await self._state(target, record))

    @limited
    async def resume_transaction(
        self, message_id: str, *, broker: str | None = None
    ) -> HalfMessage:
        """Let producers be asked about a half message again, from the first time on (323).

        Also one that was given up. A pending one is replaced by a fresh one; the next round of
        the broker's check asks. The parameters are those of `transaction`. Returns the
        message before the change. Raises ClientError when it is settled.
        """
        target, record = await self._half_record(message_id, broker)
        state = await self._state(target, record)
        if state == SETTLED:
            raise ClientError(f"{message_id} is settled: there is nothing to ask")
        await self._ask(target.address, RequestCode.RESUME_CHECK_HALF_MESSAGE,
                        {"msgId": record.offset_message_id})
        if state == PENDING:                    # the fresh one stands in its place
            await self._roll_back(target, record)
        return _half(record, state)

    @limited
    async def roll_back_transaction(
        self, message_id: str, *, broker: str | None = None
    ) -> HalfMessage:
        """End a half message for good, as its producer would: no consumer will see it (37).

        The parameters are those of `transaction`. Returns the message before the change. Raises
        ClientError when it is not pending.
        """
        target, record = await self._half_record(message_id, broker)
        state = await self._state(target, record)
        if state != PENDING:
            raise ClientError(f"{message_id} is not pending")
        await self._roll_back(target, record)
        return _half(record, state)

    # -- inside -----------------------------------------------------------------------------------

    async def _half_record(self, message_id: str, broker: str | None) -> tuple[Target, Record]:
        arguments.text(message_id, "message_id")
        try:
            host, port, position = parse_offset_message_id(message_id)
        except ValueError as error:
            raise ConfigError(f"message_id {message_id!r:.120}: expected 32 or 56 hex digits"
                              ) from error
        named = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        target = await self._address(named if broker is None else broker)
        missing = ClientError(f"{target} has no message {message_id}", int(ResponseCode.NO_MESSAGE))
        try:
            record = await self._view(target, position)
        except BrokerError as error:
            raise missing from error
        if record.offset_message_id != message_id.upper():
            raise missing
        return target, record

    async def _state(self, target: Target, record: Record) -> str:
        if record.topic != HALF_TOPIC:
            return record.topic
        first, _ = await self._bounds(target, HALF_TOPIC)
        pending = record.queue_offset >= first and (
            record.queue_offset not in await self._settled(target))
        return PENDING if pending else SETTLED

    async def _roll_back(self, target: Target, record: Record) -> None:
        await self._ask(target.address, RequestCode.END_TRANSACTION, {
            "producerGroup": record.properties.get(PRODUCER_GROUP, ""),
            "tranStateTableOffset": str(record.queue_offset),
            "commitLogOffset": str(record.physical_offset), "commitOrRollback": str(ROLLBACK),
            "fromTransactionCheck": "false", "msgId": record.properties.get(UNIQ_KEY, "")})

    async def _bounds(self, target: Target, topic: str) -> tuple[int, int]:
        """From the first that is not known to be settled to the end of a system queue."""
        queue = MessageQueue(topic, target.name, 0)
        committed = await self._committed(target, CHECK_GROUP, queue)
        first = await self._offset(target, queue, RequestCode.GET_MIN_OFFSET)
        end = await self._offset(target, queue, RequestCode.GET_MAX_OFFSET)
        return max(committed or 0, first), end

    async def _settled(self, target: Target) -> set[int]:
        """Half offsets that op records name, from the first unsettled one on."""
        first, end = await self._bounds(target, OP_TOPIC)
        positions = [position async for _, position in
                     self._positions(target, OP_TOPIC, first, end)]
        return {int(record.body) for record in await self._records(target, positions)
                if record.body.isdigit()}

    async def _positions(
        self, target: Target, topic: str, first: int, end: int
    ) -> AsyncIterator[tuple[int, int]]:
        """(queue offset, log position) of a system queue's entries."""
        queue = MessageQueue(topic, target.name, 0)
        while first < end:
            found = await self._entries(target, queue, first, min(ROWS_AT_ONCE, end - first), None)
            if not found.entries:
                return
            for entry in found.entries:
                yield entry.offset, entry.log_position
            first += len(found.entries)

    async def _records(self, target: Target, positions: list[int]) -> list[Record]:
        """The records at some positions; those that have expired meanwhile are left out."""
        async def one(position: int) -> Record | None:
            try:
                return await self._view(target, position)
            except (BrokerError, RecordError):
                return None

        found = await some_at_once(positions, one, VIEWS_AT_ONCE)
        return [record for record in found if record is not None]


def _half(record: Record, state: str) -> HalfMessage:
    properties = record.properties
    return HalfMessage(
        state, record.offset_message_id, properties.get(UNIQ_KEY, ""),
        properties.get(PRODUCER_GROUP, ""), properties.get(REAL_TOPIC, ""),
        whole_number(properties.get(REAL_QUEUE_ID, "")), tuple(properties.get(KEYS, "").split()),
        when(record.born_timestamp_ms), whole_number(properties.get(CHECK_TIMES, "")) or 0,
        record.queue_offset, record.physical_offset, record.body, MappingProxyType(properties))
