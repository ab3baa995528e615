"""Several broker names in one cluster: each elects for itself by the same etcd."""
from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failover.test_failover import STORED, Members, Producer, acknowledging, bodies
from tests.replication.elected import send
from tests.replication.pairs import addresses
from tests.support.etcd import etcd_server
from tests.support.mqcore_process import mqcore_namesrv
from tests.support.waiting import wait_until

# the second is left alone: what it answers is not to depend on how slow the machine is
NAMES: dict[str, dict[str, object]] = {
    "mqcore-a": {},
    "mqcore-b": {"failover.lease_seconds": 6, "replication.slave_timeout_ms": 10_000}}


@pytest.fixture
def pairs(tmp_path: Path) -> Iterator[list[Members]]:
    """Of two names, at one name server and one etcd."""
    with contextlib.ExitStack() as life:
        etcd = life.enter_context(etcd_server(tmp_path))
        names = life.enter_context(mqcore_namesrv(tmp_path / "names"))
        yield [life.enter_context(acknowledging(Members(
            tmp_path / name, etcd, names, settings=settings, name=name)))
            for name, settings in NAMES.items()]


def standing(pair: Members) -> tuple[object, ...]:
    """Who leads in which epoch, who is in the set, which processes they are."""
    view = pair.view()
    assert view.master is not None
    assert view.state is not None
    return (view.master.member, view.master.epoch, view.state.in_sync,
            {number: one.family() for number, one in pair.running.items()},
            addresses(pair.names, pair.name))


@pytest.mark.slow
def test_the_loss_of_one_names_leader_leaves_the_other_name_alone(pairs: list[Members]) -> None:
    struck, other = pairs
    wait_until(lambda: len(addresses(other.names, other.name)) == 2, "both are registered")
    before = standing(other)
    leader = struck.leader()
    new = struck.running[3 - leader].broker_addr
    undisturbed = other.running[other.leader()].broker_addr
    with (
        Producer([one.broker_addr for one in struck.running.values()]) as beside,
        Producer([undisturbed]) as producer,
    ):
        for one in (beside, producer):
            wait_until(lambda one=one: len(one.acknowledged) > 20, "messages are acknowledged")
        killed = time.monotonic()
        struck.running[leader].kill()
        wait_until(lambda: beside.since(killed, STORED, new), "the other one of the name leads")
        struck.start(leader)
        wait_until(struck.are_in_sync, "both are in the set again")
        again = time.monotonic()
        wait_until(lambda: beside.since(again, {0}), "messages are acknowledged again")
        wait_until(lambda: producer.since(again, {0}), "and of the other name")
    assert {code for at, code, _, _ in producer.answers} == {0}
    assert standing(other) == before
    assert struck.view().master.epoch == 2
    assert addresses(struck.names, struck.name)["0"] == new
    assert beside.acknowledged <= bodies(new)
    assert producer.acknowledged <= bodies(undisturbed)
    assert send(undisturbed, b"and then") == [0]
