"""Messages to a listener in the order of their queues, one call at a time for each (client.md
4.13)."""
from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mqcore.client.consume.assigned import AssignedQueue
from mqcore.client.consume.hooked import HookedCall
from mqcore.client.consume.listener import ConsumeStatus, Outcome
from mqcore.client.consume.send_back import SendBack
from mqcore.client.consume.threads import ListenerThreads
from mqcore.client.consume.watch import Slow
from mqcore.client.core import redelivery
from mqcore.client.core.process_queue import OrderlyQueue
from mqcore.client.received import ReceivedMessage

LOCK_LOOK_S = 0.1               # until a lock that was not renewed is looked at again
CONTINUOUS_S = 60.0             # of one queue, while others wait for a slot

log: Final = logging.getLogger("mqcore.client")

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class OrderlyService:
    """Calls the listener for what arrives; a sink of GroupMember.

    A queue has a slot for CONTINUOUS_S at most, then those that wait come first.
    """

    def __init__(
        self, call: HookedCall, *, concurrency: int, batch: int, timeout: float,
        suspend: float, retries_max: int, send_back: SendBack,
        is_locked: Callable[[AssignedQueue], bool], broadcast: bool, spawn: Spawn, slow: Slow,
    ) -> None:
        """`timeout` seconds of a call are only warned of, and told to `slow`; `suspend` before
        messages come again."""
        self._call = call
        self._batch = batch
        self._timeout = timeout
        self._suspend = suspend
        self._retries_max = retries_max
        self._send_back = send_back
        self._is_locked = is_locked
        self._broadcast = broadcast
        self._spawn = spawn
        self._slow = slow
        self._slots = asyncio.Semaphore(concurrency)
        self._calls: dict[AssignedQueue, tuple[float, list[ReceivedMessage]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._threads = None if call.is_async else ListenerThreads(concurrency)
        self.calls: int = 0

    def arrived(self, held: AssignedQueue, messages: list[ReceivedMessage]) -> None:
        if not held.consuming and not self._stopped:
            held.consuming = True
            task = self._spawn(self._consume(held))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def is_busy(self, held: AssignedQueue) -> bool:
        return held in self._calls

    @property
    def running(self) -> list[str]:
        return [repr(messages[0]) for _, messages in self._calls.values()]

    def start(self) -> None:
        self._spawn(self._look_for_late())

    async def stop(self, timeout: float) -> int:
        """Begin no more calls and wait for those that run; how many still do after `timeout`."""
        self._stopped = True
        waiting = self._tasks
        if waiting:
            deadline = time.monotonic() + timeout
            while self._calls and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
        late = len(self._calls)
        for task in list(waiting):
            task.cancel()
        if self._threads is not None:
            self._threads.close()
        return late

    async def _consume(self, held: AssignedQueue) -> None:
        queue = held.messages
        assert isinstance(queue, OrderlyQueue)
        try:
            while queue.has_waiting and not held.dropped and not self._stopped:
                if not self._is_locked(held):
                    await asyncio.sleep(LOCK_LOOK_S)
                    continue
                pause = 0.0
                async with self._slots:
                    began = time.monotonic()
                    while (queue.has_waiting and not held.dropped and not self._stopped
                           and not pause and self._is_locked(held)
                           and time.monotonic() - began < CONTINUOUS_S):
                        pause = await self._next(held, queue)
                if pause:
                    await asyncio.sleep(pause)
        finally:
            held.consuming = False

    async def _next(self, held: AssignedQueue, queue: OrderlyQueue[ReceivedMessage]) -> float:
        """One call; how many seconds the queue stands still after it."""
        messages = queue.take(self._batch)
        started = time.monotonic()
        self._calls[held] = (started, messages)
        self.calls += 1
        is_settled = False
        try:
            outcome = await self._called(held, messages)
            pause = 0.0
            if not held.dropped:
                pause = await self._finish(
                    held, queue, messages, outcome, time.monotonic() - started)
            is_settled = True
            return pause
        except Exception:
            log.exception("what came of %s is unknown: it comes again", messages[0])
            return redelivery.suspension(self._suspend)
        finally:
            if not is_settled:
                queue.make_again(messages)      # else the next commit would take them for done
            self._calls.pop(held, None)

    async def _called(self, held: AssignedQueue, messages: list[ReceivedMessage]) -> Outcome:
        if self._threads is None:
            outcome = await self._call.call(messages, held.shown)
            await asyncio.sleep(0)
            return outcome
        return await self._threads.run(lambda: self._call.call_here(messages, held.shown))

    async def _finish(
        self, held: AssignedQueue, queue: OrderlyQueue[ReceivedMessage],
        messages: list[ReceivedMessage], outcome: Outcome, took: float,
    ) -> float:
        counts = held.counts
        counts.calls += 1
        counts.call_s += took
        held.last_consume = time.time()
        if outcome.is_success:
            counts.ok += len(messages)
            if outcome.auto_commit or outcome.status is ConsumeStatus.COMMIT:
                queue.commit()
                held.done([])
            return 0.0
        counts.failed += len(messages)
        pause = redelivery.suspension(
            self._suspend if outcome.suspend is None else outcome.suspend)
        if outcome.status is ConsumeStatus.ROLLBACK and not outcome.auto_commit:
            queue.rollback()
            return pause
        again = [message for message in messages if await self._comes_again(message, outcome)]
        queue.make_again(again)
        if again:
            queue.done(one for one in messages if one not in again)
            return pause
        if outcome.auto_commit:
            queue.commit()
            held.done([])
        return 0.0

    async def _comes_again(self, message: ReceivedMessage, outcome: Outcome) -> bool:
        """Counts the try; a message that had its last one goes to the dead letters."""
        rejected = outcome.delay_level == redelivery.DEAD_LETTER
        if not rejected and redelivery.comes_again(message.reconsume_times, self._retries_max):
            message.reconsume_times += 1
            return True
        if self._broadcast:
            log.warning("broadcast message %s failed and is dropped", message)
            return False
        if rejected:
            message.reconsume_times = max(message.reconsume_times, self._retries_max)
        return not await self._send_back.to_dead_letters(message)

    async def _look_for_late(self) -> None:
        warned: set[float] = set()
        while True:
            await asyncio.sleep(min(self._timeout / 10, 30.0))
            now = time.monotonic()
            for started, messages in list(self._calls.values()):
                if redelivery.is_late(started, now, self._timeout) and started not in warned:
                    warned.add(started)
                    self._slow(self._call.name, messages, now - started, False)
                    log.warning("listener %s works on %s for %.0f s: its queue waits",
                                self._call.name, messages[0], now - started)
            warned &= {started for started, _ in self._calls.values()}
