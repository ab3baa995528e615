"""
A set changes its roles beside a stock name server, which takes the id of a 104 away from whoever
has it: the new master stays known to it.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.replication.pairs import NAME, addresses_at, slave_up
from tests.support.command import mqcore
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stock import require_stock, start_namesrv
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
SELDOM = {"broker.register_interval_ms": 60_000}        # the most: the next one mends nothing
SOON_S = 30.0


@dataclass
class Promoted:
    names: str
    old: MqcoreProcess
    new: MqcoreProcess


@pytest.fixture
def promoted(tmp_path: Path) -> Iterator[Promoted]:
    """A former master that still runs, and its slave, which was promoted."""
    require_stock()
    names = start_namesrv(tmp_path / "names")
    try:
        with (
            mqcore_up(tmp_path / "master", {
                "broker.name": NAME, "replication.listen": True, **SELDOM,
            }, namesrv_addr=names.addr) as old,
            slave_up(tmp_path / "slave", names.addr, SELDOM) as new,
        ):
            wait_until(lambda: addresses_at(names.addr) == {
                "0": old.broker_addr, "1": new.broker_addr}, "both are known")
            wait_until(lambda: (new.store / "epochs").exists(), "the table of the master")
            done = mqcore("replication", "promote", "--yes", new.store)
            assert done.returncode == 0, done
            wait_until(lambda: addresses_at(names.addr) == {"0": new.broker_addr}, "a new master",
                       SOON_S)
            yield Promoted(names.addr, old, new)
    finally:
        names.stop()


@pytest.mark.slow
def test_the_end_of_the_old_master_leaves_the_new_one_known(promoted: Promoted) -> None:
    promoted.old.stop()
    assert addresses_at(promoted.names) == {"0": promoted.new.broker_addr}


@pytest.mark.slow
def test_the_old_master_is_demoted_and_the_new_one_stays_known(promoted: Promoted) -> None:
    done = mqcore("replication", "demote", "--yes", promoted.old.store, "--broker-id", "2")
    assert done.returncode == 0, done
    wait_until(lambda: addresses_at(promoted.names) == {
        "0": promoted.new.broker_addr, "2": promoted.old.broker_addr}, "both are known", SOON_S)
