"""Two masters of one name that did not see each other when they started do not stay two."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.replication.pairs import NAME, addresses, pair, slave_up
from tests.replication.test_promotion import same_log, send
from tests.support.command import mqcore
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until

OFTEN = {"broker.register_interval_ms": 10_000}         # the least


@pytest.mark.slow
def test_the_master_that_was_overtaken_ends_when_the_promoted_one_is_there(tmp_path: Path) -> None:
    """As after a site's power is back: the old one is up first, and sees nobody."""
    with pair(tmp_path) as running:
        names = running.names
        assert send(running.master.broker_addr, b"both") == [0]
        wait_until(lambda: same_log(running.master, running.slave), "the same log")
        running.master.stop()
        assert mqcore("replication", "promote", running.slave.store).returncode == 0
        wait_until(lambda: addresses(names) == {"0": running.slave.broker_addr}, "a new master")
        running.slave.stop()
        wait_until(lambda: not addresses(names), "nobody is known")

        with mqcore_up(running.master.folder, {
            "broker.name": NAME, "replication.listen": True, **OFTEN,
        }, namesrv_addr=names.namesrv_addr) as old:
            assert send(old.broker_addr, b"to the wrong one") == [0]
            with slave_up(running.slave.folder, names.namesrv_addr, OFTEN) as new:
                wait_until(lambda: old.process.poll() is not None, "the end of the old master")
                word = (f"the broker at {new.broker_addr} has epoch 2 of {NAME}/"
                        f"{running.slave.broker_addr}, this one ends with epoch 1: it is no master "
                        "any more")
                assert old.tail().count(word) == 2                  # at the end, and at the start
                assert send(new.broker_addr, b"new") == [0]
                wait_until(lambda: addresses(names) == {"0": new.broker_addr}, "one master")
