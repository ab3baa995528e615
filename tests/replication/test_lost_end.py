"""
A sync-master loses its host's power, and with it the end of its log, which its slave has.

What was acknowledged is there in the end, or in a side file: nobody leads on unseen.
"""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqcore.replication import epochs
from tests.replication.pairs import NAME, Pair, pair, slave_up
from tests.replication.test_promotion import (
    SYNC,
    bodies,
    ha_port,
    has_acknowledged,
    is_slave_of,
    log_of,
    same_log,
    send,
)
from tests.support.command import mqcore
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until

OTHER_BOOT = "00000000-0000-4000-8000-000000000000"
LOST = [b"lost %d" % number for number in range(3)]


def lose_power(broker: MqcoreProcess, position: int, checkpoint: bytes | None) -> None:
    """
    What a loss of power leaves: the log behind `position` never came to the disk, and so no later
    checkpoint than that of the time.
    """
    broker.kill()
    (broker.store / "checkpoint").unlink(missing_ok=True)
    if checkpoint is not None:
        (broker.store / "checkpoint").write_bytes(checkpoint)
    segment = min((broker.store / "commitlog").iterdir())       # the next one is there already
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(bytes(len(log_of(broker)) - position))
    (broker.store / "abort").write_text(f"async {OTHER_BOOT}")


def with_lost_end(running: Pair) -> tuple[int, int]:
    """Where the log of a master ends that has lost power, and where that of its slave does."""
    master, slave = running.master, running.slave
    wait_until(lambda: send(master.broker_addr, b"kept" * 2000) == [0], "a slave that has it")
    kept = len(log_of(master))
    path = master.store / "checkpoint"
    checkpoint = path.read_bytes() if path.exists() else None
    assert send(master.broker_addr, *LOST) == [0] * len(LOST)
    wait_until(lambda: same_log(master, slave), "the same log")
    end = len(log_of(master))
    lose_power(master, kept, checkpoint)
    return kept, end


def as_before(master: MqcoreProcess) -> dict[str, object]:
    return {**SYNC, "broker.name": NAME,
            "broker.listen_port": int(master.broker_addr.rpartition(":")[2])}


@pytest.mark.slow
def test_a_master_that_lost_what_its_slave_has_does_not_lead(tmp_path: Path) -> None:
    with pair(tmp_path, SYNC, {"replication.slave_timeout_ms": 300}) as running:
        old, new = running.master, running.slave
        names = running.names.namesrv_addr
        kept, end = with_lost_end(running)

        with mqcore_up(old.folder, as_before(old), namesrv_addr=names) as refused:
            assert (f"{new.broker_addr} has epoch 1 up to log position {end}, this one up to "
                    f"{kept}: the last {end - kept} bytes are lost here") in refused.tail()
            assert send(refused.broker_addr, b"refused") == [14]

        assert mqcore("replication", "promote", "--yes", new.store, "--sync").returncode == 0
        wait_until(lambda: is_slave_of(running.names, new), "the name server knows the new master")
        done = mqcore("replication", "rejoin", "--yes", old.store, "--master", ha_port(new))
        assert (done.returncode, "nothing is cut" in done.stdout) == (0, True), done
        with mqcore_up(old.folder, as_before(old), namesrv_addr=names) as again:
            wait_until(lambda: has_acknowledged(new.broker_addr, b"new"), "a slave that has it")
            wait_until(lambda: same_log(again, new), "the same log")
            wait_until(lambda: bodies(new.broker_addr)[-1] == b"new", "all in the queue")
            assert [one for one in bodies(new.broker_addr) if one.startswith(b"lost")] == LOST


@pytest.mark.slow
def test_a_start_that_was_refused_does_not_forget_the_loss_of_power(tmp_path: Path) -> None:
    with pair(tmp_path, SYNC) as running:
        names, old = running.names.namesrv_addr, running.master
        kept, _ = with_lost_end(running)
        for _ in range(2):
            with mqcore_up(old.folder, as_before(old), namesrv_addr=names) as refused:
                assert "bytes are lost here" in refused.tail()
        running.slave.stop()

        with mqcore_up(old.folder, as_before(old), namesrv_addr=names) as master:
            assert f"epoch 2 begins at log position {kept}: the machine went down" in master.tail()
        assert not (old.store / "abort").exists()


@pytest.mark.slow
def test_a_slave_with_what_its_master_lost_says_so_and_rejoins(tmp_path: Path) -> None:
    """It was away when the master came back: an epoch begins where the two logs part."""
    with pair(tmp_path, SYNC) as running:
        names, slave = running.names.namesrv_addr, running.slave
        kept, _ = with_lost_end(running)
        slave.stop()

        with mqcore_up(running.master.folder, as_before(running.master),
                       namesrv_addr=names) as master:
            assert f"epoch 2 begins at log position {kept}: the machine went down" in master.tail()
            with slave_up(slave.folder, names) as again:
                wait_until(lambda: "mqcore replication rejoin" in again.tail(), "its word")
                assert send(master.broker_addr, b"new") == [11]
            done = mqcore("replication", "rejoin", "--yes", slave.store, "--master",
                          ha_port(master), "--json")
            assert done.returncode == 0, done
            told = json.loads(done.stdout)
            assert (told["position"], told["messages"]) == (kept, len(LOST))
            side = Path(told["sideFile"]).read_bytes()
            assert all(one in side for one in LOST)
            with slave_up(slave.folder, names) as again:
                wait_until(lambda: has_acknowledged(master.broker_addr, b"last"),
                           "a slave that has it")
                wait_until(lambda: same_log(master, again), "the same log")
    found = epochs.read(slave.store)
    assert found is not None
    assert [one.number for one in found.history.epochs] == [1, 2]
