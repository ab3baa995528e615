"""Who is promoted has the most of the log among those that answer, unless an operator insists."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.admin.replication import log_end
from mqcore.replication import epochs
from mqcore.replication.epochs import State
from mqcore.store.log.folders import LogFolders
from tests.replication.pairs import addresses
from tests.replication.test_ahead import apart
from tests.replication.test_promotion import same_log, send
from tests.store import golden
from tests.support.command import mqcore
from tests.support.waiting import wait_until


@pytest.mark.parametrize("name", golden.NAMES)
def test_the_end_of_a_log_at_rest_is_where_a_start_finds_it(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    end = golden.manifest(name)["afterRecovery"]["maxPhyOffset"]

    assert log_end(root, 0, None) == end
    (root / "commitlog").rename(tmp_path / "elsewhere")
    assert log_end(root, 0, LogFolders((tmp_path / "elsewhere",))) == end


@pytest.mark.slow
def test_who_lacks_what_another_one_has_is_promoted_only_by_force(tmp_path: Path) -> None:
    with apart(tmp_path) as pair:
        names = "-n", pair.names.namesrv_addr
        assert send(pair.master.broker_addr, b"both") == [0]
        wait_until(lambda: same_log(pair.master, pair.slave), "the slave has it")
        wait_until(lambda: epochs.read(pair.slave.store) is not None, "and the epochs")
        pair.way.stall()
        assert send(pair.master.broker_addr, b"alone") == [0]
        refusal = f"the broker at {pair.master.broker_addr} has the log up to "

        done = mqcore("replication", "promote", pair.slave.store, *names)
        assert (done.returncode, refusal in done.stderr) == (1, True), done
        pair.slave.stop()
        done = mqcore("replication", "promote", pair.slave.store, *names)
        assert (done.returncode, refusal in done.stderr) == (1, True), done
        standing = epochs.read(pair.slave.store)
        assert standing is not None
        assert standing.state is State.FOLLOWS
        done = mqcore("replication", "promote", pair.slave.store, *names, "--force")
        assert (done.returncode, "is that of a master" in done.stdout) == (0, True), done


@pytest.mark.slow
def test_who_has_as_much_as_all_that_answer_is_promoted(tmp_path: Path) -> None:
    with apart(tmp_path) as pair:
        names = "-n", pair.names.namesrv_addr
        assert send(pair.master.broker_addr, b"both") == [0]
        wait_until(lambda: same_log(pair.master, pair.slave), "the slave has it")
        wait_until(lambda: epochs.read(pair.slave.store) is not None, "and the epochs")
        pair.master.kill()

        done = mqcore("replication", "promote", pair.slave.store, "-n", "127.0.0.1:1")
        assert "is not known: none answers" in done.stderr, done
        assert done.returncode == 0
        wait_until(lambda: addresses(pair.names).get("0") == pair.slave.broker_addr, "it leads")
        done = mqcore("replication", "demote", pair.slave.store)
        assert done.returncode == 0
        wait_until(lambda: addresses(pair.names) == {"1": pair.slave.broker_addr}, "it does not")
        done = mqcore("replication", "promote", pair.slave.store, *names)
        assert (done.returncode, done.stderr) == (0, ""), done
