"""
A master dies with messages that nobody else has; its slave is promoted; it comes back.

What was acknowledged with a slave is there in the end, what was not is kept in a side file and
counted, and the two logs are one again.
"""
from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqcore.replication import epochs
from mqcore.replication.epochs import Standing, State, Told
from mqcore.replication.role import Role
from mqcore.store.ownership import StoreLock
from mqcore.store.verify.report import DAMAGE
from mqcore.store.verify.store import verify
from mqcore.wire.records import decode_records
from tests.replication import stores
from tests.replication.pairs import NAME, Pair, addresses, pair, slave_up
from tests.support.command import mqcore
from tests.support.mqcore_process import MqcoreError, MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields
from tests.workers.processes import pid_of

TOPIC = "BenchmarkTest"
SLAVE_AWAY = (11, 12)                    # SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT
SYNC: dict[str, object] = {
    "replication.role": "sync-master", "replication.listen": True,
    "replication.slave_timeout_ms": 300}


def send(address: str, *bodies: bytes) -> list[int]:
    with Peer(address) as peer:
        return [peer.ask(310, send_fields(TOPIC), body).code for body in bodies]


def has_acknowledged(address: str, body: bytes) -> bool:
    """Send while its broker may begin anew: an end of the connection is no acknowledgement."""
    try:
        return send(address, body) == [0]
    except (Closed, ConnectionError):
        return False


def bodies(address: str) -> list[bytes]:
    """All messages of queue 0 that whoever answers has."""
    found: list[bytes] = []
    with Peer(address) as peer:
        while True:
            answer = peer.ask(11, pull_fields(TOPIC, offset=len(found)))
            if answer.code != 0:
                return found
            found += [record.body for record in decode_records(answer.body)]


def log_of(broker: MqcoreProcess) -> bytes:
    return stores.log_of(broker.store)


def same_log(one: MqcoreProcess, other: MqcoreProcess) -> bool:
    return log_of(one) == log_of(other)


def ha_port(broker: MqcoreProcess) -> str:
    host, _, port = broker.broker_addr.rpartition(":")
    return f"{host}:{int(port) + 1}"


def is_slave_of(names: MqcoreProcess, master: MqcoreProcess) -> bool:
    return addresses(names).get("0") == master.broker_addr


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, SYNC, {"replication.slave_timeout_ms": 300}) as running:
        wait_until(lambda: send(running.master.broker_addr, b"first") == [0], "a slave that has it")
        yield running


@pytest.mark.slow
def test_a_master_that_was_overtaken_comes_back_as_a_slave(both: Pair) -> None:
    old, new = both.master, both.slave
    assert send(old.broker_addr, *(b"both %d" % number for number in range(20))) == [0] * 20
    wait_until(lambda: b"both 19" in bodies(old.broker_addr), "all in the queue")
    start = bodies(old.broker_addr).index(b"both 0")
    os.kill(pid_of(new, "ha-slave"), signal.SIGSTOP)
    alone = send(old.broker_addr, *(b"alone %d" % number for number in range(7)))
    assert set(alone) <= set(SLAVE_AWAY)
    port = old.broker_addr.rpartition(":")[2]
    old.kill()
    os.kill(pid_of(new, "ha-slave"), signal.SIGKILL)      # what its socket has is gone with it

    done = mqcore("replication", "promote", new.store, "--sync", "--dry-run")
    assert (done.returncode, f"make a master of {new.store} (process" in done.stdout) == (0, True)
    assert mqcore("replication", "promote", new.store).returncode == 2
    standing = epochs.read(new.store)
    assert standing is not None
    assert standing.state is State.FOLLOWS
    done = mqcore("replication", "promote", "--yes", new.store, "--sync")
    assert (done.returncode, "begins anew as a master" in done.stdout) == (0, True), done
    wait_until(lambda: is_slave_of(both.names, new), "the name server knows the new master")
    wait_until(lambda: set(send(new.broker_addr, b"new")) <= {0, *SLAVE_AWAY}, "it takes messages")

    settings = {**SYNC, "broker.name": NAME, "broker.listen_port": int(port)}
    with mqcore_up(old.folder, settings, namesrv_addr=both.names.namesrv_addr) as refused:
        assert "it is no master any more" in refused.tail()
        assert send(refused.broker_addr, b"refused") == [14]

    words = ("replication", "rejoin", old.store, "--master", ha_port(new), "--json")
    before = log_of(old)
    done = mqcore(*words, "--dry-run")
    tried = json.loads(done.stdout)
    assert (tried["messages"], tried["topics"], tried["sideFile"]) == (7, {TOPIC: 7}, None)
    assert mqcore(*words).returncode == 2                    # no terminal to ask
    assert log_of(old) == before
    assert not (old.store / "overtaken").exists()
    done = mqcore(*words, "--yes")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert (told["messages"], told["topics"]) == (7, {TOPIC: 7})
    kept = Path(told["sideFile"]).read_bytes()
    assert all(b"alone %d" % number in kept for number in range(7))
    assert len(kept) == told["end"] - told["position"]

    with mqcore_up(old.folder, settings, namesrv_addr=both.names.namesrv_addr) as again:
        wait_until(lambda: same_log(again, new), "the same log")
        assert send(again.broker_addr, b"to a slave") == [14]
        wait_until(lambda: has_acknowledged(new.broker_addr, b"last"),
                   "the old master's word counts")
        wait_until(lambda: same_log(again, new), "the same log")
        wait_until(lambda: b"last" in bodies(new.broker_addr), "all in the queue")
        found = bodies(new.broker_addr)
        assert found[start:start + 20] == [b"both %d" % number for number in range(20)]
        assert not [body for body in found if body.startswith(b"alone")]
        wait_until(lambda: bodies(again.broker_addr) == found, "the same queue")
        status = mqcore("replication", "status", NAME, "-n", both.names.namesrv_addr)
        assert "epoch 2" in status.stdout, status
        assert status.stdout.count(" 0 bytes behind") == 2
    assert not [one for one in verify(old.store).findings if one.severity == DAMAGE]
    again_standing = epochs.read(old.store)
    assert again_standing is not None
    assert (again_standing.state, again_standing.history.last.number) == (State.FOLLOWS, 2)


@pytest.mark.slow
def test_a_slave_with_more_than_the_master_does_not_follow_and_says_how_much(both: Pair) -> None:
    """
    Demoted without rejoin: nothing is cut silently. That comes first: a master is overtaken with
    its next registration, whenever that is. What the stopped process's socket has, the new master
    must not get: it is killed when nobody starts it again in this run.
    """
    old, new = both.master, both.slave
    wait_until(lambda: same_log(old, new), "the same log")
    follower = pid_of(new, "ha-slave")
    os.kill(follower, signal.SIGSTOP)
    assert set(send(old.broker_addr, b"alone")) <= set(SLAVE_AWAY)
    before = log_of(old)
    done = mqcore("replication", "demote", "--yes", old.store, "--broker-id", "2")
    assert "begins anew as a slave" in done.stdout, done
    assert mqcore("replication", "promote", "--yes", new.store, "--force").returncode == 0
    wait_until(lambda: "to begin anew as the store says" in new.tail(), "the end of its run")
    with contextlib.suppress(ProcessLookupError):             # its supervisor was quicker
        os.kill(follower, signal.SIGKILL)
    wait_until(lambda: "mqcore replication rejoin" in old.tail(), "its word about what it has more")
    assert addresses(both.names)["0"] == new.broker_addr
    assert send(new.broker_addr, b"new") == [0]
    assert log_of(old) == before


@pytest.mark.slow
def test_a_store_that_followed_does_not_lead_by_accident(both: Pair, tmp_path: Path) -> None:
    wait_until(lambda: epochs.read(both.slave.store) is not None, "the table of the master")
    both.slave.stop()
    with (pytest.raises(MqcoreError, match="followed a master, which may have more than it"),
          mqcore_up(both.slave.folder, {"broker.name": NAME},
                    namesrv_addr=both.names.namesrv_addr)):
        raise AssertionError("it started")
    with slave_up(both.slave.folder, both.names.namesrv_addr) as again:
        wait_until(lambda: same_log(again, both.master), "it follows as before")


def test_a_slave_of_another_broker_is_refused_with_a_line(tmp_path: Path) -> None:
    with mqcore_namesrv(tmp_path / "names") as names, mqcore_up(
            tmp_path / "master", {"broker.name": NAME, **SYNC},
            namesrv_addr=names.namesrv_addr) as master, mqcore_up(
            tmp_path / "slave", {
                "replication.role": "slave", "broker.id": 1, "broker.name": "another",
                "replication.master_address": ha_port(master)},
            namesrv_addr=names.namesrv_addr) as slave:
        send(master.broker_addr, b"one")
        reason = f"the master is broker {NAME} of cluster DefaultCluster: expected another of"
        wait_until(lambda: reason in slave.tail(), "its reason")
        assert not list((slave.store / "commitlog").iterdir()) or not log_of(slave)


@pytest.mark.parametrize("command", ["promote", "demote"])
def test_a_store_without_epochs_is_in_no_set(tmp_path: Path, command: str) -> None:
    done = mqcore("replication", command, tmp_path)
    assert done.returncode == 1
    assert "has no epochs" in done.stderr


def test_a_slave_is_demoted_to_another_id_alone(tmp_path: Path) -> None:
    """One that settings say; what is no id of a broker would be one that no master lets in."""
    follows = Standing(epochs.first("a/0", 0, 1), State.FOLLOWS)
    epochs.write(tmp_path, follows)

    done = mqcore("replication", "demote", "--yes", tmp_path)
    assert (done.returncode, "a slave already: --broker-id" in done.stderr) == (1, True), done
    done = mqcore("replication", "demote", "--yes", tmp_path, "--broker-id", str(1 << 31))
    assert (done.returncode, "1<=x<=2147483647" in done.stderr) == (2, True), done
    assert epochs.read(tmp_path) == follows
    done = mqcore("replication", "demote", "--yes", tmp_path, "--broker-id", str((1 << 31) - 1))
    assert done.returncode == 0, done
    assert epochs.read(tmp_path) == replace(follows, told=Told(Role.SLAVE, (1 << 31) - 1))


def test_a_store_that_another_program_uses_is_left_alone(both: Pair, tmp_path: Path) -> None:
    wait_until(lambda: epochs.read(both.slave.store) is not None, "the table of the master")
    both.slave.stop()
    before = epochs.read(both.slave.store)
    lock = StoreLock(both.slave.store, changes=True)
    try:
        done = mqcore("replication", "promote", "--yes", both.slave.store)
    finally:
        lock.release()
    assert (done.returncode, "in use by another program" in done.stderr) == (1, True), done
    assert epochs.read(both.slave.store) == before


@pytest.mark.slow
def test_rejoin_changes_nothing_of_a_store_that_the_master_does_not_know(both: Pair, tmp_path: Path,
                                                                         ) -> None:
    with mqcore_up(tmp_path / "lonely", {**SYNC, "broker.name": "lonely"}) as lonely:
        send(lonely.broker_addr, b"mine")
    before = log_of(lonely)
    done = mqcore("replication", "rejoin", "--yes", lonely.store, "--master", ha_port(both.master))
    assert (done.returncode, "began apart" in done.stderr) == (1, True), done
    assert log_of(lonely) == before
    done = mqcore("replication", "rejoin", "--yes", both.slave.store, "--master",
                  ha_port(both.master))
    assert "a broker runs on this store; stop it first" in done.stderr
