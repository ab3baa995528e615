"""The blocking face of the client: one event loop in a daemon thread serves all blocking roles.

The thread is started by the first role of a process. A fork has none of its parent's threads, so a
child starts its own; a role that the parent started is refused there (`Life.check`).
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, ParamSpec, Self, TypeVar

from mqcore.client.errors import ClientError
from mqcore.client.message import SendResult
from mqcore.client.roles.future import WaitedSend
from mqcore.client.roles.role import CLOSE_TIMEOUT_S, Role

BLOCKED_S = 1.0             # a loop that does not turn for so long is warned of
_BEAT_S = 0.25

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R", bound=Role)

log: Final = logging.getLogger("mqcore.client")


class LoopThread:
    """An event loop that runs in a thread of its own, for as long as the process lives."""

    _shared: ClassVar[LoopThread | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.pid: int = os.getpid()
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._beaten = time.monotonic()
        self._warned_of = 0.0
        self._thread = threading.Thread(target=self._run, name="mqcore-client", daemon=True)
        self._thread.start()

    @classmethod
    def shared(cls) -> LoopThread:
        """The one of this process; started when it is first asked for."""
        current = cls._shared
        if current is not None and current.pid == os.getpid():
            return current
        with cls._lock:
            current = cls._shared
            if current is None or current.pid != os.getpid():
                current = cls._shared = LoopThread()
            return current

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine in the loop and wait for what it returns or raises.

        timeout   seconds; None: the coroutine has a deadline of its own. Cancelled when over
        Raises TimeoutError then, and ClientError in the loop's own thread: it would wait for
        itself.
        """
        if self.is_here:
            coroutine.close()
            raise ClientError(
                "a blocking call inside a callback of the client would wait for itself: use"
                " send_soon or another thread")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        return self.wait(future, timeout)

    def wait(self, future: concurrent.futures.Future[T], timeout: float | None = None) -> T:
        """The outcome of something that the loop works on; cancels it when the wait ends early."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = BLOCKED_S if deadline is None else min(
                    BLOCKED_S, max(0.0, deadline - time.monotonic()))
                try:
                    return future.result(left)
                except TimeoutError:
                    if future.done():
                        raise               # the outcome itself is a timeout
                    if deadline is not None and time.monotonic() >= deadline:
                        raise
                    self._check_alive()
                    self._warn_when_blocked()
        except BaseException:
            future.cancel()
            raise

    def wait_for(self, outcome: WaitedSend) -> SendResult:
        """The result of a send, which has a deadline of its own; raises its error."""
        while not outcome.wait(BLOCKED_S):
            self._check_alive()
            self._warn_when_blocked()
        return outcome.result()

    def _check_alive(self) -> None:
        if not self._thread.is_alive():
            raise ClientError("the client's thread has ended, and the process with it")

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Call `function` in the loop's thread, soon; does not wait."""
        self.loop.call_soon_threadsafe(function, *args)

    # -- inside -----------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._beat)
        while True:
            try:
                self.loop.run_forever()
            except BaseException:       # an exit that a callback asked for: it is not this thread's
                log.exception("a callback asked for the end of the client's thread: it continues")
            else:
                return

    def _beat(self) -> None:
        now = time.monotonic()
        late = now - self._beaten - _BEAT_S
        if late > BLOCKED_S and self._warned_of != self._beaten:
            log.warning("something blocked the client's thread for %.1f s: heartbeats and answers"
                        " waited", late)
        self._beaten = now
        self.loop.call_later(_BEAT_S, self._beat)

    def _warn_when_blocked(self) -> None:
        """Names what the loop's thread is busy with, once each time."""
        beaten = self._beaten
        if time.monotonic() - beaten < BLOCKED_S + _BEAT_S or self._warned_of == beaten:
            return
        self._warned_of = beaten
        frame = sys._current_frames().get(self._thread.ident or 0)
        where = "".join(traceback.format_stack(frame, limit=8)) if frame is not None else "?"
        log.warning("the client's thread is blocked since %.1f s, by:\n%s",
                    time.monotonic() - beaten, where)


def _after_fork() -> None:
    """A lock that another thread held at the fork is never released in the child."""
    LoopThread._shared = None
    LoopThread._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class BlockingRole(Generic[R]):
    """The blocking face of an asyncio role: the same methods, which wait for the outcome."""

    def __init__(self, role: R) -> None:
        self._role = role

    @property
    def client_id(self) -> str:
        """`address@instance` of this client, "" before the start (client.md 1.2)."""
        return self._role.client_id

    @property
    def is_running(self) -> bool:
        """Whether it was started in this process and not closed."""
        return self._role.is_running

    def start(self) -> None:
        """Begin to work; raises ClosedError when started or closed before, else ClientError."""
        LoopThread.shared().call(self._role.start())

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Finish what is under way, tell the brokers and close; again and again without harm.

        timeout   seconds for what is under way; then it is given up, with a warning
        Raises nothing for brokers that do not answer.
        """
        LoopThread.shared().call(self._role.close(timeout))

    def shutdown(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Java's name of `close`."""
        self.close(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(
        self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a method of the asyncio role and wait; raises ClosedError unless it runs here."""
        self._role._life.check()
        return LoopThread.shared().call(method(*args, **kwargs))
