"""What sends: publishers, the answers of subscribers, and the client's producer below them."""
from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
)
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException, IncorrectState
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, PublisherSpec

from mqcore.client import AsyncProducer, ReceivedMessage, create_reply
from mqcore.contrib.faststream.messages import (
    REPLY_TO_ASKER,
    Parser,
    RocketMQPublishCommand,
    describe,
    message_of,
)
from mqcore.contrib.faststream.topics import HasTopic, SaysTopic

REQUEST_S = 30.0


class Sender(ProducerProto[RocketMQPublishCommand]):
    """Sends what publishers give it; without a connection it says so."""

    def __init__(self, parser: Any = None, decoder: Any = None) -> None:
        self._parser = ParserComposition(parser, Parser.parse)
        self._decoder = ParserComposition(decoder, Parser.decode)
        self._producer: AsyncProducer | None = None
        self.serializer: Any = None
        self.codec: Any = DefaultCodec()

    def __bool__(self) -> bool:
        return self._producer is not None

    def connect(self, producer: AsyncProducer, serializer: Any, codec: Any = None) -> None:
        """Send with this producer from now on."""
        self._producer, self.serializer = producer, serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        """Send no more."""
        self._producer = None

    @property
    def producer(self) -> AsyncProducer:
        """The client's; raises IncorrectState before the connect."""
        if self._producer is None:
            raise IncorrectState("The broker is not connected: call connect() first.")
        return self._producer

    async def publish(self, cmd: RocketMQPublishCommand) -> Any:
        """Send; returns the client's SendResult. Raises RocketMQError."""
        payload, content_type = await self.codec.encode(cmd.body, self.serializer)
        if cmd.asked is not None:
            reply = create_reply(cmd.asked, payload or b" ")
            describe(reply, cmd, content_type)
            return await self.producer.send(reply)
        return await self.producer.send(message_of(payload, cmd, content_type), shard=cmd.shard)

    async def request(self, cmd: RocketMQPublishCommand) -> ReceivedMessage:
        """Send and wait for the reply; raises TimeoutError, RocketMQError."""
        payload, content_type = await self.codec.encode(cmd.body, self.serializer)
        limit = cmd.timeout or REQUEST_S
        async with asyncio.timeout(limit):
            return await self.producer.request(
                message_of(payload, cmd, content_type), timeout=limit)

    async def publish_batch(self, cmd: Any) -> Any:
        """There are no batches here."""
        raise FeatureNotSupportedException("RocketMQBroker has no batches: publish one by one")


@dataclass(kw_only=True)
class PublisherConfig(PublisherUsecaseConfig):
    """What one publisher was told."""

    _outer_config: BrokerConfig = field(default_factory=BrokerConfig)
    topic: str
    tags: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class PublisherSpecConfig(PublisherSpecificationConfig):
    """What the schema says of one publisher."""

    topic: str


class RocketMQPublisherSpecification(
        SaysTopic, PublisherSpecification[BrokerConfig, PublisherSpecConfig]):
    """One publisher in the AsyncAPI schema."""

    @property
    def name(self) -> str:
        return str(self.config.title_ or f"{self.topic}:Publisher")

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Its channel."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        return {self.name: PublisherSpec(
            address=self.topic, description=self.config.description_, bindings=None,
            operation=Operation(message=MessageSpec(title=f"{self.name}:Message", payload=payload),
                                bindings=None))}


class RocketMQPublisher(HasTopic, PublisherUsecase):
    """Sends to one topic."""

    def __init__(self, config: PublisherConfig, specification: Any) -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self.tags = config.tags
        self.headers = dict(config.headers)

    async def publish(
        self, message: Any = None, topic: str = "", *, tags: str | None = None,
        key: str | None = None, shard: object = None, delay_level: int = 0,
        headers: Mapping[str, Any] | None = None, correlation_id: str | None = None,
        reply_to: str = "",
    ) -> Any:
        """Send a message to the topic, or another one; returns the client's SendResult."""
        return await self._basic_publish(
            RocketMQPublishCommand(
                message, topic=topic or self.topic, tags=tags or self.tags, key=key, shard=shard,
                delay_level=delay_level, headers=self.headers | dict(headers or {}),
                correlation_id=correlation_id or self._outer_config.id_generator(),
                reply_to=reply_to, _publish_type=PublishType.PUBLISH),
            producer=self._outer_config.producer, _extra_middlewares=())

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> Any:
        command = RocketMQPublishCommand.from_cmd(cmd)
        command.destination = command.destination or self.topic
        command.tags = command.tags or self.tags
        command.add_headers(self.headers, override=False)
        return await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    async def request(
        self, message: Any = None, topic: str = "", *, timeout: float = REQUEST_S,
        headers: Mapping[str, Any] | None = None, correlation_id: str | None = None,
    ) -> Any:
        """Send a message and wait `timeout` seconds for the reply."""
        return await self._basic_request(
            RocketMQPublishCommand(
                message, topic=topic or self.topic, tags=self.tags, timeout=timeout,
                headers=self.headers | dict(headers or {}),
                correlation_id=correlation_id or self._outer_config.id_generator(),
                _publish_type=PublishType.REQUEST),
            producer=self._outer_config.producer)


class Answer(FakePublisher):
    """Sends what a subscriber returned to who asked, or to the topic that the message names."""

    def __init__(self, producer: Any, reply_to: str, asked: ReceivedMessage) -> None:
        super().__init__(producer=producer)
        self._reply_to = reply_to
        self._asked = asked

    def patch_command(self, cmd: PublishCommand) -> RocketMQPublishCommand:
        command = RocketMQPublishCommand.from_cmd(super().patch_command(cmd))
        if self._reply_to == REPLY_TO_ASKER:
            command.asked = self._asked
        else:
            command.destination = self._reply_to
        return command
