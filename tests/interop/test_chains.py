"""A slave that hands its log on, with stock brokers at every place of the chain."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.client import SendStatus
from mqcore.store.verify.store import verify
from tests.interop.test_replication import (
    OURS,
    SEGMENT_SIZE,
    TOPIC,
    alike,
    sent,
    settled,
    stock_broker,
)
from tests.replication.stores import log_of, queues_of
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.stock import StockProcess, free_broker_port, require_stock
from tests.support.waiting import wait_until
from tests.workers.processes import kill

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
COUNT = 500                      # more than a file of the log


@pytest.fixture
def names(tmp_path: Path) -> Iterator[str]:
    require_stock()
    with mqcore_namesrv(tmp_path / "names") as running:
        yield running.namesrv_addr


def port_of_log(broker: MqcoreProcess) -> str:
    return f"127.0.0.1:{int(broker.broker_addr.rpartition(':')[2]) + 1}"


@contextlib.contextmanager
def our_slave(folder: Path, names: str, number: int, master: str) -> Iterator[MqcoreProcess]:
    """One that hands on what it has."""
    with mqcore_up(folder, {
            **OURS, "broker.id": number, "replication.role": "slave", "replication.listen": True,
            "replication.master_address": master}, namesrv_addr=names) as running:
        yield running


@contextlib.contextmanager
def stock_slave(
    folder: Path, names: str, number: int, master: str, port: int | None = None,
) -> Iterator[StockProcess]:
    with stock_broker(folder, names, {
            "brokerRole": "SLAVE", "brokerId": number, "haMasterAddress": master,
            "haSendHeartbeatInterval": 500}, port, is_kept=False) as running:
        yield running


def begin(names: str, stores: list[Path]) -> None:
    """The first message, before the first file is full: stock hands out its last one only."""
    settled(names, SendStatus.SEND_OK)
    wait_until(lambda: all(log_of(store) for store in stores), "all have begun")


def same_everywhere(stores: list[Path]) -> None:
    first, *others = stores
    assert len(log_of(first)) > SEGMENT_SIZE
    for store in others:
        wait_until(lambda store=store: alike(first, store), f"{store} has the log")
        wait_until(lambda store=store: queues_of(first, TOPIC) == queues_of(store, TOPIC),
                   "and the queues")


@pytest.mark.slow
def test_behind_a_stock_master_ours_hands_on_to_stock_and_to_ours(
    tmp_path: Path, names: str,
) -> None:
    port = free_broker_port()
    with (
        stock_broker(tmp_path / "stock", names, {"brokerRole": "SYNC_MASTER"}, port,
                     is_kept=False) as master,
        our_slave(tmp_path / "middle", names, 1, f"127.0.0.1:{port + 1}") as middle,
        stock_slave(tmp_path / "stock-last", names, 2, port_of_log(middle)) as stock,
        our_slave(tmp_path / "last", names, 3, port_of_log(middle)) as last,
    ):
        stores = [master.home / "store", middle.store, stock.home / "store", last.store]
        begin(names, stores)
        roles = ["ha-master", "ha-slave", "writer"]
        sent(names, COUNT, lambda number: number % 150 == 100 and kill(middle, roles.pop()))
        same_everywhere(stores)
    for store in (middle.store, last.store):
        assert verify(store).status == 0


@pytest.mark.slow
def test_behind_a_master_of_ours_stock_and_ours_hand_on_to_each_other(
    tmp_path: Path, names: str,
) -> None:
    port = free_broker_port()
    with (
        mqcore_up(tmp_path / "master", {
            **OURS, "replication.role": "sync-master", "replication.listen": True},
            namesrv_addr=names) as master,
        stock_slave(tmp_path / "stock", names, 1, port_of_log(master), port) as stock,
        our_slave(tmp_path / "behind-stock", names, 2, f"127.0.0.1:{port + 1}") as behind_stock,
        our_slave(tmp_path / "middle", names, 3, port_of_log(master)) as middle,
        stock_slave(tmp_path / "stock-last", names, 4, port_of_log(middle)) as behind_ours,
    ):
        stores = [master.store, stock.home / "store", behind_stock.store, middle.store,
                  behind_ours.home / "store"]
        begin(names, stores)
        sent(names, COUNT)
        same_everywhere(stores)
    for store in (master.store, behind_stock.store, middle.store):
        assert verify(store).status == 0
