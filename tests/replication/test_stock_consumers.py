"""
Java consumers go on at a slave while its master is away, and come back to it: a stock master with a
slave of ours, the other way round, and ours alone.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.members import Members, queued
from tests.interop.mqadmin import Mqadmin, fields, rows
from tests.interop.toolchain import require_client
from tests.replication.pairs import NAME, addresses, slave_up
from tests.replication.test_stock_metadata import SMALL
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.stock import free_broker_port, require_stock, start_broker
from tests.support.waiting import wait_until
from tests.wire_live.state import State

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
QUEUES = 4
HALF = 8
STOCK, OURS = "stock", "ours"
SETTINGS: dict[str, object] = {"store.segment_size_bytes": SMALL["mappedFileSizeCommitLog"]}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    require_client("java")
    with mqcore_namesrv(tmp_path_factory.mktemp("names")) as running:
        yield running


@pytest.fixture(scope="module")
def members(names: MqcoreProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    made = Members("java", tmp_path_factory.mktemp("members") / "java", names.namesrv_addr)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def admin(names: MqcoreProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mqadmin]:
    made = Mqadmin(tmp_path_factory.mktemp("admin"), names.namesrv_addr)
    yield made
    made.stop()


def ends(address: str, topic: str) -> list[int]:
    with State(address) as peer:
        return [peer.queue_end(topic, queue_id) for queue_id in range(QUEUES)]


def committed(address: str, group: str, topic: str) -> int:
    """How many messages of a topic a group has behind it, as this broker knows."""
    with State(address) as peer:
        return sum(peer.committed(group, topic, queue_id) or 0 for queue_id in range(QUEUES))


@contextlib.contextmanager
def stock(folder: Path, names: str, changes: dict[str, object], port: int) -> Iterator[str]:
    broker = start_broker(folder, names, {**SMALL, **changes}, port)
    try:
        yield broker.addr
    finally:
        broker.stop()


@contextlib.contextmanager
def master_up(kind: str, folder: Path, names: str, port: int) -> Iterator[str]:
    """Its address; the port is the same in each of its lives."""
    if kind == STOCK:
        with stock(folder, names, {}, port) as address:
            yield address
        return
    with mqcore_up(folder, {**SETTINGS, "broker.name": NAME, "broker.listen_port": port,
                            "replication.listen": True}, namesrv_addr=names) as running:
        yield running.broker_addr


@contextlib.contextmanager
def follower_up(kind: str, folder: Path, names: str) -> Iterator[str]:
    if kind == STOCK:
        with stock(folder, names, {"brokerRole": "SLAVE", "brokerId": 1},
                   free_broker_port()) as address:
            yield address
        return
    with slave_up(folder, names, SETTINGS) as running:
        yield running.broker_addr


def said(admin: Mqadmin, *words: str) -> str:
    """What a command says; again when a request of it found nobody in time, on a busy machine."""
    found: list[str] = []

    def is_there() -> bool:
        found.append(admin.run(*words))
        return "TimeoutException" not in found[-1]

    wait_until(is_there, f"an answer to {words}")
    return found[-1]


def assert_mqadmin_shows(admin: Mqadmin, brokers: dict[str, str], kinds: dict[str, str]) -> None:
    """brokers, kinds: by their ids. `clusterList` has all of them, `brokerStatus` one log's end."""
    found = {words[2]: words[3] for words in rows(said(admin, "clusterList"), "#Cluster Name")
             if words[1] == NAME}
    assert found == brokers
    status = {number: fields(said(admin, "brokerStatus", "-b", address))
              for number, address in brokers.items()}
    assert len({one["commitLogMaxOffset"] for one in status.values()}) == 1, status
    for number, kind in kinds.items():
        role = {"0": "master", "1": "slave"}[number] if kind == OURS else None
        assert status[number].get("replicationRole") == role
    if kinds["0"] == OURS:
        assert status["0"]["replicationSlaves"] == "1"
    if kinds["1"] == OURS:
        assert status["1"]["replicationMasterLink"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize(("leads", "follows"), [(STOCK, OURS), (OURS, STOCK), (OURS, OURS)],
                         ids=lambda kind: kind)
def test_consumers_go_on_at_the_slave_and_come_back(
    names: MqcoreProcess, members: Members, admin: Mqadmin, tmp_path: Path, leads: str,
    follows: str,
) -> None:
    if STOCK in (leads, follows):
        require_stock()
    topic, stays, comes = (f"{word}-{leads}-{follows}" for word in ("Moving", "stays", "comes"))
    first, second, third = ([f"{part}-{number}" for number in range(HALF)] for part in "abc")
    port, at = free_broker_port(), names.namesrv_addr
    with contextlib.ExitStack() as life:
        master_life = life.enter_context(contextlib.ExitStack())
        master = master_life.enter_context(master_up(leads, tmp_path / "master", at, port))
        slave = life.enter_context(follower_up(follows, tmp_path / "slave", at))
        wait_until(lambda: list(addresses(names)) == ["0", "1"], "both are known")
        members.create(topic, QUEUES)
        members.push(stays, topic, stays, routes=300, heartbeats=1_000)
        life.callback(members.ask, "stop", stays)
        members.send(topic, queued(first))
        members.wait_for(topic, first, stays)
        members.send(topic, queued(second))
        members.wait_for(topic, second, stays)
        wait_until(lambda: ends(slave, topic) == ends(master, topic),
                   "the slave has the queues")
        assert_mqadmin_shows(admin, {"0": master, "1": slave}, {"0": leads, "1": follows})
        master_life.close()
        wait_until(lambda: list(addresses(names)) == ["1"], "the slave is alone")

        members.push(comes, topic, comes, routes=300, heartbeats=1_000)
        life.callback(members.ask, "stop", comes)
        members.wait_for(topic, [*first, *second], comes)                # from the slave
        wait_until(lambda: committed(slave, comes, topic) == 2 * HALF,
                   "offsets are committed to the slave")
        master_life.enter_context(master_up(leads, tmp_path / "master", at, port))
        wait_until(lambda: committed(master, comes, topic) == 2 * HALF,
                   "the master knows what was read meanwhile")
        members.send(topic, queued(third))
        for member in (stays, comes):
            members.wait_for(topic, third, member)
        seen = [line["keys"] for line in members.deliveries(topic, comes)]
        assert sorted(seen) == sorted([*first, *second, *third])       # nothing twice
