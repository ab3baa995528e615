"""The future of a send: a concurrent.futures.Future that costs little until it is waited for.

A standard one makes a lock, a condition and their methods, about ten objects that the collector of
garbage visits again and again while thousands of sends are on their way: half of what a send costs.
This one makes them when it is first waited for, or given a callback.
"""
from __future__ import annotations

import concurrent.futures
import threading
from concurrent.futures import InvalidStateError
from typing import Any

from mqcore.client.message import SendResult


class WaitedSend:
    """The outcome of a send for the one thread that waits for it: a lock, and no more."""

    __slots__ = ("_error", "_pending", "_result")

    def __init__(self) -> None:
        self._pending = threading.Lock()
        self._pending.acquire()
        self._result: SendResult | None = None
        self._error: BaseException | None = None

    def set_result(self, result: SendResult, /) -> None:
        """Called by the client, once."""
        self._result = result
        self._pending.release()

    def set_exception(self, error: BaseException, /) -> None:
        """Called by the client, once."""
        self._error = error
        self._pending.release()

    def wait(self, seconds: float) -> bool:
        """Whether the outcome is there, within this time."""
        return self._pending.acquire(timeout=seconds)

    def result(self) -> SendResult:
        """The result, after `wait`; raises the send's error."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result


PENDING, FINISHED = "PENDING", "FINISHED"      # as concurrent.futures has them

_making = threading.Lock()          # makes conditions, and settles futures that have none


class SendFuture(concurrent.futures.Future[SendResult]):
    """The result of one send, for any thread."""

    def __init__(self) -> None:
        self._state = PENDING
        self._result: SendResult | None = None
        self._exception: BaseException | None = None
        self._is_bare = True            # no waiter, and no lock to wait with

    def __getattr__(self, name: str) -> Any:
        """The standard class's lock and lists are made when they are first asked for."""
        if name not in ("_condition", "_waiters", "_done_callbacks"):
            raise AttributeError(name)
        with _making:
            if self._is_bare:
                self._is_bare = False
                self._waiters: list[Any] = []
                self._done_callbacks: list[Any] = []
                self._condition = threading.Condition()
        return self.__dict__[name]

    def done(self) -> bool:
        """Whether the outcome is known, or the future was cancelled."""
        return self._state == FINISHED or super().done()

    def result(self, timeout: float | None = None) -> SendResult:
        """The result; raises the send's error, TimeoutError after `timeout` seconds."""
        if self._state == FINISHED and self._exception is None:
            assert self._result is not None
            return self._result
        return super().result(timeout)

    def set_result(self, result: SendResult) -> None:
        """Called by the client; raises InvalidStateError when it was cancelled."""
        with _making:
            if self._is_bare:
                self._settle(result, None)
                return
        super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        """Called by the client; raises InvalidStateError when it was cancelled."""
        with _making:
            if self._is_bare:
                self._settle(None, exception)
                return
        super().set_exception(exception)

    def _settle(self, result: SendResult | None, error: BaseException | None) -> None:
        """Without a waiter there is none to tell."""
        if self._state != PENDING:
            raise InvalidStateError(self._state)
        self._result, self._exception = result, error
        self._state = FINISHED
