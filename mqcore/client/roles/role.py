"""Producers and consumers as an application uses them: started and closed, or `async with`."""
from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Self

from mqcore.client.core.life import Life
from mqcore.client.roles.instance import ClientInstance

CLOSE_TIMEOUT_S = 10.0

log: Final = logging.getLogger("mqcore.client")


class Role(ABC):
    """One producer or consumer, with a client instance of its own.

    A subclass gives `_start` and `_stop`, and calls `_life.check()` in what an application calls.
    """

    def __init__(self, instance: ClientInstance, name: str) -> None:
        """`name` is what errors call the role: `producer orders`."""
        self._instance = instance
        self._life = Life(name)
        self._closed = asyncio.Event()

    @property
    def client_id(self) -> str:
        """`address@instance` of this client, "" before the start (client.md 1.2)."""
        return self._instance.client_id

    @property
    def is_running(self) -> bool:
        """Whether it was started in this process and not closed."""
        return self._life.is_running

    @abstractmethod
    async def _start(self) -> None:
        """Begin to work. Raises ClientError."""

    @abstractmethod
    async def _stop(self, timeout: float) -> None:
        """Finish what is under way and tell the brokers, within `timeout` seconds."""

    async def start(self) -> None:
        """Begin to work (client.md 1.3).

        Raises ClosedError when it was started or closed before, ClientError when it cannot work;
        it is closed then.
        """
        self._life.start()
        try:
            await self._instance.start()
            await self._start()
            self._life.started()
        except BaseException:
            self._life.close()
            await self._instance.stop()
            self._closed.set()
            raise

    async def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Finish what is under way, tell the brokers and close; again and again without harm.

        timeout   seconds for what is under way; then it is given up, with a warning
        Raises nothing for brokers that do not answer.
        """
        was_running = self._life.is_running
        if not self._life.close():
            if self._instance.running and not self._life.is_foreign:
                await self._closed.wait()       # another task closes it
            return
        try:
            if was_running:
                async with asyncio.timeout(timeout):
                    await self._stop(timeout)
        except TimeoutError:
            log.warning("%s: not everything was finished within %s s", self._life.name, timeout)
        finally:
            await self._instance.stop()
            self._closed.set()

    async def shutdown(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Java's name of `close`."""
        await self.close(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
