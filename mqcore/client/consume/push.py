"""The push consumer: a listener is called with what the group's share of queues brings."""
from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar, Unpack

from mqcore.client.consume import pulling
from mqcore.client.consume.assigned import AssignedQueue
from mqcore.client.consume.concurrent import ConcurrentService
from mqcore.client.consume.hooked import ConsumerHooks, HookedCall
from mqcore.client.consume.inspection import Inspection
from mqcore.client.consume.listener import Listener, ListenerCall, is_async
from mqcore.client.consume.member import GroupMember
from mqcore.client.consume.options import (
    GroupSettings,
    PushOptions,
    PushSettings,
    Topics,
    settings_from,
    start_point,
    subscription,
    subscriptions_of,
)
from mqcore.client.consume.orderly import OrderlyService
from mqcore.client.consume.rules import Rules
from mqcore.client.consume.send_back import SendBack
from mqcore.client.consume.stores import BrokerOffsets, LocalOffsets, OffsetStore
from mqcore.client.consume.watch import slow_of, watch_loop
from mqcore.client.core.options import check_consumer_group, check_group, check_topic
from mqcore.client.errors import ConfigError
from mqcore.client.message import MessageQueue
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.blocking import BlockingRole, LoopThread
from mqcore.client.roles.instance import ClientInstance
from mqcore.client.roles.role import CLOSE_TIMEOUT_S, Role
from mqcore.wire.tags import SUBSCRIBE_ALL

T = TypeVar("T")

FORBIDDEN_GROUP = "DEFAULT_CONSUMER"
LEAVE_S = 2.0                   # of a close's time, for commits and goodbyes


def group_name(instance: ClientInstance, group: str) -> str:
    """The group as brokers know it; raises ConfigError."""
    if check_group(group) == FORBIDDEN_GROUP:
        raise ConfigError(f"group {group}: expected another name than Java's default")
    return check_consumer_group(instance.wrap(group))


def offset_store(instance: ClientInstance, group: str, settings: GroupSettings) -> OffsetStore:
    """The file of a broadcasting member, the brokers' table of others."""
    if settings.broadcast:
        return LocalOffsets(instance, group, settings.offsets_folder)
    return BrokerOffsets(instance, group)


def listening_time(timeout: float) -> float:
    """The part of a close's `timeout` seconds for listeners; the rest is for the brokers."""
    return max(timeout - LEAVE_S, timeout / 2)


async def reset_offsets(instance: ClientInstance, member: GroupMember, start: datetime | float,
                        ) -> None:
    """Continue in all held queues at a store time; raises RocketMQError, ConfigError."""
    _, start_ms = start_point(start)
    queues = [queue for queue in member.held if queue.topic != member.rules.retry_topic]
    found = await asyncio.gather(
        *(pulling.offset_at(instance, queue, start_ms) for queue in queues))
    await member.restart_at(dict(zip(queues, found, strict=True)))


class AsyncPushConsumer(Role):
    """
    One member of a consumer group, which calls a listener (client.md 4; RocketMQ 4.9.8:
    DefaultMQPushConsumer). Use it as `async with AsyncPushConsumer(...) as c: await c.run()`.

    A message is done when the listener returns; when it raises, the message comes again later, up
    to `max_retries` times, then it goes to the group's dead letters. It always comes at
    least once; after crashes and moves of queues perhaps twice.
    """

    def __init__(self, group: str, topics: Topics, listener: Listener,
                 **options: Unpack[PushOptions]) -> None:
        """
        topics     one, several, or a dict of topics and their filters
        listener   `async def`, or with run_in_thread=True a function that may block; it takes
                   (message), or (messages, context). It may raise Retry(delay_level) or Reject()
        options    of PushSettings and ClientConfig
        Raises ConfigError, naming the parameter.
        """
        config, settings = settings_from(options, PushSettings)
        self._settings = settings
        self._instance = ClientInstance(config, heartbeat=self._heartbeat, masters_only=False)
        super().__init__(self._instance, f"push consumer {group}")
        name = group_name(self._instance, group)
        call = ListenerCall(listener, batch=settings.batch, in_thread=settings.run_in_thread)
        consume_from, start_ms = start_point(settings.start)
        rules = Rules(
            group=name, broadcast=settings.broadcast, orderly=settings.orderly,
            consume_from=consume_from, start_ms=start_ms, allocate=settings.allocate,
            limits=settings.limits, pull_batch=settings.pull_batch,
            pull_interval=settings.pull_interval)
        self._hooks = ConsumerHooks(group, config, settings)
        self._call = HookedCall(call, self._hooks.hooks, group, config.namespace,
                                settings.handler_timeout)
        self._send_back = SendBack(self._instance, name, settings.max_retries)
        self._service: ConcurrentService | OrderlyService
        self._member = GroupMember(
            self._instance, rules, offset_store(self._instance, name, settings), self)
        self._service = self._orderly() if settings.orderly else self._concurrent()
        self._inspection = Inspection(self._instance, self._member, settings, call)
        for one in subscriptions_of(
                topics, settings.filter, self._instance.wrap, _now_ms()).values():
            self._member.subscribe(one)

    def _concurrent(self) -> ConcurrentService:
        settings = self._settings
        return ConcurrentService(
            self._call, concurrency=settings.concurrency, batch=settings.batch,
            timeout=settings.handler_timeout,
            send_back=None if settings.broadcast else self._send_back,
            spawn=self._instance.spawn, slow=slow_of(self._instance))

    def _orderly(self) -> OrderlyService:
        settings = self._settings
        return OrderlyService(
            self._call, concurrency=settings.concurrency, batch=settings.batch,
            timeout=settings.handler_timeout, suspend=settings.suspend,
            retries_max=settings.max_retries, send_back=self._send_back,
            is_locked=self._member.is_locked, broadcast=settings.broadcast,
            spawn=self._instance.spawn, slow=slow_of(self._instance))

    # -- of the member ----------------------------------------------------------------------------

    def arrived(self, held: AssignedQueue, messages: list[ReceivedMessage]) -> None:
        """Of the member: messages came."""
        wanted = self._hooks.wanted(messages, held.shown)
        self._service.arrived(held, held.without(messages, wanted))

    def is_busy(self, held: AssignedQueue) -> bool:
        """Of the member: whether the listener works on messages of this queue."""
        return self._service.is_busy(held)

    def _heartbeat(self) -> dict[str, Any]:
        return self._member.heartbeat()

    def add_hook(self, hook: object) -> None:
        """Have an object called on the way of messages.

        hook   has some of `before_consume`, `after_consume` with a ConsumeHookContext, `consuming`
               with the same: it returns a context manager, entered around the listener's call (all
               in the listener's thread), and `filter_messages` (with a FilterHookContext)
        Raises ConfigError when it has none.
        """
        self._hooks.hooks.add(hook)

    # -- what an application asks -----------------------------------------------------------------

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member holds now, those of its retry topic included."""
        return sorted(held.shown for held in self._member.held.values())

    def subscribe(self, topic: str, filter: str = SUBSCRIBE_ALL) -> None:
        """Ask for another topic, or with another filter (`TagA || TagB`, Sql92(...)); before the
        start or while it runs. All members of a group have to ask for the same. Raises
        ConfigError."""
        name = self._instance.wrap(check_topic(topic))
        self._member.subscribe(subscription(name, filter, _now_ms()))

    def unsubscribe(self, topic: str) -> None:
        """Ask for a topic no longer; its finished messages are committed."""
        self._member.unsubscribe(self._instance.wrap(check_topic(topic)))

    def suspend(self) -> None:
        """Pull nothing until `resume`; what was pulled is consumed (client.md 4.16)."""
        self._member.suspend()

    def resume(self) -> None:
        """Pull again."""
        self._member.resume()

    async def reset_offsets(self, start: datetime | float) -> None:
        """Continue at what was stored at a time (client.md 4.15).

        start   a datetime, or epoch seconds
        Running listener calls have 10 s to end. Raises RocketMQError when a broker cannot say.
        """
        self._life.check()
        await reset_offsets(self._instance, self._member, start)

    async def run(self) -> None:
        """Consume until SIGTERM, SIGINT or `close`; starts what is not started, and closes it.
        Raises as `start`.
        """
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        signals = []
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, ended.set)
                signals.append(number)
        waits = [asyncio.create_task(one.wait()) for one in (ended, self._closed)]
        try:
            if not self.is_running:
                await self.start()
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            for number in signals:
                loop.remove_signal_handler(number)
            await self.close()

    # -- life -------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if not self._member.subscriptions:
            raise ConfigError("topics: expected at least one")
        await self._hooks.start()
        self._service.start()
        if self._call.is_async:
            self._instance.spawn(watch_loop(
                self._call.name, lambda: self._service.calls, slow_of(self._instance)))
        try:
            await self._member.start()
        except BaseException:
            await self._hooks.close(LEAVE_S)
            raise

    async def _stop(self, timeout: float) -> None:
        self._member.stop_pulling()
        late = await self._service.stop(listening_time(timeout))
        await self._member.leave()
        self._inspection.close()
        await self._hooks.close(timeout * 0.1)
        if late:
            raise TimeoutError


class PushConsumer(BlockingRole[AsyncPushConsumer]):
    """
    The blocking face of AsyncPushConsumer: its listener is a plain function, called in threads (at
    most `concurrency` at a time), or `async def`, called in the client's own loop.

        with PushConsumer("billing", "orders", handle) as consumer:
            consumer.run()
    """

    def __init__(self, group: str, topics: Topics, listener: Listener,
                 **options: Unpack[PushOptions]) -> None:
        """As AsyncPushConsumer; raises ConfigError, naming the parameter."""
        super().__init__(_made(group, topics, listener, options))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member holds now, those of its retry topic included."""
        return self._role.assignment

    def add_hook(self, hook: object) -> None:
        """As AsyncPushConsumer.add_hook; raises ConfigError."""
        self._role.add_hook(hook)

    def subscribe(self, topic: str, filter: str = SUBSCRIBE_ALL) -> None:
        """Ask for another topic, or with another filter; raises ConfigError."""
        in_loop(lambda: self._role.subscribe(topic, filter))

    def unsubscribe(self, topic: str) -> None:
        """Ask for a topic no longer; its finished messages are committed."""
        in_loop(lambda: self._role.unsubscribe(topic))

    def suspend(self) -> None:
        """Pull nothing until `resume`; what was pulled is consumed."""
        in_loop(self._role.suspend)

    def resume(self) -> None:
        """Pull again."""
        in_loop(self._role.resume)

    def reset_offsets(self, start: datetime | float) -> None:
        """Continue at what was stored at a time, as AsyncPushConsumer.reset_offsets."""
        self._call(self._role.reset_offsets, start)

    def run(self) -> None:
        """Consume until SIGTERM, SIGINT (of the main thread) or `close` by another thread."""
        ended = threading.Event()
        with _signals_set(ended):
            if not self.is_running:
                self.start()
            while self.is_running and not ended.wait(0.2):
                continue
            self.close(CLOSE_TIMEOUT_S)


def _made(group: str, topics: Topics, listener: Listener,
          options: PushOptions) -> AsyncPushConsumer:
    given: PushOptions = {**options}
    if callable(listener):
        given.setdefault("run_in_thread", not is_async(listener))
    return AsyncPushConsumer(group, topics, listener, **given)


@contextlib.contextmanager
def _signals_set(ended: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the event meanwhile, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: ended.set())
              for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def in_loop(function: Callable[[], T]) -> T:
    """Call a function in the loop of the blocking roles: what it changes is that loop's."""
    async def later() -> T:
        return function()

    return LoopThread.shared().call(later())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
