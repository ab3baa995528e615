"""Threads for listeners that block: daemons, so that one that hangs keeps no process alive."""
from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

log: Final = logging.getLogger("mqcore.client")

_numbers = itertools.count(1)


class ListenerThreads:
    """Runs functions in threads of its own, one more when all are busy, up to a number."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = 0
        self._busy = 0                  # calls that have not ended; of the loop's thread only
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = (
            queue.SimpleQueue())

    def allow_more(self) -> None:
        """One more thread: another one hangs."""
        self._count_max += 1

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result or exception; waits for a free thread at the limit."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._busy += 1
        if self._busy > self._count and self._count < self._count_max:
            self._count += 1
            threading.Thread(target=self._serve, args=(loop,), daemon=True,
                             name=f"mqcore-listener-{next(_numbers)}").start()
        self._work.put((function, future))
        return await future

    def close(self) -> None:
        """Let the threads end when they are done."""
        for _ in range(self._count):
            self._work.put(None)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            item = self._work.get()
            if item is None:
                return
            function, future = item
            result: object = None
            failure: BaseException | None = None
            try:
                result = function()
            except BaseException as error:  # carried to the caller: no one else would see it
                failure = error
            try:
                loop.call_soon_threadsafe(self._settle, future, result, failure)
            except RuntimeError:
                log.debug("a listener ended after its loop was closed")
                return

    def _settle(self, future: asyncio.Future[Any], result: object,
                failure: BaseException | None) -> None:
        self._busy -= 1
        if future.done():
            return                      # who waited has gone
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
