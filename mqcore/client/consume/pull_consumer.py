"""The old pull consumer (client.md 5.2; RocketMQ 4.9.8: DefaultMQPullConsumer): the application
drives everything. The lite pull consumer is the better one of the two."""
from __future__ import annotations

import time
from typing import Any, Unpack

from mqcore.client.consume import pulling
from mqcore.client.consume.hooked import ConsumerHooks
from mqcore.client.consume.options import (
    GroupOptions,
    GroupSettings,
    settings_from,
    subscription,
)
from mqcore.client.consume.pulling import PullResult
from mqcore.client.consume.push import group_name, offset_store
from mqcore.client.consume.send_back import SendBack
from mqcore.client.core.options import check_topic, positive_seconds, whole
from mqcore.client.message import MessageQueue
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.blocking import BlockingRole
from mqcore.client.roles.instance import ClientInstance
from mqcore.client.roles.role import Role
from mqcore.wire.tags import SUBSCRIBE_ALL

PULL_TIMEOUT_S = 10.0
BLOCK_S = 20.0
BLOCK_TIMEOUT_S = 30.0


class AsyncPullConsumer(Role):
    """Pulls from queues that it is told, in a group that shares nothing out."""

    def __init__(self, group: str, **options: Unpack[GroupOptions]) -> None:
        """group     the consumer group
        options   of GroupSettings and ClientConfig
        Raises ConfigError, naming the option.
        """
        config, settings = settings_from(options, GroupSettings)
        self._instance = ClientInstance(config, heartbeat=self._heartbeat, masters_only=False)
        super().__init__(self._instance, f"pull consumer {group}")
        self._broadcast = settings.broadcast
        self._hooks = ConsumerHooks(group, config, settings)
        self._group = group_name(self._instance, group)
        self._store = offset_store(self._instance, self._group, settings)
        self._send_back = SendBack(self._instance, self._group, settings.max_retries)

    def _heartbeat(self) -> dict[str, Any]:
        return {"producerDataSet": [], "consumerDataSet": [{
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_ACTIVELY",
            "groupName": self._group, "unitMode": self._instance.config.unit_mode,
            "messageModel": "BROADCASTING" if self._broadcast else "CLUSTERING",
            "subscriptionDataSet": [],
        }]}

    def add_hook(self, hook: object) -> None:
        """Have an object called for each pull that brings messages, as
        AsyncLitePullConsumer.add_hook. Raises ConfigError when it has none of the methods."""
        self._hooks.hooks.add(hook)

    async def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic; raises RocketMQError."""
        self._life.check()
        name = self._instance.wrap(check_topic(topic))
        await self._instance.routes.refresh(name)
        await self._instance.send_heartbeats()
        return [MessageQueue(topic, queue.broker_name, queue.queue_id)
                for queue in self._instance.routes.queues_to_read(name) or ()]

    async def pull(
        self, queue: MessageQueue, offset: int, max: int = 32, expression: str = SUBSCRIBE_ALL, *,
        timeout: float = PULL_TIMEOUT_S,
    ) -> PullResult[ReceivedMessage]:
        """The messages of a queue from an offset on, at once.

        max         messages, at most; brokers have limits of their own
        expression  `TagA || TagB`, or Sql92(...)
        timeout     seconds for the answer
        Raises RocketMQError, ConfigError.
        """
        return await self._pull(queue, offset, max, expression, 0.0, timeout)

    async def pull_block_if_not_found(
        self, queue: MessageQueue, offset: int, max: int = 32, expression: str = SUBSCRIBE_ALL,
    ) -> PullResult[ReceivedMessage]:
        """As `pull`; the broker waits up to 20 s for the first message."""
        return await self._pull(queue, offset, max, expression, BLOCK_S, BLOCK_TIMEOUT_S)

    async def _pull(
        self, queue: MessageQueue, offset: int, count: int, expression: str, suspend: float,
        timeout: float,
    ) -> PullResult[ReceivedMessage]:
        self._life.check()
        wrapped = self._wrapped(queue)
        await self._know(wrapped)
        began = time.time()
        wanted = subscription(wrapped.topic, expression, time.time_ns() // 1_000_000)
        result = await pulling.pull(self._instance, pulling.PullRequest(
            self._group, wrapped, wanted, whole(offset, "offset", 0, 2**63 - 1),
            whole(count, "max", 1, 1_024), suspend, None, True,
            timeout=positive_seconds(timeout, "timeout")), ReceivedMessage, queue)
        result.messages = self._hooks.wanted(result.messages, queue)
        self._hooks.received(result.messages, queue, began)
        return result

    async def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of a queue; raises RocketMQError."""
        self._life.check()
        await self._know(self._wrapped(queue))
        await self._store.write(
            {self._wrapped(queue): whole(offset, "offset", 0, 2**63 - 1)}, wait=True)

    async def fetch_consume_offset(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None: there is none. Raises RocketMQError."""
        self._life.check()
        await self._know(self._wrapped(queue))
        return await self._store.read(self._wrapped(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue gets; raises RocketMQError."""
        self._life.check()
        await self._know(self._wrapped(queue))
        return await pulling.max_offset(self._instance, self._wrapped(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The smallest offset of a queue that still can be read; raises RocketMQError."""
        self._life.check()
        await self._know(self._wrapped(queue))
        return await pulling.min_offset(self._instance, self._wrapped(queue))

    async def send_message_back(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Have a message delivered by the group's retry topic.

        delay_level   0 = the broker decides, -1 = to the dead letters, 1 to 18 = this level
        Returns whether a broker has it. Raises ConfigError, ClosedError.
        """
        self._life.check()
        return await self._send_back.later(message, whole(delay_level, "delay_level", -1, 18))

    async def _know(self, queue: MessageQueue) -> None:
        """Learn where a queue is, the first time; raises RocketMQError."""
        if not self._instance.routes.queues_to_read(queue.topic):
            await self.fetch_subscribe_message_queues(self._instance.unwrap(queue.topic))

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._instance.wrap(queue.topic), queue.broker_name, queue.queue_id)

    async def _start(self) -> None:
        await self._store.load()
        await self._hooks.start()

    async def _stop(self, timeout: float) -> None:
        await self._instance.unregister(consumer=self._group)
        await self._hooks.close(timeout * 0.3)


class PullConsumer(BlockingRole[AsyncPullConsumer]):
    """The blocking face of AsyncPullConsumer; same methods, same options."""

    def __init__(self, group: str, **options: Unpack[GroupOptions]) -> None:
        """As AsyncPullConsumer; raises ConfigError, naming the option."""
        super().__init__(AsyncPullConsumer(group, **options))

    def add_hook(self, hook: object) -> None:
        """As AsyncPullConsumer.add_hook; raises ConfigError."""
        self._role.add_hook(hook)

    def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic; raises RocketMQError."""
        return self._call(self._role.fetch_subscribe_message_queues, topic)

    def pull(
        self, queue: MessageQueue, offset: int, max: int = 32, expression: str = SUBSCRIBE_ALL, *,
        timeout: float = PULL_TIMEOUT_S,
    ) -> PullResult[ReceivedMessage]:
        """The messages of a queue from an offset on, as AsyncPullConsumer.pull."""
        return self._call(self._role.pull, queue, offset, max, expression, timeout=timeout)

    def pull_block_if_not_found(
        self, queue: MessageQueue, offset: int, max: int = 32, expression: str = SUBSCRIBE_ALL,
    ) -> PullResult[ReceivedMessage]:
        """The same, waiting for the first message, as AsyncPullConsumer.pull_block_if_not_found."""
        return self._call(self._role.pull_block_if_not_found, queue, offset, max, expression)

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of a queue, as AsyncPullConsumer.update_consume_offset."""
        self._call(self._role.update_consume_offset, queue, offset)

    def fetch_consume_offset(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue, as AsyncPullConsumer.fetch_consume_offset."""
        return self._call(self._role.fetch_consume_offset, queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue gets; raises RocketMQError."""
        return self._call(self._role.max_offset, queue)

    def min_offset(self, queue: MessageQueue) -> int:
        """The smallest offset that can be read, as AsyncPullConsumer.min_offset."""
        return self._call(self._role.min_offset, queue)

    def send_message_back(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Have a message delivered again, as AsyncPullConsumer.send_message_back."""
        return self._call(self._role.send_message_back, message, delay_level)
