"""Two masters of one name that did not see each other when they started do not stay two."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.shm.elected import role_of
from tests.replication.pairs import NAME, addresses, pair, slave_up
from tests.replication.test_kills import kill_one
from tests.replication.test_promotion import bodies, same_log, send
from tests.support.command import mqcore
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.workers.processes import by_role
from tests.workers.test_end import segment_of

OFTEN = {"broker.register_interval_ms": 10_000}         # the least


def made_topic(address: str) -> int:
    """The answer to a new topic."""
    with Peer(address) as peer:
        return peer.ask(17, {"topic": "Late", "defaultTopic": "TBW102", "readQueueNums": "1",
                             "writeQueueNums": "1", "perm": "6",
                             "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
                             "order": "false"}).code


@pytest.mark.slow
def test_a_master_that_was_overtaken_takes_nothing_and_stays(tmp_path: Path) -> None:
    """As after a site's power is back: the old one is up first, and sees nobody."""
    with pair(tmp_path) as running:
        names = running.names
        assert send(running.master.broker_addr, b"both") == [0]
        wait_until(lambda: same_log(running.master, running.slave), "the same log")
        running.master.stop()
        assert mqcore("replication", "promote", "--yes", running.slave.store).returncode == 0
        wait_until(lambda: addresses(names) == {"0": running.slave.broker_addr}, "a new master")
        running.slave.stop()
        wait_until(lambda: not addresses(names), "nobody is known")

        with mqcore_up(running.master.folder, {
            "broker.name": NAME, "replication.listen": True, **OFTEN,
        }, namesrv_addr=names.namesrv_addr) as old:
            assert send(old.broker_addr, b"to the wrong one") == [0]
            with slave_up(running.slave.folder, names.namesrv_addr, OFTEN) as new:
                word = (f"the broker at {new.broker_addr} has epoch 2 of {NAME}/"
                        f"{running.slave.broker_addr}, this one ends with epoch 1: it is no master "
                        "any more")
                wait_until(lambda: word in old.tail(), "it hears of the new one")
                wait_until(lambda: send(old.broker_addr, b"refused") == [14], "it takes nothing")
                assert send(new.broker_addr, b"new") == [0]
                assert bodies(old.broker_addr) == [b"both", b"to the wrong one"]
                for role in ("coordinator", "pull-serving-0", "writer"):
                    kill_one(old, role)                   # none forgets it
                wait_until(lambda: made_topic(old.broker_addr) == 1, "a coordinator")
                wait_until(lambda: send(old.broker_addr, b"refused") == [14], "all are back")
                wait_until(lambda: addresses(names) == {"0": new.broker_addr}, "one master")
                assert old.output.read_text().count(word) == 1
                assert old.process.poll() is None
                old.stop()
                with mqcore_up(running.master.folder, {
                    "broker.name": NAME, "replication.listen": True,
                }, namesrv_addr=names.namesrv_addr) as again:
                    assert word in again.tail()
                    for role in ("coordinator", "pull-serving-0", "writer"):
                        kill_one(again, role)
                    wait_until(lambda: made_topic(again.broker_addr) == 1, "a coordinator")
                    assert send(again.broker_addr, b"refused") == [14]
                    wait_until(lambda: bodies(again.broker_addr) == [b"both", b"to the wrong one"],
                               "it answers reads")
                    assert addresses(names) == {"0": new.broker_addr}
                    assert role_of(segment_of(again)) == "overtaken"
                    assert "scheduler" not in by_role(again)
