"""
The brokers under test and the programs that talk to them.

Every test that asks for `cluster` runs against mqcore. MQCORE_TEST_STOCK=1 runs it against the
stock Java broker as well, MQCORE_TEST_STOCK=only against that one alone: it proves the programs
and the expectations themselves.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.desk import Desk
from tests.interop.mqadmin_world import mqadmin_world
from tests.interop.runner import Programs
from tests.interop.worlds import members_of, short_cluster, start_members
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up
from tests.support.stock import StockError, have_stock, stock_cluster

__all__ = ["members_of", "mqadmin_world", "short_cluster", "start_members"]
_CHOICE = os.environ.get("MQCORE_TEST_STOCK", "")
BROKERS = {"": ["mqcore"], "1": ["mqcore", "stock"], "only": ["stock"]}[_CHOICE]

# The same for both, in each one's words.
DELAY_LEVELS = "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s"
CHECK_MAX = 5
MQCORE_SETTINGS: dict[str, object] = {
    "broker.message_delay_levels": DELAY_LEVELS, "broker.property_filter_enable": True,
    "broker.transaction_timeout_ms": 1_000, "broker.transaction_check_interval_ms": 1_000,
    "broker.transaction_check_max": CHECK_MAX,
}
STOCK_PROPERTIES: dict[str, object] = {
    "mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 20_000 * 20,
    "maxHashSlotNum": 50_000, "maxIndexNum": 200_000,
    "enablePropertyFilter": True,                                       # SQL92
    "messageDelayLevel": DELAY_LEVELS,
    "transactionTimeOut": 1_000, "transactionCheckInterval": 1_000,     # milliseconds
    "transactionCheckMax": CHECK_MAX,
}


@dataclass(frozen=True)
class Cluster:
    """A name server with one broker."""

    kind: str                   # "mqcore" or "stock"
    namesrv_addr: str
    broker_addr: str


@pytest.fixture(scope="package", params=BROKERS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
            ) -> Iterator[Cluster]:
    """The broker under test, shared by these tests, which use topics and groups of their own."""
    folder = tmp_path_factory.mktemp(f"{request.param}-cluster")
    if request.param == "mqcore":
        with mqcore_up(folder, MQCORE_SETTINGS) as broker:
            yield Cluster("mqcore", broker.namesrv_addr, broker.broker_addr)
        return
    if not have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    try:
        running = stock_cluster(folder, STOCK_PROPERTIES, is_kept=False)
        with running as stock:
            yield Cluster("stock", stock.namesrv_addr, stock.broker_addr)
    except StockError as error:
        unavailable(str(error))


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    """The address of a name server of ours, where the brokers are what matters."""
    if not have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    with mqcore_namesrv(tmp_path / "name-server") as running:
        yield running.namesrv_addr


@pytest.fixture(scope="package")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The JVM of the Java program's commands."""
    with closing(Desk(tmp_path_factory.mktemp("desk"))) as desk:
        yield desk


@pytest.fixture(scope="package")
def lasting_programs(
    tmp_path_factory: pytest.TempPathFactory, desk: Desk,
) -> Iterator[Programs]:
    """Programs of fixtures that live as long as all tests here."""
    programs = Programs(tmp_path_factory.mktemp("programs"), desk)
    yield programs
    programs.stop()


@pytest.fixture
def programs(tmp_path: Path, desk: Desk) -> Iterator[Programs]:
    """Programs of one test: what still runs at its end is killed."""
    started = Programs(tmp_path, desk)
    yield started
    started.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mqadmin_world" in metafunc.fixturenames:
        metafunc.parametrize("mqadmin_world", BROKERS, indirect=True, scope="package")
    if "short_cluster" in metafunc.fixturenames:
        metafunc.parametrize("short_cluster", BROKERS, indirect=True, scope="package")


def pytest_itemcollected(item: pytest.Item) -> None:        # of those in this folder
    item.add_marker(pytest.mark.interop)
