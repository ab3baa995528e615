"""One broker with SQL92 filters for all tests of this folder."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pull.puller import Puller
from tests.support.mqcore_process import MqcoreProcess, mqcore_up


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    settings: dict[str, object] = {
        "broker.property_filter_enable": True, "broker.filter_retry_enable": True,
        "processes.serving_count": 1,
    }
    with mqcore_up(tmp_path_factory.mktemp("pull"), settings) as running:
        yield running


@pytest.fixture
def puller(live: MqcoreProcess) -> Iterator[Puller]:
    with Puller(live.broker_addr) as made:
        yield made


@pytest.fixture
def topic(puller: Puller, request: pytest.FixtureRequest) -> str:
    """A topic of one queue for this test alone."""
    name = f"T-{abs(hash(request.node.nodeid)) % 10**12}"
    puller.topic(name, 1)
    return name
