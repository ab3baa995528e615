"""Many messages at once: grouped by topic and queue into real batches (client.md 2.10)."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from mqcore.client.core.retry import Tries
from mqcore.client.core.selection import QueueTurns, queue_by_shard
from mqcore.client.errors import (
    ClientError,
    ConfigError,
    MessageTooLarge,
    QueueFull,
    RocketMQError,
)
from mqcore.client.message import Message, MessageQueue, SendResult
from mqcore.client.native.messages import results_of
from mqcore.client.native.sends import batch_body, first_unlike
from mqcore.client.produce.producer_config import ProducerConfig
from mqcore.client.produce.sender import Sender
from mqcore.client.produce.sending import Sending
from mqcore.wire.codes import DLQ_PREFIX, FRAME_LENGTH_MAX, RETRY_PREFIX, RequestCode
from mqcore.wire.properties import DELAY, TRANSACTION_PREPARED, WAIT

Shard = Callable[[Message], object]


class SendManyError(RocketMQError):
    """Some of the messages of one `send_many` were not stored, or it is not known.

    results   in the order of the messages: the SendResult, or the error of this message
    """

    retryable = True

    def __init__(self, message: str, results: list[SendResult | RocketMQError], *,
                 stored: bool | None) -> None:
        super().__init__(message, stored=stored)
        self.results = results


class Preparing(Protocol):
    """The needed part of a producer: its checks, and one message as a Sending."""

    def prepare(self, message: Message, *, timeout: float | None = None,
                queue: MessageQueue | None = None, hooked: bool = True) -> Sending: ...
    def check_all(self, messages: list[Message]) -> list[str]: ...


def fits_into_batch(message: Message) -> bool:
    """Whether brokers take it as a part of a batch: no delay, no transaction, no retry topic."""
    return (message.property_text(DELAY) is None
            and message.property_text(TRANSACTION_PREPARED) is None
            and not message.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))


def batch_sending(
    messages: list[Message], keys: list[str], topic: str, body: bytes, tries: Tries,
) -> Sending:
    """A whole batch as one send; `topic` is the name that brokers know."""
    wait = messages[0].property_text(WAIT)
    sending = Sending(messages[0], topic, ",".join(keys), body, 0, len(body), tries,
                      {} if wait is None else {WAIT: wait})
    sending.code = int(RequestCode.SEND_BATCH_MESSAGE)
    sending.batch = messages
    return sending


@dataclass(slots=True)
class _Group:
    """Messages of one topic, one wait_store and perhaps one queue, in order."""

    queue: MessageQueue | None
    indexes: Sequence[int]
    messages: list[Message]


class _Part:
    """Where the outcome of one send of the whole goes."""

    __slots__ = ("_indexes", "_keys", "_whole", "error", "is_ended", "result")

    def __init__(self, whole: ManySend, indexes: Sequence[int], keys: list[str]) -> None:
        self._whole = whole
        self._indexes = indexes
        self._keys = keys
        self.result: SendResult | None = None
        self.error: RocketMQError | None = None
        self.is_ended: asyncio.Event | None = None      # for a waiter

    def set_result(self, result: SendResult, /) -> None:
        self.result = result
        self._end()

    def set_exception(self, error: BaseException, /) -> None:
        assert isinstance(error, RocketMQError)
        self.error = error
        self._end()

    def _end(self) -> None:
        if self.is_ended is not None:
            self.is_ended.set()
        self._whole.part_ended(self)

    def sort_in(self, outcomes: list[SendResult | RocketMQError | None]) -> None:
        """Put the outcome of each message where it belongs."""
        each: Sequence[SendResult | RocketMQError]
        if self.result is None:
            assert self.error is not None
            each = [self.error] * len(self._keys)
        elif len(self._keys) == 1:
            each = [self.result]
        else:
            each = results_of(SendResult, self.result, self._keys)
        if isinstance(self._indexes, range):
            outcomes[self._indexes.start:self._indexes.stop] = each
        else:
            for index, one in zip(self._indexes, each, strict=True):
                outcomes[index] = one


class ManySend:
    """One `send_many` under way."""

    def __init__(
        self, sender: Sender, producer: Preparing, config: ProducerConfig, timeout: float, *,
        in_order: bool = False,
    ) -> None:
        """in_order   what follows a failure in its queue is not sent"""
        self._sender = sender
        self._in_order = in_order
        self._producer = producer
        self._config = config
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._pending = 1                       # parts, and the handing out itself
        self._all_done: asyncio.Future[None] = self._loop.create_future()
        self._has_failed = False
        self._ended: list[_Part] = []           # not sorted in yet
        self.results: list[SendResult | RocketMQError | None] = []

    async def run(
        self, messages: list[Message], queue: MessageQueue | None, shard: Shard | None
    ) -> list[SendResult]:
        """Send them; the result of each, in their order. Raises SendManyError."""
        keys = self._producer.check_all(messages)
        self.results = [None] * len(messages)
        if shard is None and first_unlike(messages, FRAME_LENGTH_MAX) == len(messages) > 0:
            groups = [_Group(queue, range(len(messages)), messages)]
        else:
            groups = await self._groups(messages, queue, shard)
        if self._in_order:
            await asyncio.gather(*(self._hand_out(group, keys) for group in groups))
        else:
            for group in groups:
                await self._hand_out(group, keys)
        self._done()
        await self._all_done
        return self._outcome()

    def part_ended(self, part: _Part) -> None:
        """A part has its outcome; what it makes room for leaves before it is looked at."""
        self._ended.append(part)
        if len(self._ended) == 1:
            self._loop.call_soon(self._sort_in)

    def _sort_in(self) -> None:
        ended, self._ended = self._ended, []
        for part in ended:
            part.sort_in(self.results)
            self._has_failed = self._has_failed or part.error is not None
        self._done(len(ended))

    def _done(self, count: int = 1) -> None:
        self._pending -= count
        if self._pending == 0 and not self._all_done.done():
            self._all_done.set_result(None)

    async def _groups(
        self, messages: list[Message], queue: MessageQueue | None, shard: Shard | None
    ) -> list[_Group]:
        groups: dict[tuple[str, str | None, MessageQueue | None], tuple[list[int], list[Message]]]
        groups = {}
        for index, message in enumerate(messages):
            target = queue
            if shard is not None:
                target = queue_by_shard(await self._queues(message.topic), shard(message))
            key = (message.topic, message.property_text(WAIT), target)
            group = groups.setdefault(key, ([], []))
            group[0].append(index)
            group[1].append(message)
        return [_Group(key[2], *members) for key, members in groups.items()]

    async def _queues(self, topic: str) -> list[MessageQueue]:
        wrapped = self._sender.instance.wrap(topic)
        routes = self._sender.instance.routes
        return routes.known_queues(wrapped) or await routes.queues_to_publish(
            wrapped, timeout=self._timeout)

    async def _hand_out(self, group: _Group, keys: list[str]) -> None:
        """Send a group in batches; each queue gets one after the other."""
        messages, at = group.messages, 0
        topic = self._sender.instance.wrap(messages[0].topic)
        queues: list[MessageQueue] = []
        if group.queue is None:
            try:
                queues = await self._queues(messages[0].topic)
            except RocketMQError as error:
                self._has_failed = True
                for index in group.indexes:
                    self.results[index] = error
                return
        turns = QueueTurns()
        while at < len(messages):
            most = self._config.batch_count if fits_into_batch(messages[at]) else 1
            body, end = batch_body(messages, at, most, self._config.batch_bytes)
            target = group.queue or turns.next(queues)
            if end - at > 1:
                chunk = messages[at:end]
                indexes = group.indexes[at:end]
                chunk_keys = keys[at:end] if isinstance(indexes, range) else [
                    keys[index] for index in indexes]
                sending = batch_sending(chunk, chunk_keys, topic, body, self._tries())
            else:
                chunk_keys = [keys[group.indexes[at]]]
                sending = self._producer.prepare(
                    messages[at], timeout=self._timeout, hooked=False)
            sending.queue = target
            sending.is_alone = True
            sending.may_move = group.queue is None
            part = _Part(self, group.indexes[at:end], chunk_keys)
            if self._in_order:
                part.is_ended = asyncio.Event()
            self._pending += 1
            await self._submit(sending, part)
            at = end
            if part.is_ended is None:
                await asyncio.sleep(0)          # it leaves while the next one is made
            else:
                await part.is_ended.wait()
                if part.error is not None:
                    self._leave(group, at, part.error)
                    return

    def _leave(self, group: _Group, at: int, cause: RocketMQError) -> None:
        """Messages behind a failure in their queue were not sent."""
        self._has_failed = True
        for index, message in zip(group.indexes[at:], group.messages[at:], strict=True):
            error = ClientError(f"not sent, because one before it was not stored: {cause}",
                                topic=message.topic)
            error.retryable = True
            self.results[index] = error

    def _tries(self) -> Tries:
        return Tries(1 + self._config.retry_count, self._loop.time() + self._timeout)

    async def _submit(self, sending: Sending, part: _Part) -> None:
        sending.outcome = part
        number = 1 if sending.batch is None else len(sending.batch)
        room = self._sender.room
        if not room.try_take(sending.size, number):
            if not await self._sender.wait_for_room(sending.size, self._timeout, number):
                part.set_exception(QueueFull("no room was left in time"))
                return
            sending.tries.deadline = self._loop.time() + self._timeout
        self._sender.submit(sending)

    def _outcome(self) -> list[SendResult]:
        if not self._has_failed:
            return cast("list[SendResult]", self.results)
        stored = [each for each in self.results if isinstance(each, SendResult)]
        outcomes = [each for each in self.results if each is not None]
        errors = [each for each in outcomes if isinstance(each, RocketMQError)]
        nowhere = not stored and all(error.stored is False for error in errors)
        raise SendManyError(
            f"{len(errors)} of {len(outcomes)} messages were not stored: {errors[0]}", outcomes,
            stored=False if nowhere else None) from errors[0]


def one_batch(messages: list[Message], size_max: int) -> bytes:
    """The body of a batch of all messages; raises ConfigError when they do not fit together."""
    if not messages:
        raise ConfigError("batch: expected at least one message")
    first = messages[0]
    for message in messages:
        if (message.topic, message.wait_store) != (first.topic, first.wait_store):
            raise ConfigError("messages: a batch has one topic and one wait_store")
        if not fits_into_batch(message):
            raise ConfigError(
                "messages: a batch has no delay, no transaction and no retry topic")
    body, end = batch_body(messages, 0, len(messages), size_max)
    if end < len(messages) or len(body) > size_max:
        raise MessageTooLarge(f"batch: expected at most {size_max} bytes")
    return body
