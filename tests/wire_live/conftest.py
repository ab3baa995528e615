"""One mqcore broker, with the names of the recorded one, for all tests of this folder."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.wire_live.state import State


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """A running broker `broker-a` of DefaultCluster, with its embedded name server."""
    settings: dict[str, object] = {
        "broker.name": "broker-a", "broker.trace_topic_enable": True,
        "broker.property_filter_enable": True,
    }
    with mqcore_up(tmp_path_factory.mktemp("wire_live"), settings) as running:
        yield running


@pytest.fixture
def state(live: MqcoreProcess) -> Iterator[State]:
    """A connection of its own to prepare what a recorded request needs."""
    with State(live.broker_addr) as made:
        yield made
