"""A master with two slaves: one of them is promoted, and the other one follows it soon."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.replication.pairs import addresses, pair, slave_up
from tests.replication.test_promotion import bodies, same_log, send
from tests.support.command import mqcore
from tests.support.waiting import wait_until

RARELY: dict[str, object] = {"broker.register_interval_ms": 60_000}


@pytest.mark.slow
def test_the_other_slave_finds_who_was_promoted_long_before_it_registers_again(
    tmp_path: Path,
) -> None:
    with pair(tmp_path, slave={"replication.listen": True}) as both, slave_up(
            tmp_path / "other", both.names.namesrv_addr,
            {"broker.id": 2, **RARELY}) as other:
        assert send(both.master.broker_addr, b"before") == [0]
        wait_until(lambda: same_log(both.master, both.slave) and same_log(both.master, other),
                   "both have it")
        wait_until(lambda: f"the master is {both.master.broker_addr}" in other.tail(),
                   "it takes over tables, too")
        both.master.kill()
        wait_until(lambda: "are not taken over" in other.tail(), "it misses its master")
        assert mqcore("replication", "promote", "--yes", both.slave.store).returncode == 0
        wait_until(lambda: addresses(both.names).get("0") == both.slave.broker_addr, "it leads")

        wait_until(lambda: f"the master is {both.slave.broker_addr}" in other.tail(),
                   "the other one hears of it", timeout_s=20)

        assert send(both.slave.broker_addr, b"behind") == [0]
        wait_until(lambda: bodies(other.broker_addr)[-2:] == [b"before", b"behind"],
                   "and has its log")
