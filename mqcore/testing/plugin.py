"""
The pytest plug-in: a fixture for a broker, one for more of them.

Loaded with every pytest run of an environment that has mqcore: it imports nothing until a test asks
for a broker.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, cast

import pytest

if TYPE_CHECKING:
    from mqcore.testing import Broker, MemoryBroker

    BrokerFactory = Callable[[Mapping[str, object] | None], Broker]

SCOPE = "mqcore_broker_scope"
SCOPES = ("session", "package", "module", "class", "function")
Scope = Literal["session", "package", "module", "class", "function"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini option of the fixtures' scope."""
    parser.addini(SCOPE, f"how long mqcore_broker lives: {', '.join(SCOPES)}", default="session")


def scope(fixture_name: str, config: pytest.Config) -> Scope:
    """The scope that the ini option names. Raises UsageError for another word."""
    wanted = str(config.getini(SCOPE))
    if wanted not in SCOPES:
        raise pytest.UsageError(f"{SCOPE} = {wanted!r}: expected one of {', '.join(SCOPES)}")
    return cast("Scope", wanted)


@pytest.fixture(scope=scope)
def mqcore_broker() -> Iterator[Broker]:
    """A running broker: `namesrv`, `broker` (addresses), `store` (folder), `pid`."""
    from mqcore.testing import broker

    with broker() as running:
        yield running


@pytest.fixture(scope=scope)
def mqcore_broker_factory() -> Iterator[BrokerFactory]:
    """`mqcore_broker_factory(settings=None)` starts one more broker; all end with the fixture."""
    from mqcore.testing import broker

    with ExitStack() as running:
        def start(settings: Mapping[str, object] | None = None) -> Broker:
            return running.enter_context(broker(settings))

        yield start


@pytest.fixture(scope=scope)
def mqcore_memory_broker() -> Iterator[MemoryBroker]:
    """A broker in the test's own process: starts in milliseconds, stores nothing."""
    from mqcore.testing import MemoryBroker

    with MemoryBroker() as running:
        yield running
