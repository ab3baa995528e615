"""
Fixtures for tests with members (tests/interop/members.py): processes for the shared broker, and a
second broker with short times.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.members import Members
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import BROKER_JVM, StockError, have_stock, stock_cluster

LOCK_EXPIRY_MS = 6_000              # of an orderly consumer's queue: 60,000 by default

Starter = Callable[..., Members]


@dataclass(frozen=True)
class Short:
    """A broker with locks that expire soon; its messages count as on the disk, not in memory."""

    kind: str
    namesrv_addr: str
    broker_addr: str


@pytest.fixture(scope="package")
def short_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Short]:
    folder = tmp_path_factory.mktemp(f"short-{request.param}")
    if request.param == "mqcore":
        settings = {"broker.queue_lock_expiry_ms": LOCK_EXPIRY_MS, "store.memory_ratio_percent": 0}
        with mqcore_up(folder, settings) as broker:
            yield Short("mqcore", broker.namesrv_addr, broker.broker_addr)
        return
    if not have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    properties = {
        "mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 20_000 * 20,
        "maxHashSlotNum": 50_000, "maxIndexNum": 200_000, "accessMessageInMemoryMaxRatio": 0,
    }
    option = f"-Drocketmq.broker.rebalance.lockMaxLiveTime={LOCK_EXPIRY_MS}"
    try:
        with stock_cluster(
                folder, properties, jvm_options=(*BROKER_JVM, option), is_kept=False) as stock:
            yield Short("stock", stock.namesrv_addr, stock.broker_addr)
    except StockError as error:
        unavailable(str(error))


@pytest.fixture(scope="package")
def members_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    """`members_of(client, namesrv_addr)`: the process for it, started by the first who asks."""
    running: dict[tuple[str, str], Members] = {}
    with ExitStack() as stack:
        def process(client: str, namesrv_addr: str) -> Members:
            key = (client, namesrv_addr)
            if key not in running:
                folder = tmp_path_factory.mktemp(f"members-{client}") / "members"
                running[key] = Members(client, folder, namesrv_addr)
                stack.callback(running[key].stop)
            return running[key]

        yield process


@pytest.fixture
def start_members(tmp_path: Path) -> Iterator[Starter]:
    """`start_members(client, namesrv_addr, jvm_options)`: a process of the test's own."""
    with ExitStack() as stack:
        started: list[Members] = []

        def start(client: str, namesrv_addr: str, jvm_options: tuple[str, ...] = ()) -> Members:
            folder = tmp_path / f"members-{len(started)}"
            started.append(Members(client, folder, namesrv_addr, jvm_options))
            stack.callback(started[-1].stop)
            return started[-1]

        yield start
