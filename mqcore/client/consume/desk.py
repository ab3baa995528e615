"""Messages that wait for a taker, and those that are handed out and not yet done."""
from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from mqcore.client.consume.assigned import AssignedQueue
from mqcore.client.consume.hooked import CallResult, ConsumeHookContext, ConsumerHooks
from mqcore.client.consume.send_back import SendBack
from mqcore.client.consume.watch import Slow
from mqcore.client.core import redelivery
from mqcore.client.errors import ClosedError
from mqcore.client.received import ReceivedMessage

LOOK_S_MAX = 30.0

log: Final = logging.getLogger("mqcore.client")


class Handed(ReceivedMessage):
    """A message that knows the desk which handed it out."""

    __slots__ = ("_context", "_desk", "_held", "_since")

    _context: ConsumeHookContext | None
    _desk: Desk
    _held: AssignedQueue
    _since: float


class Desk:
    """Hands messages out and takes their outcome; a sink of GroupMember."""

    def __init__(self, name: str, *, timeout: float, send_back: SendBack | None,
                 slow: Slow, hooks: ConsumerHooks) -> None:
        """`timeout` seconds that a message may be out; `send_back` None: broadcasting; `slow` hears
        of what was out for too long."""
        self._name = name
        self._slow = slow
        self._hooks = hooks
        self._timeout = timeout
        self._send_back = send_back
        self._waiting: deque[tuple[AssignedQueue, Handed]] = deque()
        self._out: dict[Handed, None] = {}      # in the order in which they were handed out
        self._came = asyncio.Event()
        self._timers: set[asyncio.TimerHandle] = set()
        self.is_closed: bool = False

    def arrived(self, held: AssignedQueue, messages: list[ReceivedMessage]) -> None:
        wanted = held.without(messages, self._hooks.wanted(messages, held.shown))
        self._waiting.extend([(held, message) for message in wanted
                              if isinstance(message, Handed)])
        self._came.set()

    def is_busy(self, held: AssignedQueue) -> bool:
        return any(message._held is held for message in self._out)

    @property
    def out_count(self) -> int:
        """Messages that are handed out and not done."""
        return len(self._out)

    def close(self) -> None:
        """Hand out no more; waiting takers are told."""
        self.is_closed = True
        self._waiting.clear()
        for timer in self._timers:
            timer.cancel()
        for message in self._out:
            self._settled(message, CallResult.FAILED)
        self._came.set()

    def take(self, count: int) -> list[Handed]:
        """At most `count` messages that are there now."""
        found: list[Handed] = []
        waiting, now = self._waiting, time.monotonic()
        while waiting and len(found) < count:
            held, message = waiting.popleft()
            if held.dropped:
                continue                # of the queue's new owner
            message._desk, message._held, message._since = self, held, now
            message._context = self._hooks.handed_out(message)
            self._out[message] = None
            found.append(message)
        return found

    async def wait(self, timeout: float | None) -> bool:
        """Wait until messages may be there, `timeout` seconds at most; raises ClosedError."""
        if self.is_closed:
            raise ClosedError("the consumer is closed")
        if self._waiting:
            return True
        self._came.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._came.wait()
        except TimeoutError:
            return False
        if self.is_closed:
            raise ClosedError("the consumer is closed")
        return True

    # -- outcomes -------------------------------------------------------------------------------

    def ack(self, message: Handed) -> bool:
        """Done; False when it is no longer this member's to say, or was said before."""
        if message not in self._out:
            return False
        del self._out[message]
        self._settled(message, CallResult.SUCCESS)
        held = message._held
        if held.dropped:
            return False
        held.done([message])
        counts = held.counts
        counts.ok += 1
        counts.calls += 1
        counts.call_s += time.monotonic() - message._since
        return True

    async def again(self, message: Handed, delay_level: int, *,
                    result: CallResult = CallResult.FAILED) -> bool:
        """Deliver it again later, or to the dead letters (-1); False as `ack`."""
        if message not in self._out:
            return False
        del self._out[message]
        self._settled(message, result)
        held = message._held
        if held.dropped:
            return False
        held.counts.failed += 1
        if self._send_back is None:
            log.warning("broadcast message %s failed and is dropped", message)
        elif not await self._send_back.later(message, delay_level):
            self._resubmit(held, message)
            return True
        if not held.dropped:
            held.done([message])
        return True

    def consuming(self, message: Handed) -> AbstractContextManager[None]:
        """Around the application's work on a message, in its thread or task."""
        if message._context is None:
            return nullcontext()
        return self._hooks.hooks.consuming(message._context)

    def _settled(self, message: Handed, result: CallResult) -> None:
        context, message._context = message._context, None
        self._hooks.settled(context, result)

    def _resubmit(self, held: AssignedQueue, message: Handed) -> None:
        """No broker took it: it comes again here."""
        message.reconsume_times += 1

        def back() -> None:
            self._timers.discard(handle)
            if not held.dropped and not self.is_closed:
                self.arrived(held, [message])

        handle = asyncio.get_running_loop().call_later(redelivery.RESUBMIT_S, back)
        self._timers.add(handle)

    async def look_for_overdue(self) -> None:
        """Send back what is out for too long; does not end."""
        while True:
            await asyncio.sleep(min(self._timeout / 10, LOOK_S_MAX))
            now = time.monotonic()
            overdue = []
            for message in self._out:
                if not redelivery.is_overdue(message._since, now, self._timeout):
                    break
                overdue.append(message)
            for message in overdue:
                log.warning("%s is neither acked nor refused for more than %s s: it comes again"
                            " later", message, self._timeout)
                self._slow(self._name, [message], now - message._since, True)
                await self.again(message, redelivery.EXPIRED_DELAY_LEVEL,
                                 result=CallResult.TIME_OUT)
