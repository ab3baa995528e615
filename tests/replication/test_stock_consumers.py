"""Java consumers go on at a slave of ours when a stock master is away, and come back to it."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.members import Members, queued
from tests.interop.mqadmin import Mqadmin
from tests.interop.toolchain import require_client
from tests.replication.pairs import addresses, slave_up
from tests.replication.test_stock_metadata import SMALL
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv
from tests.support.stock import require_stock, start_broker
from tests.support.waiting import wait_until
from tests.wire_live.state import State

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
QUEUES = 4
HALF = 8


@pytest.fixture
def names(tmp_path: Path) -> Iterator[MqcoreProcess]:
    require_stock()
    require_client("java")
    with mqcore_namesrv(tmp_path / "names") as running:
        yield running


def ends(address: str, topic: str) -> list[int]:
    with State(address) as peer:
        return [peer.queue_end(topic, queue_id) for queue_id in range(QUEUES)]


def committed(address: str, group: str, topic: str) -> int:
    """How many messages of a topic a group has behind it, as this broker knows."""
    with State(address) as peer:
        return sum(peer.committed(group, topic, queue_id) or 0 for queue_id in range(QUEUES))


def test_consumers_of_a_stock_master_go_on_at_our_slave_and_back(
    names: MqcoreProcess, tmp_path: Path,
) -> None:
    first, second, third = ([f"{part}-{number}" for number in range(HALF)] for part in "abc")
    stock = start_broker(tmp_path / "stock", names.namesrv_addr, SMALL)
    members = Members("java", tmp_path / "members", names.namesrv_addr)
    admin = Mqadmin(tmp_path / "admin", names.namesrv_addr)
    try:
        with slave_up(tmp_path / "slave", names.namesrv_addr) as slave:
            wait_until(lambda: list(addresses(names)) == ["0", "1"], "both are known")
            clusters = admin.run("clusterList")
            assert [line.split()[2:4] for line in clusters.splitlines() if "mqcore-a" in line] == [
                ["0", stock.addr], ["1", slave.broker_addr]]
            members.create("Moving", QUEUES)
            members.push("stays", "Moving", "staying", routes=300, heartbeats=1_000)
            members.send("Moving", queued(first))
            members.wait_for("Moving", first, "stays")
            members.send("Moving", queued(second))
            members.wait_for("Moving", second, "stays")
            wait_until(lambda: ends(slave.broker_addr, "Moving") == ends(stock.addr, "Moving"),
                       "the slave has the queues")
            assert "replicationMasterLink" in admin.run("brokerStatus", "-b", slave.broker_addr)
            stock.stop()
            wait_until(lambda: list(addresses(names)) == ["1"], "the slave is alone")

            members.push("comes", "Moving", "coming", routes=300, heartbeats=1_000)
            members.wait_for("Moving", [*first, *second], "comes")         # from the slave
            wait_until(lambda: committed(slave.broker_addr, "coming", "Moving") == 2 * HALF,
                       "offsets are committed to the slave")
            stock = start_broker(tmp_path / "stock", names.namesrv_addr, SMALL,
                                 port=int(stock.addr.rpartition(":")[2]))
            wait_until(lambda: committed(stock.addr, "coming", "Moving") == 2 * HALF,
                       "the master knows what was read meanwhile")
            members.send("Moving", queued(third))
            for member in ("stays", "comes"):
                members.wait_for("Moving", third, member)
            seen = [line["keys"] for line in members.deliveries("Moving", "comes")]
            assert sorted(seen) == sorted([*first, *second, *third])       # nothing twice
    finally:
        members.stop()
        admin.stop()
        stock.stop()
