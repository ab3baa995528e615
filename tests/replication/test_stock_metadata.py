"""A stock master with a slave of ours, and the other way round: topics, groups, offsets."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.tables.config_file import load
from mqcore.wire import fastjson
from tests.replication.pairs import addresses, slave_up, table
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.stock import StockProcess, free_broker_port, require_stock, start_broker
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.wire_live.state import State

pytestmark = pytest.mark.interop
NAME = "mqcore-a"
SMALL = {
    "mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 20_000 * 20,
    "maxHashSlotNum": 50_000, "maxIndexNum": 200_000, "brokerName": NAME,
}
TABLES = (21, 201, 43)


@pytest.fixture
def names(tmp_path: Path) -> Iterator[MqcoreProcess]:
    require_stock()
    with mqcore_namesrv(tmp_path / "names") as running:
        yield running


def fill(address: str) -> None:
    """A topic, a group and offsets, and a delayed message that is delivered."""
    with State(address) as peer:
        peer.topic("Shared", 3)
        answer = peer.ask(200, None, fastjson.dumps(
            {"groupName": "SharedGroup", "whichBrokerWhenConsumeSlowly": 2, "retryMaxTimes": 5}))
        assert answer.code == 0, answer.remark
        commit(peer, 0, 41)
        commit(peer, 2, 7)


def commit(peer: Peer, queue_id: int, offset: int) -> None:
    answer = peer.ask(15, {"consumerGroup": "SharedGroup", "topic": "Shared",
                           "queueId": str(queue_id), "commitOffset": str(offset)})
    assert answer.code == 0, answer.remark


def offsets(address: str) -> Any:
    return table(address, 43)["offsetTable"].get("Shared@SharedGroup")


@pytest.mark.slow
def test_our_slave_has_a_stock_masters_tables_and_brings_offsets_back(
    names: MqcoreProcess, tmp_path: Path,
) -> None:
    stock = start_broker(tmp_path / "stock", names.namesrv_addr, SMALL)
    try:
        with slave_up(tmp_path / "slave", names.namesrv_addr) as slave:
            assert addresses(names) == {"0": stock.addr, "1": slave.broker_addr}
            fill(stock.addr)
            for code in TABLES:
                wait_until(lambda code=code: table(slave.broker_addr, code)
                           == table(stock.addr, code), f"equal answers to {code}")
            assert offsets(slave.broker_addr) == {0: 41, 2: 7}
            with State(stock.addr) as peer:
                peer.message("Shared", properties={"DELAY": "1"})
                wait_until(lambda: peer.queue_end("Shared", 0) == 1, "the delayed one is delivered")
            kept = slave.store / "config" / "delayOffset.json"
            wait_until(lambda: (load(kept) or {}).get("offsetTable") == {1: 1},
                       "which is known here, where the log is")
            assert (load(kept) or {})["logPosition"] > 0
            stock.stop()
            wait_until(lambda: list(addresses(names)) == ["1"], "the slave is alone")
            with Peer(slave.broker_addr) as peer:
                commit(peer, 0, 50)
                commit(peer, 2, 3)
            stock = start_broker(tmp_path / "stock", names.namesrv_addr, SMALL,
                                 port=int(stock.addr.rpartition(":")[2]))
            wait_until(lambda: offsets(stock.addr) == {0: 50, 2: 7}, "what it had missed")
            wait_until(lambda: offsets(slave.broker_addr) == {0: 50, 2: 7}, "the same here")
    finally:
        stock.stop()


def stock_slave(folder: Path, names: MqcoreProcess, port: int) -> StockProcess:
    return start_broker(folder, names.namesrv_addr, {
        **SMALL, "brokerRole": "SLAVE", "brokerId": 1}, port=port)


@pytest.mark.slow
def test_a_stock_slave_has_our_masters_tables(names: MqcoreProcess, tmp_path: Path) -> None:
    with mqcore_up(tmp_path / "master", {"broker.message_delay_levels": "1s 2s"},
                   namesrv_addr=names.namesrv_addr) as master:
        fill(master.broker_addr)
        with State(master.broker_addr) as peer:
            peer.message("Shared", properties={"DELAY": "1"})
            wait_until(lambda: peer.queue_end("Shared", 0) == 1, "the delayed message is there")
        slave = stock_slave(tmp_path / "slave", names, free_broker_port())
        try:
            wait_until(lambda: addresses(names) == {"0": master.broker_addr, "1": slave.addr},
                       "both are known")
            for code in TABLES:                # its first questions are three seconds late
                wait_until(lambda code=code: table(slave.addr, code)
                           == table(master.broker_addr, code), f"equal answers to {code}")
            delays = tmp_path / "slave" / "store" / "config" / "delayOffset.json"
            wait_until(lambda: delays.exists() and fastjson.loads(delays.read_bytes())
                       == table(master.broker_addr, 45), "the same delay offsets")
        finally:
            slave.stop()
