"""Brokers for hostile tests, and what is watched on them."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.watch import watch
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.wire_live.state import State

__all__ = ["watch"]


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """A broker with its name server that nobody is kind to."""
    with mqcore_up(tmp_path_factory.mktemp("hostile"), {"broker.name": "broker-a"}) as running:
        yield running


@pytest.fixture
def honest(target: MqcoreProcess) -> Iterator[State]:
    """A connection of somebody who does nothing wrong."""
    with State(target.broker_addr) as made:
        yield made
