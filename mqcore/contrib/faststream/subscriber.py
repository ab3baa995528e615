"""Subscribers: members of consumer groups that call FastStream's functions."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import (
    BrokerConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.mixins import TasksMixin
from faststream._internal.endpoint.utils import process_msg
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, SubscriberSpec

from mqcore.client import AsyncConsumer, Delivery
from mqcore.contrib.faststream.messages import Parser, RocketMQMessage
from mqcore.contrib.faststream.publisher import Answer
from mqcore.contrib.faststream.topics import HasTopic, SaysTopic

TAKE_COUNT = 32


@dataclass(kw_only=True)
class SubscriberConfig(SubscriberUsecaseConfig):
    """What one subscriber was told."""

    _outer_config: BrokerConfig = field(default_factory=BrokerConfig)
    topic: str
    group: str | None
    max_workers: int
    options: dict[str, Any]

    @property
    def ack_policy(self) -> AckPolicy:
        """What fails comes again, unless somebody said otherwise."""
        if self._ack_policy is not EMPTY:
            return self._ack_policy
        outer = self._outer_config.ack_policy
        return AckPolicy.NACK_ON_ERROR if outer is EMPTY else outer


@dataclass(kw_only=True)
class SubscriberSpecConfig(SubscriberSpecificationConfig):
    """What the schema says of one subscriber."""

    topic: str


class RocketMQSubscriberSpecification(
        SaysTopic, SubscriberSpecification[BrokerConfig, SubscriberSpecConfig]):
    """One subscriber in the AsyncAPI schema."""

    @property
    def channel_labels(self) -> list[str]:
        """What its channel is called."""
        return [self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Its channel."""
        payload = resolve_payloads(self.get_payloads())
        return {self.name: SubscriberSpec(
            address=self.topic, description=self.description, bindings=None,
            operation=Operation(message=MessageSpec(title=f"{self.name}:Message", payload=payload),
                                bindings=None))}


class RocketMQSubscriber(HasTopic, TasksMixin, SubscriberUsecase[Delivery]):
    """Takes messages of one topic, up to `max_workers` at a time."""

    def __init__(self, config: SubscriberConfig, specification: Any, calls: Any) -> None:
        config.parser, config.decoder = Parser.parse, Parser.decode
        super().__init__(config, specification, calls)
        self._topic = config.topic
        self._group = config.group
        self._options = config.options
        self._max_workers = config.max_workers
        self._consumer: AsyncConsumer | None = None
        self._slots = asyncio.Semaphore(config.max_workers)

    @property
    def group(self) -> str:
        """Its consumer group; of the topic's name unless it was told one."""
        return self._group or f"faststream-{self.topic}"

    async def start(self) -> None:
        """Join the group and take messages; raises RocketMQError."""
        await super().start()
        await self._join()              # from here on the group misses nothing
        if self.calls:
            self.add_task(self._take, restart_on_failure=False)
        self._post_start()

    async def _join(self) -> AsyncConsumer:
        if self._consumer is None:
            self._consumer = await self._outer_config.join(self.group, self.topic, self._options)
        consumer: AsyncConsumer = self._consumer
        return consumer

    async def stop(self) -> None:
        """Leave the group when what was begun has ended; the rest comes again."""
        await super().stop()
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.close()

    async def _take(self) -> None:
        consumer = await self._join()
        async with asyncio.TaskGroup() as running:
            async for message in consumer:
                if self._max_workers == 1:
                    await self.consume(message)
                    continue
                await self._slots.acquire()
                running.create_task(self._consume_one(message))

    async def _consume_one(self, message: Delivery) -> None:
        try:
            await self.consume(message)
        finally:
            self._slots.release()

    async def get_one(self, *, timeout: float = 5.0) -> RocketMQMessage | None:
        """The next message, or None after `timeout` seconds; the caller acks it."""
        assert not self.calls, "get_one is for subscribers without functions"
        consumer = await self._join()
        found = await consumer.receive(1, timeout=timeout)
        return await self._seen(found[0] if found else None)

    async def __aiter__(self) -> AsyncIterator[RocketMQMessage]:
        assert not self.calls, "iterating is for subscribers without functions"
        async for message in await self._join():
            seen = await self._seen(message)
            if seen is not None:
                yield seen

    async def _seen(self, message: Delivery | None) -> RocketMQMessage | None:
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        seen: RocketMQMessage | None = await process_msg(
            msg=message, parser=parser, decoder=decoder,
            middlewares=(one(message, context=context) for one in self._broker_middlewares))
        return seen

    def _make_response_publisher(self, message: Any) -> Sequence[Any]:
        return (Answer(self._outer_config.producer, message.reply_to, message.raw_message),)

    def get_log_context(self, message: Any) -> dict[str, str]:
        """What each line of the log says."""
        return {"topic": self.topic, "group": self.group,
                "message_id": getattr(message, "message_id", "")}
