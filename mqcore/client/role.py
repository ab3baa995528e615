"""What producers and consumers are to an application: started and shut down, or `async with`."""
from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from mqcore.client.instance import ClientInstance


class Role(ABC):
    """One producer or consumer, with a client instance of its own."""

    _instance: ClientInstance

    @property
    def client_id(self) -> str:
        return self._instance.client_id

    @abstractmethod
    async def start(self) -> None:
        """Begin to work. Raises ClientError."""

    @abstractmethod
    async def shutdown(self) -> None:
        """Finish what is under way, tell the brokers and close."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()
