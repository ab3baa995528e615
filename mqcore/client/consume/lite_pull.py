"""
The lite pull consumer, with Java's names of methods (client.md 5.1; RocketMQ 4.9.8:
DefaultLitePullConsumer): messages are polled, positions are committed or sought.

Where it differs: `commit_sync` and `commit` wait until the brokers have the offsets, and keep
those of other members; the group is joined at the start, and not a second later.
"""
from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Unpack

from mqcore.client.config import split_addresses
from mqcore.client.consume import pulling
from mqcore.client.consume.assigned import AssignedQueue
from mqcore.client.consume.hooked import ConsumerHooks
from mqcore.client.consume.inspection import Inspection
from mqcore.client.consume.member import GroupMember
from mqcore.client.consume.options import (
    GroupOptions,
    GroupSettings,
    settings_from,
    start_point,
    subscription,
)
from mqcore.client.consume.push import LEAVE_S, group_name, in_loop, offset_store
from mqcore.client.consume.rules import Rules
from mqcore.client.core.guard import raised
from mqcore.client.core.options import check_topic, positive_seconds, whole
from mqcore.client.errors import ClientError, ConfigError, RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.blocking import BlockingRole
from mqcore.client.roles.instance import ClientInstance
from mqcore.client.roles.role import Role
from mqcore.wire.tags import SUBSCRIBE_ALL

POLL_TIMEOUT_S = 5.0
SUSPEND_S = 20.0
AUTO_COMMIT_MIN_S = 1.0

log: Final = logging.getLogger("mqcore.client")

QueueListener = Callable[[str, set[MessageQueue]], None]


class LitePullOptions(GroupOptions, total=False):
    """The options of a lite pull consumer; `LitePullSettings` says what they mean."""

    auto_commit: bool
    auto_commit_interval: float
    poll_timeout: float
    total_count_max: int
    metadata_interval: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullSettings(GroupSettings):
    """
    pull_batch            messages of a pull, and of what a poll returns, at most
    auto_commit           a poll commits what polls before it returned
    auto_commit_interval  seconds between two such commits
    poll_timeout          seconds that a poll waits
    total_count_max       messages of all queues above which nothing is pulled
    metadata_interval     seconds between two looks at the queues of topics with a listener
    """

    pull_batch: int = 10
    auto_commit: bool = True
    auto_commit_interval: float = 5.0
    poll_timeout: float = POLL_TIMEOUT_S
    total_count_max: int = 10_000
    metadata_interval: float = 30.0

    def __post_init__(self) -> None:
        GroupSettings.__post_init__(self)
        positive_seconds(self.poll_timeout, "poll_timeout")
        positive_seconds(self.metadata_interval, "metadata_interval")
        whole(self.total_count_max, "total_count_max", 1, 6_553_500)
        if self.auto_commit_interval < AUTO_COMMIT_MIN_S:
            raise ConfigError(f"auto_commit_interval {self.auto_commit_interval!r}: expected at"
                              f" least {AUTO_COMMIT_MIN_S} seconds")


class AsyncLitePullConsumer(Role):
    """Subscribe, or assign queues by hand; then poll. The first call decides which of the two."""

    def __init__(self, group: str, **options: Unpack[LitePullOptions]) -> None:
        """group     the consumer group
        options   of LitePullSettings and ClientConfig
        Raises ConfigError, naming the option.
        """
        config, settings = settings_from(options, LitePullSettings)
        self._settings = settings
        self._instance = ClientInstance(config, heartbeat=self._heartbeat, masters_only=False)
        super().__init__(self._instance, f"lite pull consumer {group}")
        name = group_name(self._instance, group)
        consume_from, start_ms = start_point(settings.start)
        rules = Rules(
            group=name, broadcast=settings.broadcast, has_retry_topic=False, manual_commit=True,
            consume_from=consume_from, start_ms=start_ms, allocate=settings.allocate,
            limits=settings.limits, pull_batch=settings.pull_batch,
            pull_interval=settings.pull_interval, consume_type="CONSUME_ACTIVELY",
            suspend=SUSPEND_S, send_subscription=True, pull_flags=pulling.SYS_FLAG_LITE,
            idle_max=None)
        self._member = GroupMember(
            self._instance, rules, offset_store(self._instance, name, settings), self)
        self._inspection = Inspection(self._instance, self._member, settings)
        self._hooks = ConsumerHooks(group, config, settings)
        self._is_assigned: bool | None = None
        self._batches: deque[tuple[AssignedQueue, list[ReceivedMessage]]] = deque()
        self._cached = 0
        self._came = asyncio.Event()
        self._next_commit = 0.0
        self._watched: dict[str, tuple[QueueListener, set[MessageQueue]]] = {}

    def _heartbeat(self) -> dict[str, Any]:
        return self._member.heartbeat()

    # -- of the member ----------------------------------------------------------------------------

    def arrived(self, held: AssignedQueue, messages: list[ReceivedMessage]) -> None:
        """Of the member: messages came."""
        messages = held.without(messages, self._hooks.wanted(messages, held.shown))
        self._batches.append((held, messages))
        self._cached += len(messages)
        if self._cached > self._settings.total_count_max:
            self._member.has_room.clear()
        self._came.set()

    def is_busy(self, held: AssignedQueue) -> bool:
        """Of the member: what was polled does not keep a queue here."""
        return False

    def add_hook(self, hook: object) -> None:
        """Have an object called for each poll that returns messages.

        hook   has some of `before_consume` and `after_consume`, called one after the other with a
               ConsumeHookContext, and `filter_messages` (with a FilterHookContext)
        Raises ConfigError when it has none.
        """
        self._hooks.hooks.add(hook)

    # -- which queues -----------------------------------------------------------------------------

    def _choose(self, assigned: bool) -> None:
        if self._is_assigned not in (None, assigned):
            raise ClientError("subscribe and assign cannot both be used by one consumer")
        self._is_assigned = assigned

    def subscribe(self, topic: str, expression: str = SUBSCRIBE_ALL) -> None:
        """Take a share of a topic's queues; before or after the start.

        expression   `TagA || TagB`, or Sql92(...)
        Raises ConfigError, ClientError after `assign`.
        """
        name = self._instance.wrap(check_topic(topic))
        wanted = subscription(name, expression, _now_ms())
        self._choose(False)
        self._member.subscribe(wanted)

    def unsubscribe(self, topic: str) -> None:
        """Give a topic up; what was polled and not committed is not."""
        self._member.unsubscribe(self._instance.wrap(check_topic(topic)))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whatever other members read; again and again. Raises
        ClientError after `subscribe`."""
        wrapped = [self._wrapped(queue) for queue in queues]
        self._choose(True)
        self._member.assign(wrapped)

    def set_sub_expression_for_assign(self, topic: str, expression: str) -> None:
        """The filter of an assigned topic; before the start.

        expression   `TagA || TagB`
        Raises ConfigError, ClientError after the start.
        """
        if self.is_running:
            raise ClientError("filters of assigned topics: expected before the start")
        name = self._instance.wrap(check_topic(topic))
        self._member.filters[name] = subscription(name, expression, _now_ms())

    def assignment(self) -> set[MessageQueue]:
        """The queues that are read now."""
        return {held.shown for held in self._member.held.values()}

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic; raises RocketMQError."""
        self._life.check()
        name = self._instance.wrap(check_topic(topic))
        await self._instance.routes.refresh(name)
        return [MessageQueue(topic, queue.broker_name, queue.queue_id)
                for queue in self._instance.routes.queues_to_read(name) or ()]

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: QueueListener
    ) -> None:
        """Have `listener(topic, queues)` called when a topic's queues are others than before."""
        self._watched[check_topic(topic)] = (listener, set())

    # -- polling ----------------------------------------------------------------------------------

    async def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """The next messages, of one queue; an empty list when none come in time.

        timeout   seconds; None = the option poll_timeout. 0 = what is there now
        Raises ClosedError.
        """
        self._life.check()
        now, began = time.monotonic(), time.time()
        if self._settings.auto_commit and now >= self._next_commit:
            self._next_commit = now + self._settings.auto_commit_interval
            self._mark(self._member.held.values())
        deadline = now + (self._settings.poll_timeout if timeout is None else timeout)
        while True:
            messages = self._next_batch(began)
            left = deadline - time.monotonic()
            if messages or left <= 0:
                return messages
            self._came.clear()
            try:
                async with asyncio.timeout(left):
                    await self._came.wait()
            except TimeoutError:
                return self._next_batch(began)
            self._life.check()

    def _next_batch(self, began: float) -> list[ReceivedMessage]:
        while self._batches:
            held, messages = self._batches.popleft()
            self._cached -= len(messages)
            if self._cached <= self._settings.total_count_max:
                self._member.has_room.set()
            if messages and not held.dropped:
                held.done(messages)
                self._hooks.received(messages, held.shown, began)
                return messages
        return []

    # -- positions --------------------------------------------------------------------------------

    @staticmethod
    def _mark(queues: Iterable[AssignedQueue]) -> None:
        """Polled messages may be committed."""
        for held in queues:
            held.marked = held.messages.commit_offset

    async def commit_sync(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was polled, or these offsets of assigned queues, and wait until the brokers
        have it. Raises RocketMQError."""
        self._life.check()
        if offsets is None:
            await self.commit(self.assignment())
            return
        for queue, offset in offsets.items():
            self._assigned(queue).marked = whole(offset, "offset", 0, 2**63 - 1)
        await self._member.commit_now(map(self._wrapped, offsets))

    async def commit(self, queues: Iterable[MessageQueue]) -> None:
        """Commit the polled messages of the given queues; raises RocketMQError."""
        self._life.check()
        held = [self._assigned(queue) for queue in queues]
        self._mark(held)
        await self._member.commit_now(one.queue for one in held)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None: there is none. Raises RocketMQError."""
        self._life.check()
        return await self._member.stored_offset(self._wrapped(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at this offset in an assigned queue, and drop messages that were pulled before.
        Raises ClientError when it is not assigned or the offset lies outside of the queue."""
        self._life.check()
        wrapped = self._assigned(queue).queue
        least = await pulling.min_offset(self._instance, wrapped)
        most = await pulling.max_offset(self._instance, wrapped)
        if not least <= offset <= most:
            raise ClientError(f"offset {offset} of {queue}: expected {least} to {most}")
        await self._seek(wrapped, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message that can be read; raises as `seek`."""
        self._life.check()
        wrapped = self._assigned(queue).queue
        await self._seek(wrapped, await pulling.min_offset(self._instance, wrapped))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue behind the last message; raises as `seek`."""
        self._life.check()
        wrapped = self._assigned(queue).queue
        await self._seek(wrapped, await pulling.max_offset(self._instance, wrapped))

    async def _seek(self, queue: MessageQueue, offset: int) -> None:
        if not await self._member.seek(queue, offset):
            raise ClientError(f"{queue} is not assigned")

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp: float) -> int:
        """The offset of what was stored in a queue around a time.

        timestamp   epoch seconds
        Raises RocketMQError.
        """
        self._life.check()
        return await pulling.offset_at(
            self._instance, self._wrapped(queue), round(timestamp * 1000))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues no more; messages already pulled are still polled. Raises ClientError
        for
        one that is not assigned.
        """
        for queue in queues:
            self._assigned(queue).going.clear()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again; raises as `pause`."""
        for queue in queues:
            self._assigned(queue).going.set()

    def update_name_server_address(self, addresses: str | Iterable[str]) -> None:
        """Ask other name servers from now on.

        addresses   `host:port;host:port`, or a list
        """
        self._instance.name_servers.update(split_addresses(
            addresses if isinstance(addresses, str) else list(addresses)))

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._instance.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _assigned(self, queue: MessageQueue) -> AssignedQueue:
        held = self._member.held.get(self._wrapped(queue))
        if held is None:
            raise ClientError(f"{queue} is not assigned")
        return held

    # -- life -------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._is_assigned is None:
            raise ClientError("subscribe to a topic, or assign queues, before the start")
        self._next_commit = time.monotonic()        # the first poll commits where queues begin
        await self._hooks.start()
        try:
            await self._member.start()
        except BaseException:
            await self._hooks.close(LEAVE_S)
            raise
        self._instance.spawn(self._watch_queues())

    async def _stop(self, timeout: float) -> None:
        self._member.stop_pulling()
        self._came.set()
        await self._member.leave()
        self._inspection.close()
        await self._hooks.close(timeout * 0.1)

    async def _watch_queues(self) -> None:
        while True:
            for topic, (listener, known) in list(self._watched.items()):
                try:
                    found = set(await self.fetch_message_queues(topic))
                except RocketMQError as error:
                    log.warning("the queues of %s are unknown: %s", topic, error)
                    continue
                if found != known:
                    self._watched[topic] = (listener, found)
                    try:
                        listener(topic, found)
                    except BaseException as error:      # the next change is told too
                        raised(error, "a listener for the queues of %s failed", topic)
            await asyncio.sleep(self._settings.metadata_interval)


class LitePullConsumer(BlockingRole[AsyncLitePullConsumer]):
    """The blocking face of AsyncLitePullConsumer; same methods, same options."""

    def __init__(self, group: str, **options: Unpack[LitePullOptions]) -> None:
        """As AsyncLitePullConsumer; raises ConfigError, naming the option."""
        super().__init__(AsyncLitePullConsumer(group, **options))

    def add_hook(self, hook: object) -> None:
        """As AsyncLitePullConsumer.add_hook; raises ConfigError."""
        self._role.add_hook(hook)

    def subscribe(self, topic: str, expression: str = SUBSCRIBE_ALL) -> None:
        """Take a share of a topic's queues, as AsyncLitePullConsumer.subscribe."""
        in_loop(lambda: self._role.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Give a topic up, as AsyncLitePullConsumer.unsubscribe."""
        in_loop(lambda: self._role.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, as AsyncLitePullConsumer.assign."""
        in_loop(lambda: self._role.assign(queues))

    def set_sub_expression_for_assign(self, topic: str, expression: str) -> None:
        """The filter of an assigned topic, as
        AsyncLitePullConsumer.set_sub_expression_for_assign.
        """
        in_loop(lambda: self._role.set_sub_expression_for_assign(topic, expression))

    def assignment(self) -> set[MessageQueue]:
        """The queues that are read now."""
        return in_loop(self._role.assignment)

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic; raises RocketMQError."""
        return self._call(self._role.fetch_message_queues, topic)

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: QueueListener
    ) -> None:
        """Have `listener(topic, queues)` called, in the client's thread, when they change."""
        in_loop(lambda: self._role.register_topic_message_queue_change_listener(topic, listener))

    def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """The next messages, of one queue, as AsyncLitePullConsumer.poll."""
        return self._call(self._role.poll, timeout)

    def commit_sync(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was polled, or these offsets, as AsyncLitePullConsumer.commit_sync."""
        self._call(self._role.commit_sync, offsets)

    def commit(self, queues: Iterable[MessageQueue]) -> None:
        """Commit the polled messages of the given queues; raises RocketMQError."""
        self._call(self._role.commit, queues)

    def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None: there is none. Raises RocketMQError."""
        return self._call(self._role.committed, queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at this offset in a queue, as AsyncLitePullConsumer.seek."""
        self._call(self._role.seek, queue, offset)

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first readable message, as AsyncLitePullConsumer.seek_to_begin."""
        self._call(self._role.seek_to_begin, queue)

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue behind the last message, as AsyncLitePullConsumer.seek_to_end."""
        self._call(self._role.seek_to_end, queue)

    def offset_for_timestamp(self, queue: MessageQueue, timestamp: float) -> int:
        """The offset of what was stored around a time, as
        AsyncLitePullConsumer.offset_for_timestamp.
        """
        return self._call(self._role.offset_for_timestamp, queue, timestamp)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues no more, as AsyncLitePullConsumer.pause."""
        in_loop(lambda: self._role.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again, as AsyncLitePullConsumer.resume."""
        in_loop(lambda: self._role.resume(queues))

    def update_name_server_address(self, addresses: str | Iterable[str]) -> None:
        """Ask other name servers, as AsyncLitePullConsumer.update_name_server_address."""
        in_loop(lambda: self._role.update_name_server_address(addresses))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
