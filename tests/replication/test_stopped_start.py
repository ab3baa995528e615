"""
A start that is told to stop between the log's opening and its word who leads: nothing is forgotten.

SIGTERM comes where a run has found the end of its log, before and behind the moment that an epoch
is written down, and before the run has left its own mark in the store.
"""
from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest

from mqcore.replication import epochs
from mqcore.replication.epochs import Standing, State, promoted
from mqcore.store import last_run, restored
from tests.replication.pairs import NAME
from tests.replication.test_lost_end import lose_power
from tests.replication.test_promotion import bodies, log_of, send
from tests.support.mqcore_process import MqcoreError, MqcoreProcess, mqcore_up

STOPPED = """
import os, signal, sys
from mqcore.workers.failover import standing
from mqcore.workers.supervisor import supervisor

where = sys.argv.pop(1)
reached, taken = supervisor.Supervisor._reached, standing.begin_run

def stop(here):
    if here == where:
        os.kill(os.getpid(), signal.SIGTERM)

def stopped_at(self, step):
    done = reached(self, step)
    if step is supervisor.Start.LOG:
        stop("log")
    return done

def stopped_around(*given):
    stop("before")
    found = taken(*given)
    stop("behind")
    return found

supervisor.Supervisor._reached, standing.begin_run = stopped_at, stopped_around
from mqcore.admin.cli import main
main()
"""
MASTER = {"broker.name": NAME, "replication.listen": True}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> MqcoreProcess:
    """A master that was killed, with three messages."""
    with mqcore_up(tmp_path_factory.mktemp("killed"), MASTER) as master:
        assert send(master.broker_addr, b"a", b"b", b"c") == [0] * 3
        master.kill()
    return master


@pytest.fixture
def master(killed: MqcoreProcess, tmp_path: Path) -> MqcoreProcess:
    """The same, with a copy of the store in tmp_path."""
    shutil.copytree(killed.store, tmp_path / "store")
    return dataclasses.replace(killed, folder=tmp_path)


def stopped(folder: Path, where: str) -> None:
    with pytest.raises(MqcoreError, match="stopping on SIGTERM"), mqcore_up(
            folder, MASTER, program=(sys.executable, "-c", STOPPED, where)):
        raise AssertionError("it started")


def numbers(store: Path) -> list[int]:
    found = epochs.read(store)
    assert found is not None
    return [one.number for one in found.history.epochs]


@pytest.mark.parametrize("where", ["log", "before", "behind"])
def test_a_stopped_start_does_not_forget_the_loss_of_power(
    master: MqcoreProcess, tmp_path: Path, where: str,
) -> None:
    store, end = master.store, len(log_of(master))
    lose_power(master, end, None)

    stopped(tmp_path, where)
    assert numbers(store) == ([1] if where == "log" else [1, 2])
    assert (store / "abort").exists() == (where == "log")
    stopped(tmp_path, where)                                   # nor the next one
    with mqcore_up(tmp_path, MASTER) as again:
        assert bodies(again.broker_addr) == [b"a", b"b", b"c"]

    found = epochs.read(store)
    assert found is not None
    assert [(one.number, one.start) for one in found.history.epochs] == [(1, 0), (2, end)]
    assert last_run.read(store / "abort").clean


@pytest.mark.parametrize("where", ["log", "behind"])
def test_a_stopped_start_leaves_its_word_to_the_next_one(
    master: MqcoreProcess, tmp_path: Path, where: str,
) -> None:
    before = epochs.read(master.store)
    assert before is not None
    epochs.write(master.store, promoted(Standing(before.history, State.FOLLOWS), synchronous=False))

    stopped(tmp_path, where)
    found = epochs.read(master.store)
    assert found is not None
    assert found.state is (State.PROMOTED if where == "log" else State.LEADS)
    with mqcore_up(tmp_path, MASTER):
        assert numbers(master.store) == [1, 2]


@pytest.mark.parametrize("where", ["log", "behind"])
def test_a_stopped_start_of_a_restored_store_keeps_its_mark_until_it_leads(
    master: MqcoreProcess, tmp_path: Path, where: str,
) -> None:
    restored.mark(master.store)

    stopped(tmp_path, where)
    assert restored.is_marked(master.store) == (where == "log")
    with mqcore_up(tmp_path, MASTER):
        assert not restored.is_marked(master.store)
