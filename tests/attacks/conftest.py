"""A broker to be attacked, and the honest client beside the attack."""
from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.honest import Honest
from tests.hostile.watch import watch
from tests.support.failing_disk import FailingDisk, build
from tests.support.mqcore_process import MqcoreProcess, mqcore_up, named_memory

__all__ = ["watch"]


@pytest.fixture(scope="package", autouse=True)
def memory() -> Iterator[None]:
    """Named, as others than tests have it: what floods fill grows by pages that are reserved."""
    with named_memory():
        yield


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """A broker with its name server; one for the attacks of a file."""
    with mqcore_up(tmp_path_factory.mktemp("attacked")) as running:
        yield running


@pytest.fixture
def honest(target: MqcoreProcess, request: pytest.FixtureRequest) -> Iterator[Honest]:
    """
    The honest client of `target`, with a topic of its own; what it was promised is checked. REST of
    a file: how long it rests (see Honest).
    """
    topic = f"honest-{zlib.crc32(request.node.name.encode())}"
    rest = getattr(request.module, "REST", 1.0)
    with Honest(target.broker_addr, topic=topic, rest=rest) as made:
        yield made
        made.caught_up()
    made.check()


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FailingDisk]:
    """The library and its plan: one of each, so that all its brokers have one environment."""
    folder = tmp_path_factory.mktemp("failing")
    return build(folder), FailingDisk.create(folder / "plan", folder)


@pytest.fixture
def disk(
    failing: tuple[Path, FailingDisk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> FailingDisk:
    """
    The disk of a broker in tmp_path/broker, as far as its commit log is concerned: tables that are
    slow to save would give the writer time.
    """
    library, made = failing
    made.turn_to(tmp_path / "broker" / "store" / "commitlog")
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("FAILING_DISK", str(made.path))
    return made
