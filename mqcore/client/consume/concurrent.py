"""
Messages to a listener in any order, several calls at a time (client.md 4.11).

A worker calls the listener for one chunk after the other; more workers begin while calls of the
others wait for something. Plain functions run in threads, which take chunks for a millisecond
before they report: a quick listener is not paid for with a switch of threads each time.

W1  A call ends once. Its worker and the look for overdue calls both take it with `_Worker.end`,
    under the worker's lock; the one that gets it settles the messages. The result of a call that
    was overdue comes late, and is dropped.
W2  A worker whose call was overdue gets no other one. Another worker takes its place.
"""
from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mqcore.client.consume.assigned import AssignedQueue
from mqcore.client.consume.hooked import HookedCall
from mqcore.client.consume.listener import ALL_DONE, Outcome
from mqcore.client.consume.send_back import SendBack
from mqcore.client.consume.threads import ListenerThreads
from mqcore.client.consume.watch import Slow
from mqcore.client.core import redelivery
from mqcore.client.received import ReceivedMessage

SLICE_S = 0.005                 # a worker continues so long before the loop turns
THREAD_SLICE_S = 0.001
OVERDUE_LOOK_S_MAX = 30.0

log: Final = logging.getLogger("mqcore.client")

Chunk = tuple[AssignedQueue, list[ReceivedMessage]]
Done = tuple[AssignedQueue, list[ReceivedMessage], Outcome, float]
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class _Call:
    """A listener's call; `warned`: that it takes long was said."""

    __slots__ = ("held", "messages", "started", "warned")

    def __init__(
        self, held: AssignedQueue, messages: list[ReceivedMessage], started: float
    ) -> None:
        self.held = held
        self.messages = messages
        self.started = started
        self.warned = False


class _Worker:
    """
    One call at a time.

    call      the one that runs; None: none does, or the last one was overdue
    found     calls of a thread that ended, and are not settled
    given_up  its last call was overdue (W2); of the loop's thread
    """

    __slots__ = ("_lock", "call", "found", "given_up", "task")

    def __init__(self) -> None:
        self.call: _Call | None = None
        self.found: deque[Done] = deque()
        self.given_up = False
        self.task: asyncio.Task[None] | None = None
        self._lock = threading.Lock()

    def begin(self, held: AssignedQueue, messages: list[ReceivedMessage], now: float) -> _Call:
        self.call = call = _Call(held, messages, now)
        return call

    def end(self, call: _Call) -> bool:
        """Take a call that has ended, from any thread; False: it was taken (W1)."""
        with self._lock:
            if self.call is not call:
                return False
            self.call = None
            return True


class ConcurrentService:
    """Calls the listener for messages that its role, the sink of the GroupMember, hands on."""

    def __init__(
        self, call: HookedCall, *, concurrency: int, batch: int, timeout: float,
        send_back: SendBack | None, spawn: Spawn, slow: Slow,
    ) -> None:
        """`send_back` None: broadcasting, failed messages are dropped; `timeout` seconds of a call,
        `slow` is called for slow ones."""
        self._call = call
        self._concurrency = concurrency
        self._batch = batch
        self._timeout = timeout
        self._send_back = send_back
        self._spawn = spawn
        self._slow = slow
        self._backlog: deque[Chunk] = deque()
        self._workers: set[_Worker] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._more_is_due = False
        self._stopped = False
        self._resubmits: set[asyncio.TimerHandle] = set()
        self._threads = None if call.is_async else ListenerThreads(concurrency)
        self.calls: int = 0                  # of coroutine functions, begun

    # -- what the member tells --------------------------------------------------------------------

    def arrived(self, held: AssignedQueue, messages: list[ReceivedMessage]) -> None:
        size = self._batch
        if size == 1:
            self._backlog.extend([(held, [message]) for message in messages])
        else:
            self._backlog.extend((held, messages[at:at + size])
                                 for at in range(0, len(messages), size))
        self._more()

    def is_busy(self, held: AssignedQueue) -> bool:
        return any(call.held is held for call in self._calls())

    def _calls(self) -> list[_Call]:
        return [call for worker in self._workers if (call := worker.call) is not None]

    @property
    def running(self) -> list[str]:
        """The messages that the listener works on, for warnings."""
        return [repr(call.messages[0]) for call in self._calls()]

    def start(self) -> None:
        self._spawn(self._look_for_overdue())

    async def stop(self, timeout: float) -> int:
        """Begin no more calls and wait for those that run; how many still do after `timeout`."""
        self._stopped = True
        self._backlog.clear()
        for handle in self._resubmits:
            handle.cancel()
        deadline = time.monotonic() + timeout
        for future in self._idle:
            if not future.done():
                future.set_result(None)
        tasks = {worker.task for worker in self._workers if worker.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, deadline - time.monotonic()))
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()
        if self._threads is not None:
            self._threads.close()
        return len(late)

    # -- workers ----------------------------------------------------------------------------------

    def _more_soon(self) -> None:
        """Another worker, unless this one is through before the loop turns."""
        if not self._more_is_due:
            self._more_is_due = True
            loop = asyncio.get_running_loop()
            if self._threads is None:
                loop.call_soon(self._more)
            else:
                loop.call_later(THREAD_SLICE_S, self._more)

    def _more(self) -> None:
        self._more_is_due = False
        if not self._backlog or self._stopped:
            return
        while self._idle:
            future = self._idle.pop()
            if not future.done():
                future.set_result(None)
                return
        if len(self._workers) < self._concurrency:
            worker = _Worker()
            self._workers.add(worker)
            worker.task = self._spawn(self._work(worker))
            worker.task.add_done_callback(lambda _: self._ended(worker))

    def _ended(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        if worker.given_up:
            self._more()                # another one takes its place (W2)

    async def _rest(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        await future

    async def _work(self, worker: _Worker) -> None:
        while not self._stopped and not worker.given_up:
            if not self._backlog:
                await self._rest()
            elif self._threads is None:
                await self._work_here(worker)
            else:
                await self._work_in_thread(worker, self._threads)

    async def _work_here(self, worker: _Worker) -> None:
        backlog, call = self._backlog, self._call.call
        clock = time.monotonic
        began = now = clock()
        while backlog and now - began < SLICE_S:
            held, messages = backlog.popleft()
            if held.dropped:
                continue
            if backlog and not self._more_is_due:
                self._more_soon()
            this = worker.begin(held, messages, now)
            self.calls += 1
            outcome = await call(messages, held.shown)
            ended = clock()
            if not worker.end(this):
                return                  # it came late (W1)
            if outcome is ALL_DONE:
                _succeeded(held, messages, ended - now)
            else:
                await self._settle((held, messages, outcome, ended - now))
            now = ended
        await asyncio.sleep(0)

    async def _work_in_thread(self, worker: _Worker, threads: ListenerThreads) -> None:
        if len(self._backlog) > 1:
            self._more_soon()
        await threads.run(lambda: self._drain(worker))
        await self._settle_found(worker)

    async def _settle_found(self, worker: _Worker) -> None:
        while worker.found:
            await self._settle(worker.found.popleft())

    def _drain(self, worker: _Worker) -> None:
        """In a thread: call the listener for chunks until a millisecond is over."""
        backlog, call, clock = self._backlog, self._call.call_here, time.monotonic
        began = now = clock()
        while now - began < THREAD_SLICE_S:
            try:
                held, messages = backlog.popleft()
            except IndexError:
                break                   # another thread was quicker
            if held.dropped:
                continue
            this = worker.begin(held, messages, now)
            outcome = call(messages, held.shown)
            ended = clock()
            if not worker.end(this):
                return                  # it came late (W1)
            worker.found.append((held, messages, outcome, ended - now))
            now = ended

    # -- how a call ended -------------------------------------------------------------------------

    async def _settle(self, done: Done) -> None:
        """The messages of a call that ended are done, or come again, whatever happens."""
        held, messages, _, _ = done
        if held.dropped:
            return
        try:
            await self._finish(done)
        except Exception:
            log.exception("what came of %s is unknown: it comes again", messages[0])
            for message in messages:
                if held.messages.unfinished(message):
                    self._resubmit(held, message)

    async def _finish(self, done: Done) -> None:
        held, messages, outcome, took = done
        if outcome.is_success and outcome.accepted is None:
            _succeeded(held, messages, took)
            return
        counts = held.counts
        counts.calls += 1
        counts.call_s += took
        accepted = 0 if not outcome.is_success else max(
            0, min(outcome.accepted or 0, len(messages)))
        counts.ok += accepted
        counts.failed += len(messages) - accepted
        held.done(messages[:accepted])
        await self._again(held, messages[accepted:], outcome.delay_level)

    async def _again(
        self, held: AssignedQueue, messages: list[ReceivedMessage], delay_level: int
    ) -> None:
        """Send messages back; what no broker takes comes again here (client.md 4.11)."""
        for message in messages:
            if not held.messages.unfinished(message):
                continue
            if self._send_back is None:
                log.warning("broadcast message %s failed and is dropped", message)
            elif not await self._send_back.later(message, delay_level):
                message.reconsume_times += 1
                self._resubmit(held, message)
                continue
            if not held.dropped:
                held.done([message])

    def _resubmit(self, held: AssignedQueue, message: ReceivedMessage) -> None:
        def again() -> None:
            self._resubmits.discard(handle)
            if not self._stopped and not held.dropped:
                self._backlog.append((held, [message]))
                self._more()

        handle = asyncio.get_running_loop().call_later(redelivery.RESUBMIT_S, again)
        self._resubmits.add(handle)

    async def _look_for_overdue(self) -> None:
        while True:
            await asyncio.sleep(min(self._timeout / 10, OVERDUE_LOOK_S_MAX))
            for worker in list(self._workers):
                await self._look_at(worker, time.monotonic())

    async def _look_at(self, worker: _Worker, now: float) -> None:
        call = worker.call
        if call is None or call.held.dropped:
            return
        held, messages, took = call.held, call.messages, now - call.started
        if redelivery.is_overdue(call.started, now, self._timeout):
            if not worker.end(call):
                return                  # its thread was quicker
            log.warning("listener %s works on %s for more than %s s: it comes again later",
                        self._call.name, messages[0], self._timeout)
            self._give_up(worker)
            self._slow(self._call.name, messages, took, True)
            held.counts.failed += len(messages)
            await self._settle_found(worker)
            await self._again(held, messages, redelivery.EXPIRED_DELAY_LEVEL)
        elif redelivery.is_late(call.started, now, self._timeout) and not call.warned:
            call.warned = True
            self._slow(self._call.name, messages, took, False)
            log.warning("listener %s works on %s for %.0f s; after %s s it comes again",
                        self._call.name, messages[0], took, self._timeout)

    def _give_up(self, worker: _Worker) -> None:
        """A coroutine is cancelled; a thread cannot be ended, so there may be one more (W2)."""
        worker.given_up = True
        if self._threads is not None:
            self._threads.allow_more()
        if worker.task is not None:
            worker.task.cancel()


def _succeeded(held: AssignedQueue, messages: list[ReceivedMessage], took: float) -> None:
    counts = held.counts
    counts.calls += 1
    counts.call_s += took
    counts.ok += len(messages)
    if not held.dropped:
        held.done(messages)
