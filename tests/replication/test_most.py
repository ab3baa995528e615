"""Who is promoted has the most of the log among those that answer, unless an operator insists."""
from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from mqcore.admin import replication
from mqcore.admin.replication import log_range
from mqcore.replication import epochs
from mqcore.replication.epochs import Standing, State
from mqcore.replication.peers import PeerState
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
    first = min(int(path.name) for path in (root / "commitlog").iterdir())

    assert log_range(root, 0, None) == (first, end)
    (root / "commitlog").rename(tmp_path / "elsewhere")
    assert log_range(root, 0, LogFolders((tmp_path / "elsewhere",))) == (first, end)


@pytest.mark.parametrize(("first", "end", "promotes", "says"), [
    (0, 261655, False, "has the log from 0 up to 261655 in epoch 1"),
    (0, 200000, True, "has the log from 0 on, and "), (65536, 261655, True, "")])
def test_who_has_deleted_more_is_not_promoted_before_one_with_as_much(
        first: int, end: int, *, promotes: bool, says: str, tmp_path: Path, monkeypatch) -> None:
    root = golden.unpack("basic", tmp_path)
    (root / "commitlog" / f"{0:020d}").unlink()
    history = epochs.first("orders/10.0.0.1:10911", 0, 1)
    epochs.write(root, Standing(history, State.FOLLOWS))

    async def others(*_: object) -> dict[str, PeerState]:
        return {"10.0.0.2:10911": PeerState("orders", "C", 2, "slave", first, end, history)}

    monkeypatch.setattr(replication, "states", others)
    done = CliRunner().invoke(
        replication.replication_group, ["promote", "--yes", str(root), "-n", "127.0.0.1:9876"])
    assert (done.exit_code == 0, says in done.stderr) == (promotes, True), done.output
    assert bool(done.stderr) == bool(says)
    standing = epochs.read(root)
    assert standing is not None
    assert (standing.state is State.PROMOTED) == promotes


@pytest.mark.slow
def test_who_lacks_what_another_one_has_is_promoted_only_by_force(tmp_path: Path) -> None:
    with apart(tmp_path) as pair:
        names = "-n", pair.names.namesrv_addr
        assert send(pair.master.broker_addr, b"both") == [0]
        wait_until(lambda: same_log(pair.master, pair.slave), "the slave has it")
        wait_until(lambda: epochs.read(pair.slave.store) is not None, "and the epochs")
        pair.way.stall()
        assert send(pair.master.broker_addr, b"alone") == [0]
        refusal = f"the broker at {pair.master.broker_addr} has the log from 0 up to "

        done = mqcore("replication", "promote", "--yes", pair.slave.store, *names)
        assert (done.returncode, refusal in done.stderr) == (1, True), done
        pair.slave.stop()
        done = mqcore("replication", "promote", "--yes", pair.slave.store, *names)
        assert (done.returncode, refusal in done.stderr) == (1, True), done
        standing = epochs.read(pair.slave.store)
        assert standing is not None
        assert standing.state is State.FOLLOWS
        done = mqcore("replication", "promote", "--yes", pair.slave.store, *names, "--force")
        assert (done.returncode, "is that of a master" in done.stdout) == (0, True), done


@pytest.mark.slow
def test_who_has_as_much_as_all_that_answer_is_promoted(tmp_path: Path) -> None:
    with apart(tmp_path) as pair:
        names = "-n", pair.names.namesrv_addr
        assert send(pair.master.broker_addr, b"both") == [0]
        wait_until(lambda: same_log(pair.master, pair.slave), "the slave has it")
        wait_until(lambda: epochs.read(pair.slave.store) is not None, "and the epochs")
        pair.master.kill()

        done = mqcore("replication", "promote", "--yes", pair.slave.store, "-n", "127.0.0.1:1")
        assert "is not known: none answers" in done.stderr, done
        assert done.returncode == 0
        wait_until(lambda: addresses(pair.names).get("0") == pair.slave.broker_addr, "it leads")
        done = mqcore("replication", "demote", "--yes", pair.slave.store)
        assert done.returncode == 0
        wait_until(lambda: addresses(pair.names) == {"1": pair.slave.broker_addr}, "it does not")
        done = mqcore("replication", "promote", "--yes", pair.slave.store, *names)
        assert (done.returncode, done.stderr) == (0, ""), done
