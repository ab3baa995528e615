"""Chains: a slave that hands its log on to a slave of its own, whoever dies or is promoted."""
from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqcore.admin.status import role_of
from mqcore.replication import epochs
from mqcore.store.verify.report import DAMAGE
from mqcore.store.verify.store import verify
from mqcore.workers.coordinator.figures import MASTER_KEYS, SLAVE_KEYS
from tests.replication.pairs import addresses, pair, slave_up
from tests.replication.test_pair import runtime
from tests.replication.test_promotion import (
    SYNC,
    bodies,
    ha_port,
    has_acknowledged,
    same_log,
    send,
)
from tests.support.command import mqcore
from tests.support.mqcore_process import MqcoreProcess
from tests.support.relay import Relay
from tests.support.waiting import wait_until
from tests.workers.processes import by_role, kill
from tests.workers.test_end import segment_of

HANDS_ON: dict[str, object] = {"replication.listen": True, "replication.slave_timeout_ms": 300}


@dataclass
class Chain:
    names: MqcoreProcess
    master: MqcoreProcess
    middle: MqcoreProcess
    last: MqcoreProcess
    way: Relay                       # of the last one to the middle

    def is_even(self) -> bool:
        return same_log(self.master, self.middle) and same_log(self.middle, self.last)


@contextlib.contextmanager
def chain(folder: Path, master: Mapping[str, object]) -> Iterator[Chain]:
    with (
        pair(folder, master, HANDS_ON) as first,
        Relay(ha_port(first.slave)) as way,
        slave_up(folder / "last", first.names.namesrv_addr, {
            "broker.id": 2, "replication.master_address": way.address}) as last,
    ):
        made = Chain(first.names, first.master, first.slave, last, way)
        wait_until(lambda: set(addresses(made.names)) == {"0", "1", "2"}, "all are known")
        yield made


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Chain]:
    with chain(tmp_path, SYNC) as made:
        wait_until(lambda: has_acknowledged(made.master.broker_addr, b"first"), "the middle has it")
        yield made


@pytest.mark.slow
def test_the_last_of_a_chain_has_the_log_and_the_epochs_of_the_first(three: Chain) -> None:
    sent = [b"message %d" % number for number in range(50)]
    assert send(three.master.broker_addr, *sent) == [0] * 50
    wait_until(three.is_even, "one log")
    wait_until(lambda: bodies(three.last.broker_addr)[-50:] == sent, "and its queue")
    tables = [epochs.read(broker.store) for broker in (three.master, three.middle, three.last)]
    assert len({table.history for table in tables if table is not None}) == 1
    assert send(three.last.broker_addr, b"not here") == [14]
    of_master, of_slave = (set(keys) & set(runtime(three.middle.broker_addr))
                           for keys in (MASTER_KEYS, SLAVE_KEYS))
    assert (of_master, of_slave) == (set(MASTER_KEYS), set(SLAVE_KEYS))
    assert not set(SLAVE_KEYS) & set(runtime(three.master.broker_addr))
    roles = [role_of(segment_of(one)) for one in (three.master, three.middle, three.last)]
    assert roles == ["master", "middle", "slave"]


@pytest.mark.slow
def test_the_middle_is_killed_whole_and_in_parts(three: Chain) -> None:
    for role in ("ha-master", "ha-slave", "writer"):
        wait_until(lambda role=role: role in by_role(three.middle), "it is there")
        kill(three.middle, role)
        wait_until(lambda: has_acknowledged(three.master.broker_addr, b"behind it"), "acknowledged")
        wait_until(three.is_even, "one log")
    three.middle.kill()
    assert set(send(three.master.broker_addr, b"alone 1", b"alone 2")) <= {11, 12}
    with slave_up(three.middle.store.parent, three.names.namesrv_addr, HANDS_ON) as three.middle:
        three.way.switch(ha_port(three.middle))
        wait_until(lambda: has_acknowledged(three.master.broker_addr, b"all again"), "acknowledged")
        wait_until(three.is_even, "one log")
    three.last.stop()
    assert not [found for found in verify(three.last.store).findings if found.severity == DAMAGE]


@pytest.mark.slow
def test_the_middle_is_promoted_and_the_last_one_follows_on(three: Chain) -> None:
    wait_until(lambda: has_acknowledged(three.master.broker_addr, b"in epoch 1"), "acknowledged")
    wait_until(three.is_even, "one log")
    three.master.kill()
    assert mqcore("replication", "promote", "--yes", three.middle.store, "--sync").returncode == 0
    wait_until(lambda: addresses(three.names).get("0") == three.middle.broker_addr, "it leads")
    wait_until(lambda: has_acknowledged(three.middle.broker_addr, b"in epoch 2"),
               "the last one has it")
    wait_until(lambda: same_log(three.middle, three.last), "one log")
    table = epochs.read(three.last.store)
    assert table is not None
    assert table.history.last.number == 2
    wait_until(lambda: bodies(three.last.broker_addr)[-1] == b"in epoch 2", "and its queue")


@pytest.mark.slow
def test_a_new_epoch_reaches_the_last_one_before_its_first_byte(three: Chain) -> None:
    wait_until(lambda: has_acknowledged(three.master.broker_addr, b"in epoch 1"), "acknowledged")
    wait_until(three.is_even, "one log")
    for command in ("demote", "promote"):
        words = ("--broker-id", "3") if command == "demote" else ("--sync",)
        done = mqcore("replication", command, three.master.store, *words, "--yes")
        assert done.returncode == 0, done.stderr
    wait_until(lambda: has_acknowledged(three.master.broker_addr, b"in epoch 2"), "acknowledged")
    wait_until(three.is_even, "one log")
    tables = [epochs.read(broker.store) for broker in (three.master, three.middle, three.last)]
    assert {table.history.last.number for table in tables if table is not None} == {2}
    assert "are not in the master's" not in three.last.tail()


@pytest.mark.slow
def test_the_last_of_a_chain_acknowledges_nothing_to_the_first(tmp_path: Path) -> None:
    with chain(tmp_path, {**SYNC, "replication.min_in_sync": 2}) as three:
        assert send(three.master.broker_addr, b"two brokers have it") == [11]
        wait_until(three.is_even, "one log")
        assert send(three.master.broker_addr, b"and this one") == [11]


@pytest.mark.slow
def test_a_middle_that_is_behind_cuts_nothing_of_the_last(three: Chain) -> None:
    """The last one has followed the master meanwhile, and has what that one has acknowledged."""
    wait_until(three.is_even, "one log")
    paused = by_role(three.middle)["ha-slave"]
    os.kill(paused, signal.SIGSTOP)
    try:
        three.way.switch(ha_port(three.master))
        sent = [b"message %d" % number for number in range(60)]
        wait_until(lambda: has_acknowledged(three.master.broker_addr, b"the last one is there"),
                   "acknowledged")
        assert send(three.master.broker_addr, *sent) == [0] * 60
        wait_until(lambda: same_log(three.master, three.last), "the last one has all")
        three.way.switch(ha_port(three.middle))
        wait_until(lambda: "it is followed when it has as much" in three.last.tail(), "a word")
        assert "mqcore replication rejoin" not in three.last.tail()
        three.last.stop()
        done = mqcore("replication", "rejoin", "--yes", three.last.store, "--master",
                      ha_port(three.middle))
        assert (done.returncode, "a slave that is behind" in done.stderr) == (1, True), done
    finally:
        os.kill(paused, signal.SIGCONT)
    with slave_up(three.last.folder, three.names.namesrv_addr, {
            "broker.id": 2, "replication.master_address": three.way.address}) as three.last:
        wait_until(three.is_even, "one log")
        wait_until(lambda: bodies(three.last.broker_addr)[-60:] == sent, "and its queue")
