"""
What a process keeps open between two tasks: taken by one user at a time, closed when it lies idle.

Spark's Python workers are forked and used again, and no source is told of its end.
"""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

IDLE_S = 30.0
LOOK_S = 5.0

T = TypeVar("T")


class Idle(Generic[T]):
    """Open things by key."""

    def __init__(self, close: Callable[[T], None], *, idle_s: float = IDLE_S) -> None:
        """`close` ends one of them; it does not raise."""
        self._close = close
        self._idle_s = idle_s
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._kept: list[tuple[Hashable, float, T]] = []
        self._timer: threading.Timer | None = None

    def take(self, key: Hashable) -> T | None:
        """One of this key, which is the caller's until it gives it back."""
        self._check()
        with self._lock:
            for index in range(len(self._kept) - 1, -1, -1):
                if self._kept[index][0] == key:
                    return self._kept.pop(index)[2]
        return None

    def give(self, key: Hashable, one: T) -> None:
        """Keep it for the next user."""
        self._check()
        with self._lock:
            self._kept.append((key, time.monotonic(), one))
            self._plan()

    def _check(self) -> None:
        if self._pid != os.getpid():
            self._begin()               # a fork: what was open is the parent's

    def _plan(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(LOOK_S, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        limit = time.monotonic() - self._idle_s
        with self._lock:
            self._timer = None
            old = [one for _, since, one in self._kept if since < limit]
            self._kept = [kept for kept in self._kept if kept[1] >= limit]
            if self._kept:
                self._plan()
        for one in old:
            self._close(one)
