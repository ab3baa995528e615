"""A consumer for one's own loop: messages are asked for, and said to be done."""
from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, Unpack, cast

from mqcore.client.consume.desk import Desk, Handed
from mqcore.client.consume.hooked import ConsumerHooks
from mqcore.client.consume.inspection import Inspection
from mqcore.client.consume.member import GroupMember
from mqcore.client.consume.options import (
    GroupOptions,
    GroupSettings,
    Topics,
    settings_from,
    start_point,
    subscriptions_of,
)
from mqcore.client.consume.push import LEAVE_S, group_name, offset_store, reset_offsets
from mqcore.client.consume.rules import Rules
from mqcore.client.consume.send_back import SendBack
from mqcore.client.consume.watch import slow_of
from mqcore.client.core.options import whole
from mqcore.client.core.redelivery import DEAD_LETTER
from mqcore.client.errors import ClosedError, ConfigError
from mqcore.client.message import MessageQueue
from mqcore.client.roles.blocking import BlockingRole, LoopThread
from mqcore.client.roles.instance import ClientInstance
from mqcore.client.roles.role import Role

RECEIVE_COUNT_MAX = 100_000
AHEAD_COUNT_MAX = 256
AHEAD_S = 0.01                  # a blocking loop gets so much work ahead

Ack = Literal["auto", "manual"]


class Delivery(Handed):
    """A message of AsyncConsumer: it is acked, or comes again."""

    __slots__ = ()

    def ack(self) -> bool:
        """It is done. False: its time was over, its queue is another member's, or it was said
        before."""
        return self._desk.ack(self)

    async def retry(self, delay_level: int = 0) -> bool:
        """Deliver it again later; False as `ack`.

        delay_level   0 = the broker decides, 1 to 18 = this level of its delays
        Raises ConfigError for another level.
        """
        return await self._desk.again(self, whole(delay_level, "delay_level", 0, 18))

    async def reject(self) -> bool:
        """No more tries: to the dead letters of the group. Returns and raises as `retry`."""
        return await self._desk.again(self, DEAD_LETTER)

    @contextlib.asynccontextmanager
    async def processing(self) -> AsyncIterator[Self]:
        """Leaving well acks it; an exception has it delivered again, and continues."""
        try:
            with self._desk.consuming(self):
                yield self
        except Exception:
            await self.retry()
            raise
        self.ack()


class BlockingDelivery(Handed):
    """A message of Consumer: it is acked, or comes again; from any thread."""

    __slots__ = ()

    def ack(self) -> None:
        """It is done; without effect when its time was over or its queue is another member's."""
        LoopThread.shared().post(self._desk.ack, self)

    def retry(self, delay_level: int = 0) -> bool:
        """Deliver it again later; False: its time was over, its queue is another member's, or it
        was said before.

        delay_level   0 = the broker decides, 1 to 18 = this level of its delays
        """
        level = whole(delay_level, "delay_level", 0, 18)
        return LoopThread.shared().call(self._desk.again(self, level))

    def reject(self) -> bool:
        """No more tries: to the dead letters of the group. False as `retry`."""
        return LoopThread.shared().call(self._desk.again(self, DEAD_LETTER))

    @contextlib.contextmanager
    def processing(self) -> Iterator[Self]:
        """Leaving well acks it; an exception has it delivered again, and continues."""
        try:
            with self._desk.consuming(self):
                yield self
        except Exception:
            self.retry()
            raise
        self.ack()


class AsyncConsumer(Role):
    """
    One member of a consumer group whose messages are asked for.

        async with AsyncConsumer("billing", "orders") as consumer:
            async for message in consumer:
                await work(message)

    With ack="auto" a message is done when the next one is asked for, the last one when the block is
    left without an exception; that is for one loop. With ack="manual" each message is acked,
    retried, rejected or `processing()`; that is for any number of tasks. A message without such
    an answer within `handler_timeout` comes again. Messages come at least once.
    """

    _kind: type[Handed] = Delivery

    def __init__(self, group: str, topics: Topics, *, ack: Ack = "auto",
                 **options: Unpack[GroupOptions]) -> None:
        """
        topics     one, several, or a dict of topics and their filters
        options    of GroupSettings and ClientConfig
        Raises ConfigError, naming the parameter.
        """
        config, settings = settings_from(options, GroupSettings)
        self._acks = _is_auto(ack)
        self._instance = ClientInstance(config, heartbeat=self._heartbeat, masters_only=False)
        super().__init__(self._instance, f"consumer {group}")
        name = group_name(self._instance, group)
        consume_from, start_ms = start_point(settings.start)
        rules = Rules(
            group=name, broadcast=settings.broadcast, consume_from=consume_from,
            start_ms=start_ms, allocate=settings.allocate, limits=settings.limits,
            pull_batch=settings.pull_batch, pull_interval=settings.pull_interval,
            kind=self._kind)
        self._hooks = ConsumerHooks(group, config, settings)
        send_back = SendBack(self._instance, name, settings.max_retries)
        self._last: list[Handed] = []
        self._asking = False
        self._desk = Desk(f"consumer {group}", timeout=settings.handler_timeout,
                          slow=slow_of(self._instance), hooks=self._hooks,
                          send_back=None if settings.broadcast else send_back)
        self._member = GroupMember(
            self._instance, rules, offset_store(self._instance, name, settings), self._desk)
        self._inspection = Inspection(self._instance, self._member, settings)
        for one in subscriptions_of(topics, settings.filter, self._instance.wrap,
                                    time.time_ns() // 1_000_000).values():
            self._member.subscribe(one)

    def _heartbeat(self) -> dict[str, Any]:
        return self._member.heartbeat()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member holds now, those of its retry topic included."""
        return sorted(held.shown for held in self._member.held.values())

    def add_hook(self, hook: object) -> None:
        """Have an object called on the way of messages.

        hook   has some of `before_consume` when a message is handed out, `after_consume` when it is
               acked or sent back (with a ConsumeHookContext, in the client's loop), `consuming`
               with the same: it returns a context manager, entered with `processing()` in the
               application's thread or task, and `filter_messages` (with a FilterHookContext)
        Raises ConfigError when it has none.
        """
        self._hooks.hooks.add(hook)

    async def receive(self, max: int = 32, timeout: float | None = None) -> list[Delivery]:
        """The messages that are there, at most `max`; waits for the first one.

        timeout   seconds; then the list is empty. None = as long as it takes
        Raises ClosedError when the consumer is, or gets closed.
        """
        self._life.check()
        whole(max, "max", 1, RECEIVE_COUNT_MAX)
        return cast(list[Delivery], await self._receive(max, timeout))

    async def _receive(self, count: int, timeout: float | None) -> list[Handed]:
        if self._acks:
            if self._asking:
                raise ConfigError(
                    'ack "auto": expected "manual" for several tasks that ask at a time')
            self._ack_last()
        found = self._desk.take(count)
        if not found:
            self._asking = True
            try:
                found = await self._waited_for(count, timeout)
            finally:
                self._asking = False
        if self._acks:
            self._last = found
        return found

    async def _waited_for(self, count: int, timeout: float | None) -> list[Handed]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if not await self._desk.wait(left):
                return []
            found = self._desk.take(count)
            if found:
                return found

    async def _receive_after(
        self, done: list[Handed], count: int, timeout: float | None
    ) -> list[Handed]:
        """Ack these, then receive."""
        if not self._desk.is_closed:
            self._life.check()
        for message in done:
            self._desk.ack(message)
        return await self._receive(count, timeout)

    async def _ack_and_close(self, done: list[Handed]) -> None:
        if self.is_running:
            for message in done:
                self._desk.ack(message)
        await self.close()

    def _ack_last(self) -> None:
        for message in self._last:
            self._desk.ack(message)
        self._last = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        try:
            if not self._desk.is_closed:
                self._life.check()
            (message,) = await self._receive(1, None)
        except ClosedError:
            if self._life.is_foreign or not self._desk.is_closed:
                raise
            raise StopAsyncIteration from None
        return cast(Delivery, message)

    def suspend(self) -> None:
        """Pull nothing until `resume`; what was pulled is handed out."""
        self._member.suspend()

    def resume(self) -> None:
        """Pull again."""
        self._member.resume()

    async def reset_offsets(self, start: datetime | float) -> None:
        """Continue at what was stored at a time (client.md 4.15).

        start   a datetime, or epoch seconds
        Messages that are out have 10 s to be acked. Raises RocketMQError.
        """
        self._life.check()
        await reset_offsets(self._instance, self._member, start)

    # -- life -------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if not self._member.subscriptions:
            raise ConfigError("topics: expected at least one")
        await self._hooks.start()
        self._instance.spawn(self._desk.look_for_overdue())
        try:
            await self._member.start()
        except BaseException:
            await self._hooks.close(LEAVE_S)
            raise

    async def _stop(self, timeout: float) -> None:
        self._member.stop_pulling()
        self._desk.close()
        await self._member.leave()
        self._inspection.close()
        await self._hooks.close(timeout * 0.1)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self.is_running:
            self._ack_last()
        await self.close()


def _is_auto(ack: str) -> bool:
    if ack not in ("auto", "manual"):
        raise ConfigError(f'ack {ack!r}: expected "auto" or "manual"')
    return ack == "auto"


class _ForThreads(AsyncConsumer):
    _kind = BlockingDelivery


class Consumer(BlockingRole[AsyncConsumer]):
    """
    The blocking face of AsyncConsumer.

        with Consumer("billing", "orders") as consumer:
            for message in consumer:
                work(message)

    A loop that is quick gets messages ahead, as many as it takes AHEAD_S for.
    """

    def __init__(self, group: str, topics: Topics, *, ack: Ack = "auto",
                 **options: Unpack[GroupOptions]) -> None:
        """As AsyncConsumer; raises ConfigError, naming the parameter."""
        super().__init__(_ForThreads(group, topics, ack="manual", **options))
        self._acks = _is_auto(ack)
        self._lock = threading.Lock()
        self._ahead: deque[Handed] = deque()
        self._in_hand: list[Handed] = []        # done when something else is asked for
        self._done: list[Handed] = []           # ... and acked with the next question
        self._count = 1
        self._asked_at = 0.0

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member holds now, those of its retry topic included."""
        return self._role.assignment

    def add_hook(self, hook: object) -> None:
        """As AsyncConsumer.add_hook; raises ConfigError."""
        self._role.add_hook(hook)

    def receive(self, max: int = 32, timeout: float | None = None) -> list[BlockingDelivery]:
        """The messages that are there, at most `max`; waits for the first one.

        timeout   seconds; then the list is empty. None = as long as it takes
        Raises ClosedError when the consumer is, or gets closed.
        """
        found: Any
        if not self._acks:
            found = self._call(self._role.receive, max, timeout)
            return cast(list[BlockingDelivery], found)
        with self._lock:
            whole(max, "max", 1, RECEIVE_COUNT_MAX)
            self._done += self._in_hand
            self._in_hand = []
            if self._ahead:
                found = [self._ahead.popleft() for _ in range(min(max, len(self._ahead)))]
            else:
                found = self._call(self._role._receive_after, self._take_done(), max, timeout)
            self._in_hand = found
        return cast(list[BlockingDelivery], found)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BlockingDelivery:
        with self._lock:
            if self._acks:
                self._done += self._in_hand
                self._in_hand = []
            if not self._ahead:
                self._ask()
            message = self._ahead.popleft()
            if self._acks:
                self._in_hand = [message]
        return cast(BlockingDelivery, message)

    def _ask(self) -> None:
        """Get the next messages, more than last time if those were done quickly."""
        now = time.monotonic()
        quick = now - self._asked_at < AHEAD_S
        self._count = min(self._count * 2, AHEAD_COUNT_MAX) if quick else 1
        try:
            self._ahead.extend(LoopThread.shared().call(
                self._role._receive_after(self._take_done(), self._count, None)))
        except ClosedError:
            if self._role._life.is_foreign or not self._role._desk.is_closed:
                raise
            raise StopIteration from None
        self._asked_at = time.monotonic()

    def _take_done(self) -> list[Handed]:
        done, self._done = self._done, []
        return done

    def suspend(self) -> None:
        """Pull nothing until `resume`; what was pulled is handed out."""
        LoopThread.shared().post(self._role.suspend)

    def resume(self) -> None:
        """Pull again."""
        LoopThread.shared().post(self._role.resume)

    def reset_offsets(self, start: datetime | float) -> None:
        """Continue at what was stored at a time, as AsyncConsumer.reset_offsets."""
        self._call(self._role.reset_offsets, start)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        done = self._take_done()
        if kind is None:
            done += self._in_hand
        LoopThread.shared().call(self._role._ack_and_close(done))
