"""An application without a broker: what is published goes to its subscribers directly."""
from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.testing.broker import TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from mqcore.client import Message, MessageQueue
from mqcore.contrib.faststream.broker import RocketMQBroker
from mqcore.contrib.faststream.messages import Parser, RocketMQPublishCommand, message_of
from mqcore.contrib.faststream.publisher import REQUEST_S, RocketMQPublisher, Sender
from mqcore.contrib.faststream.subscriber import RocketMQSubscriber


class PassedMessage:
    """A message that no broker ever had; the attributes that parsers look at."""

    def __init__(self, message: Message) -> None:
        self.topic = message.topic
        self.body = message.body
        self.properties = message.properties
        self.user_properties = message.user_properties
        self.tags = message.tags
        self.keys = message.keys
        self.message_id = message.properties.get("correlation_id", "")
        self.queue = MessageQueue(message.topic, "test", 0)
        self.reconsume_times = 0


class PassingSender(Sender):
    """Gives messages to the subscribers of the brokers under test."""

    def __init__(self, broker: RocketMQBroker, brokers: Sequence[RocketMQBroker]) -> None:
        super().__init__()
        self._broker = broker
        self._brokers = brokers
        self._parser = ParserComposition(broker._parser, Parser.parse)
        self._decoder = ParserComposition(broker._decoder, Parser.decode)
        self.codec = broker.config.broker_codec or DefaultCodec()

    def __bool__(self) -> bool:
        return True

    def _subscribers(self, topic: str) -> Iterable[RocketMQSubscriber]:
        """One of each group."""
        groups: set[str] = set()
        for broker in self._brokers:
            for subscriber in broker.subscribers:
                if subscriber.topic == topic and subscriber.group not in groups:
                    groups.add(subscriber.group)
                    yield subscriber

    async def _made(self, command: RocketMQPublishCommand) -> Any:
        payload, content_type = await self.codec.encode(
            command.body, self._broker.config.fd_config._serializer)
        return PassedMessage(message_of(payload, command, content_type))

    async def publish(self, cmd: RocketMQPublishCommand) -> None:
        """Call each group's subscriber of the topic."""
        message = await self._made(cmd)
        for subscriber in self._subscribers(cmd.destination):
            await subscriber.process_message(message)

    async def request(self, cmd: RocketMQPublishCommand) -> Any:
        """What the first subscriber returns; raises SubscriberNotFound, TimeoutError."""
        message = await self._made(cmd)
        for subscriber in self._subscribers(cmd.destination):
            async with asyncio.timeout(cmd.timeout or REQUEST_S):
                result = await subscriber.process_message(message)
            return await self._made(RocketMQPublishCommand(
                result.body, topic=cmd.destination, headers=result.headers,
                correlation_id=result.correlation_id, _publish_type=cmd.publish_type))
        raise SubscriberNotFound


class _NoConsumer:
    """What subscribers read from meanwhile: nothing comes."""

    def __aiter__(self) -> _NoConsumer:
        return self

    async def __anext__(self) -> Any:
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing to leave."""


class TestRocketMQBroker(
    TestBroker[RocketMQBroker, Any], broker=RocketMQBroker):  # type: ignore[call-arg]
    """`async with TestRocketMQBroker(broker) as br:`; functions have mocks."""

    __test__ = False

    def create_publisher_fake_subscriber(
        self, broker: RocketMQBroker, publisher: RocketMQPublisher
    ) -> tuple[Any, bool]:
        """Who gets what a publisher sends: a subscriber of the application, or one made for it."""
        for one in self.brokers:
            for subscriber in one.subscribers:
                if subscriber.topic == publisher.topic:
                    return subscriber, True
        return broker.subscriber(publisher.topic, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: RocketMQBroker) -> Generator[None, None, None]:
        with change_producer(broker.config.broker_config, PassingSender(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: RocketMQBroker, *args: Any, **kwargs: Any) -> Any:
        async def join(*args: Any) -> Any:
            return _NoConsumer()

        broker.config.broker_config.join = join
        return _NoConsumer()
