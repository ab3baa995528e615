"""
Brokers for the tests of applications: a real one in processes of its own (`broker`), or one in the
test's own process (`MemoryBroker`). docs/testing.md shows both, and the pytest plug-in.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqcore.testing.running import Broker, TestingError, broker

if TYPE_CHECKING:
    from mqcore.testing.memory import MemoryBroker
else:                                   # these take a misspelled name for one of them

    def __getattr__(name: str) -> Any:
        """`MemoryBroker` brings a broker's rules along: they are loaded when it is asked for."""
        if name == "MemoryBroker":
            from mqcore.testing.memory import MemoryBroker

            return MemoryBroker
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Broker", "MemoryBroker", "TestingError", "broker"]
