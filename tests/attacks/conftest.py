"""A broker to be attacked, and the honest client beside the attack."""
from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

from tests.attacks.honest import Honest
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess, mqcore_up


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """A broker with its name server; one for the attacks of a file."""
    with mqcore_up(tmp_path_factory.mktemp("attacked")) as running:
        yield running


@pytest.fixture
def watch(target: MqcoreProcess) -> Iterator[Watch]:
    """What must be as before when a test ends: the same processes, each started once."""
    made = Watch(target)
    yield made
    made.assert_unharmed()


@pytest.fixture
def honest(target: MqcoreProcess, request: pytest.FixtureRequest) -> Iterator[Honest]:
    """The honest client of `target`, with a topic of its own; what it was promised is checked."""
    topic = f"honest-{zlib.crc32(request.node.name.encode())}"
    with Honest(target.broker_addr, topic=topic) as made:
        yield made
        made.caught_up()
    made.check()
