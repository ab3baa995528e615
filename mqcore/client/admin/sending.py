"""Sending by hand: one message, times of sends, dead letters again (broker.md 10.6, 3)."""
from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.link import Found, Link, limited, some_at_once
from mqcore.client.admin.messages import QUERY_COUNT_MAX, READ_COUNT_MAX, Messages
from mqcore.client.core.options import check_group, check_topic
from mqcore.client.errors import ConfigError, NoRouteError, RocketMQError
from mqcore.client.message import Message, MessageQueue, RecallResult, SendResult
from mqcore.client.network.route import publish_queues
from mqcore.client.received import ReceivedMessage
from mqcore.wire import properties as names
from mqcore.wire.codes import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from mqcore.client.produce.producer import AsyncProducer

PRODUCER_GROUP: Final = "MQCORE_TOOLS_PRODUCER"
# of a copy: the offset message id of the dead letter
REDRIVEN_FROM: Final = "REDRIVE_FROM"
BODY_SIZE_MAX: Final = 4 * 1024 * 1024

# Properties of one delivery, not of the message.
_OF_DELIVERY: Final = frozenset({
    names.WAIT, names.DELAY, names.RETRY_TOPIC, names.REAL_TOPIC, names.REAL_QUEUE_ID,
    names.TRANSACTION_PREPARED, names.PRODUCER_GROUP, names.RECONSUME_TIME,
    names.MAX_RECONSUME_TIMES, names.MIN_OFFSET, names.MAX_OFFSET, names.CLUSTER,
    "CONSUME_START_TIME", "MSG_REGION", "TRACE_ON",
})


class DeadLetter(Struct, frozen=True):
    """
    A message that a group gave up.

    message      as it stands among the dead letters
    topic        where it came from
    """

    group: str
    message: ReceivedMessage
    topic: str


class Resent(Struct, frozen=True):
    """A dead letter that was sent again, and where it went; or the error, and no result."""

    letter: DeadLetter
    result: SendResult | None
    error: RocketMQError | None


class SendTime(Struct, frozen=True):
    """One send to one queue: seconds, and the error if it failed."""

    queue: MessageQueue
    took: float
    error: RocketMQError | None


class AdminSends(Messages, Link):
    """What AsyncAdmin sends."""

    @limited
    async def send(
        self, topic: str, body: bytes | str, *, tags: str | None = None,
        keys: Sequence[str] = (), properties: Mapping[str, str] | None = None,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send one message by hand (sendMessage); applications use a Producer.

        topic, body, tags, keys, properties   as of Message
        queue                                 to this one; None: any
        Raises ConfigError, NoRouteError, BrokerError, RemotingError.
        """
        message = _message(check_topic(topic), body, tags, arguments.names(keys, "keys"),
                           properties or {})
        if queue is not None:
            arguments.message_queue(queue)
        else:
            queue = (await self._writable(topic))[0]
        async with self._producer() as producer:
            return await producer.send(message, queue=queue)

    @limited
    async def resend(self, message: ReceivedMessage) -> SendResult:
        """Send a stored message to its topic again, with the id that its client gave it."""
        if not isinstance(message, ReceivedMessage):
            raise ConfigError(f"message {message!r:.120}: expected a ReceivedMessage")
        queue = (await self._writable(message.topic))[0]
        async with self._producer() as producer:
            return await producer.send(_again(message, message.topic), queue=queue)

    @limited
    async def recall(self, handle: str) -> RecallResult:
        """
        Take a message back before its time of delivery; says what became of that.

        handle   the `recall_handle` that its send gave
        Raises ConfigError for what is no handle, BrokerError with code 604 when it comes too late
        for a stock broker.
        """
        async with self._producer() as producer:
            return await producer.recall(handle)

    @limited
    async def send_times(
        self, topic: str, *, count: int = 10, size: int = 128, broker_name: str | None = None,
    ) -> tuple[SendTime, ...]:
        """
        Send to the queues of a topic in turn, and say how long each took (checkMsgSendRT).

        count         how often, 1 to 1000; each stores a message of `size` bytes
        broker_name   only to queues of that broker (sendMsgStatus)
        """
        arguments.number(count, "count", 1, 1_000)
        arguments.number(size, "size", 1, BODY_SIZE_MAX)
        queues = await self._writable(check_topic(topic), broker_name)
        found = []
        async with self._producer() as producer:
            for number in range(count):
                queue = queues[number % len(queues)]
                began = time.monotonic()
                error: RocketMQError | None = None
                try:
                    await producer.send(Message(topic, b"a" * size), queue=queue)
                except RocketMQError as failure:
                    error = failure
                found.append(SendTime(queue, time.monotonic() - began, error))
        return tuple(found)

    # -- dead letters -----------------------------------------------------------------------------

    @limited
    async def dead_letters(
        self, group: str, *, begin: arguments.Moment | None = None,
        end: arguments.Moment | None = None, count: int = 128,
    ) -> Found[DeadLetter]:
        """
        The messages that a group gave up, in the order in which it did.

        begin, end   times between which it did
        count        at most so many of each queue; `more` says that there are more
        A group without any gives none.
        """
        topic = DLQ_PREFIX + check_group(group)
        arguments.number(count, "count", 1, READ_COUNT_MAX)
        if await self._route(topic) is None:
            return Found(())
        found = await self.read(topic, begin=begin, end=end, count=count)
        return Found(tuple(
            DeadLetter(group, message, message.properties.get(names.RETRY_TOPIC, ""))
            for message in found), found.unreachable, found.more)

    @limited
    async def resend_dead_letters(
        self, group: str, letters: Sequence[DeadLetter], *, to: str = "group",
    ) -> tuple[Resent, ...]:
        """
        Send dead letters again; they also stay where they are, so twice is twice.

        letters   of `dead_letters`, all or some
        to        "group": only this group gets them, with all its tries anew; "topic": the topic
                  where they came from, so all its groups get them
        Each has its own result or error. Raises ConfigError.
        """
        check_group(group)
        arguments.one_of(to, "to", ("group", "topic"))
        for letter in _checked(letters):
            if letter.group != group:
                raise ConfigError(f"letters: expected dead letters of group {group}, found"
                                  f" {letter!r:.120}")
            if not letter.topic:
                raise ConfigError(f"letters: {letter.message.message_id} does not say which topic"
                                  " it came from")
        sent = []
        queues: dict[str, list[MessageQueue]] = {}
        async with self._producer() as producer:
            for number, letter in enumerate(letters):
                topic = letter.topic if to == "topic" else RETRY_PREFIX + group
                message = _again(letter.message, topic)
                message.properties[REDRIVEN_FROM] = letter.message.offset_message_id
                if to == "group":
                    message.properties[names.RETRY_TOPIC] = letter.topic
                try:
                    if topic not in queues:
                        queues[topic] = await self._writable(topic)
                    queue = queues[topic][number % len(queues[topic])]
                    sent.append(Resent(letter, await producer.send(message, queue=queue), None))
                except RocketMQError as error:
                    sent.append(Resent(letter, None, error))
        return tuple(sent)

    @limited
    async def resent_before(
        self, letters: Sequence[DeadLetter], *, to: str = "group",
    ) -> frozenset[str]:
        """
        The offset message ids of dead letters that were sent again before, to the same place.

        Their copies are looked for where they went: one query (12) a letter. A copy that has
        expired is not found.

        letters, to   as of `resend_dead_letters`
        """
        arguments.one_of(to, "to", ("group", "topic"))
        _checked(letters)
        found: set[str] = set()

        async def look(letter: DeadLetter) -> None:
            topic = letter.topic if to == "topic" else RETRY_PREFIX + letter.group
            if not topic or await self._route(topic) is None:
                return
            copies = await self._query(topic, letter.message.message_id, QUERY_COUNT_MAX, 0,
                                       arguments.I64_MAX, unique=True)
            place = letter.message.offset_message_id
            if any(copy.properties.get(REDRIVEN_FROM) == place for copy in copies):
                found.add(place)

        await some_at_once(letters, look)
        return frozenset(found)

    # -- inside -----------------------------------------------------------------------------------

    async def _writable(self, topic: str, broker_name: str | None = None) -> list[MessageQueue]:
        """The queues of a topic that take messages, in any order; NoRouteError: there are none."""
        found = [queue for queue in publish_queues(topic, await self._known_route(topic))
                 if broker_name in (None, queue.broker_name)]
        if not found:
            raise NoRouteError(f"topic {topic} has no such writable queue", topic=topic)
        random.shuffle(found)
        return found

    def _producer(self) -> AsyncProducer:
        """For one call; names are the brokers' own here, so without a namespace."""
        # -- most administration sends nothing, and need not load what does
        from mqcore.client.produce.producer import AsyncProducer

        config = dataclasses.replace(self.config, namespace="")
        return AsyncProducer(PRODUCER_GROUP, config=config, send_timeout=self.timeout)


def _checked(letters: Sequence[DeadLetter]) -> Sequence[DeadLetter]:
    """Dead letters of the caller. Raises ConfigError for anything else."""
    if isinstance(letters, str) or not isinstance(letters, Sequence):
        raise ConfigError(f"letters {letters!r:.120}: expected those of dead_letters")
    for letter in letters:
        if not isinstance(letter, DeadLetter):
            raise ConfigError(f"letters: expected dead letters, found {letter!r:.120}")
    return letters


def _message(
    topic: str, body: bytes | str, tags: str | None, keys: Sequence[str],
    properties: Mapping[str, str],
) -> Message:
    if not isinstance(body, bytes | str) or not body:
        raise ConfigError(f"body {body!r:.120}: expected bytes or a text, not empty")
    try:
        return Message(topic, body, tags=tags, keys=keys, properties=properties)
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"properties {properties!r:.120}: {error}") from error


def _again(message: ReceivedMessage, topic: str) -> Message:
    """What to send so that the same message comes once more."""
    again = Message(topic, message.body, flag=message.flag)
    again.properties.update((name, value) for name, value in message.properties.items()
                            if name not in _OF_DELIVERY)
    return again
