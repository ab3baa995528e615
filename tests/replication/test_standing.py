"""What a broker is told while it starts, follows, or looks for others of its name."""
from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from mqcore.acl.kept import KeptFiles
from mqcore.broker.settings.changed import ChangedSettings
from mqcore.broker.settings.model import Settings
from mqcore.broker.standing import (
    StandingError,
    check_end,
    check_newest,
    check_still_newest,
    member_name,
    of_run,
)
from mqcore.participants import HA_MASTER
from mqcore.replication import epochs, greeting
from mqcore.replication.epochs import (
    NAME_LENGTH_MAX,
    History,
    Standing,
    State,
    demoted,
    promoted,
)
from mqcore.replication.peers import PeerState
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.store import restored
from mqcore.store.last_run import LastRun
from mqcore.workers.failover import standing
from mqcore.workers.failover.elected import Rejoining
from mqcore.workers.process import said
from mqcore.workers.process.activated import Activated
from mqcore.workers.process.secured import KeptTls
from mqcore.workers.process.signals import Terminal
from mqcore.workers.replication.ha_slave import HaSlave
from mqcore.workers.supervisor.children import Child
from mqcore.workers.supervisor.manager import ServiceManager
from mqcore.workers.supervisor.supervisor import Supervisor
from tests.broker.fakes import settings_in
from tests.replication.ends import Peer, SlaveEnd
from tests.replication.pairs import NAME
from tests.replication.test_slave_rules import SLAVE
from tests.store.harness import new_segment
from tests.support.waiting import wait_until

HISTORY = epochs.first("a/0", 0, 1)
MASTER = ("replication.role=async-master", "replication.listen=true",
          "broker.namesrv_addrs=127.0.0.1:1")


def told(settings: Settings, what: Standing) -> Standing | None:
    """What the store says after the start of a broker to which `what` was said meanwhile."""
    settings.store_root.mkdir(parents=True, exist_ok=True)
    epochs.write(settings.store_root, what)
    assert standing.begin_run(settings, new_segment(), LastRun(clean=True))
    return epochs.read(settings.store_root)


def test_a_slave_that_is_promoted_while_it_starts_leads_in_its_next_run(tmp_path: Path) -> None:
    word = promoted(Standing(HISTORY, State.FOLLOWS), synchronous=False)
    assert told(settings_in(tmp_path, *SLAVE), word) == word


def test_a_master_that_is_demoted_while_it_starts_begins_no_epoch(tmp_path: Path) -> None:
    word = demoted(Standing(HISTORY, State.LEADS), 2)
    assert told(settings_in(tmp_path, *MASTER), word) == word


def test_a_slave_that_is_promoted_is_not_overruled_by_its_masters_greeting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:
    """And asks again in its time: a refused link is no reason for a second line, or a next try."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        settings = settings_in(tmp_path, *SLAVE, f"replication.master_address={host}:{port}")
        slave = SlaveEnd(settings.store_root)
        word = promoted(Standing(HISTORY, State.FOLLOWS), synchronous=True)
        epochs.write(settings.store_root, word)
        worker = HaSlave(settings, slave.run.segment, 0.0)
        worker.start()
        worker.work(20)
        peer = Peer(listener.accept()[0])
        peer.send(-1, greeting.HEAD.pack(0, 0, 0, 0) + greeting.words(
            settings.broker.name, settings.broker.cluster, settings.store.segment_size_bytes,
            HISTORY))
        worker.work(1000)
        worker.work(0)
        assert peer.is_closed()
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()

    assert epochs.read(settings.store_root) == word
    assert [one.getMessage() for one in caplog.records if one.levelname != "INFO"] == [
        f"the master at {host}:{port} is not followed: this broker was told to lead, which it does "
        "from its next start on"]


@pytest.mark.parametrize(("said", "line"), [
    (b"HTTP/1.1 400 Bad Request", "no log position: this is no master's HA port"),
    (b"\xff" * 7 + b"\0" * 5, "no log position: this is no master's HA port"),
    (b"\0" * 7 + b"\1" + b"\0" * 4, "goes on at log position 1, which is not where the log ends"),
])
def test_who_is_no_master_is_not_taken_for_another_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: bytes, line: str,
) -> None:
    """Of another log an operator is told to empty the store."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        settings = settings_in(tmp_path, *SLAVE, f"replication.master_address={host}:{port}")
        worker = HaSlave(settings, SlaveEnd(settings.store_root).run.segment, 0.0)
        worker.start()
        worker.work(20)
        peer = Peer(listener.accept()[0])
        peer.link.sendall(said)
        wait_until(lambda: worker.work(20) or "has ended" in caplog.text, "the line")
        peer.close()
    assert line in caplog.text


def others_say(monkeypatch: pytest.MonkeyPatch, **peers: PeerState) -> None:
    """The answers of the others of its name."""
    async def states(*_: object) -> dict[str, PeerState]:
        return peers

    monkeypatch.setattr(standing, "states", states)


@pytest.mark.parametrize(("name", "leads"), [("other", True), ("mine", False)])
def test_an_address_that_another_broker_has_by_now_keeps_no_start_from_leading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, leads: bool,
) -> None:
    settings = settings_in(tmp_path, *MASTER, "broker.name=mine")
    others_say(monkeypatch, other=PeerState(name, settings.broker.cluster, 0, "async-master", 0, 9,
                                            HISTORY.begun(5, "x/1", 7)))
    settings.store_root.mkdir(parents=True, exist_ok=True)
    epochs.write(settings.store_root, Standing(HISTORY, State.LEADS))
    assert standing.prepared(settings, ChangedSettings(settings)) == settings
    segment = new_segment()

    assert standing.begin_run(settings, segment, LastRun(clean=True))

    assert (LeadershipPen(segment).requested == (0, 0)) == leads


@pytest.mark.parametrize("last", [LastRun(clean=True), LastRun(clean=False)])
@pytest.mark.parametrize("said", [
    PeerState("mine", "c", 0, "async-master", 0, 9, HISTORY.begun(5, "x/1", 7)),
    PeerState("mine", "c", 0, "async-master", 0, 0, HISTORY),
    PeerState("mine", "c", 1, "slave", 0, 9, HISTORY)], ids=["newer", "copy", "more"])
def test_a_start_that_must_not_lead_takes_nothing_and_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: PeerState, last: LastRun,
) -> None:
    settings = settings_in(tmp_path, *MASTER, "broker.name=mine", "broker.cluster=c")
    others_say(monkeypatch, other=said)
    settings.store_root.mkdir(parents=True, exist_ok=True)
    epochs.write(settings.store_root, leads(HISTORY))
    before = epochs.read(settings.store_root)
    for _ in range(2):
        segment = new_segment()
        assert standing.begin_run(settings, segment, last)
        assert LeadershipPen(segment).requested == (1, 0)             # it takes nothing
        assert epochs.read(settings.store_root) == before
    others_say(monkeypatch)
    segment = new_segment()
    assert standing.begin_run(settings, segment, last)
    assert LeadershipPen(segment).requested == (0, 0)


def test_a_restored_store_that_must_not_lead_stays_a_restored_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = settings_in(tmp_path, *MASTER, "broker.name=mine", "broker.cluster=c")
    others_say(monkeypatch, other=PeerState("mine", "c", 0, "async-master", 0, 9, HISTORY))
    settings.store_root.mkdir(parents=True, exist_ok=True)
    restored.mark(settings.store_root)
    segment = new_segment()

    assert standing.begin_run(settings, segment, LastRun(clean=True))

    assert LeadershipPen(segment).requested == (1, 0)
    assert restored.is_marked(settings.store_root)
    assert epochs.read(settings.store_root) is None


def test_the_name_of_a_member_is_one_that_a_table_takes(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, *MASTER, "broker.name=" + "\u6f22" * 30,
                           "broker.advertised_host=" + "h" * 200)
    name = member_name(settings)
    assert len(name.encode()) <= NAME_LENGTH_MAX
    history = epochs.first(name, 0, 1)
    assert epochs.decode(epochs.encode(history)) == history


def test_nobody_is_there_when_who_sends_the_log_has_died(tmp_path: Path) -> None:
    """Else a send waits for its time instead of hearing at once that no slave is there."""
    settings = settings_in(tmp_path, *MASTER)
    supervisor = Supervisor(said.of_broker(settings, lambda: settings), embedded_namesrv=False,
                            on_ready=lambda _: None, kept=KeptFiles(), kept_tls=KeptTls(),
                            rejoining=Rejoining(), terminal=Terminal(),
                            manager=ServiceManager({}, beats=False), activated=Activated({}))
    supervisor._segment = new_segment()
    pen = ReplicaPen(supervisor._segment)
    pen.move(100)
    supervisor._buried(Child(HA_MASTER, 0, lambda: None, pid=1), -9)

    assert (pen.present, pen.replicated) == (False, 100)


def leads(history: History) -> Standing:
    return Standing(history, State.LEADS)


def says(history: History, end: int = 0, role: str = "slave") -> dict[str, PeerState]:
    return {"10.0.0.9:10911": PeerState("mine", "c", 0, role, 0, end, history)}


def test_who_has_more_of_the_same_epoch_keeps_a_master_from_leading(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, *MASTER)

    with pytest.raises(StandingError, match="up to log position 1500, this one up to 1400: the "
                                            "last 100 bytes are lost here"):
        check_end(settings, leads(HISTORY), 1400, says(HISTORY, 1500))
    check_end(settings, leads(HISTORY), 1500, says(HISTORY, 1500))
    check_end(settings, leads(HISTORY.begun(1400, "a/0", 2)), 1400, says(HISTORY, 1500))
    check_end(settings, promoted(Standing(HISTORY, State.FOLLOWS), synchronous=True), 1400,
              says(HISTORY, 1500))


def test_a_master_that_lost_power_is_not_newer_than_the_one_that_was_promoted(
    tmp_path: Path,
) -> None:
    """However often it began an epoch behind its own: the one that took over stays."""
    settings = settings_in(tmp_path, *MASTER)
    again = HISTORY.begun(1400, "a/0", 5).begun(1600, "a/0", 6)
    other = HISTORY.begun(1500, "b/1", 4)

    with pytest.raises(StandingError, match="it is no master any more"):
        check_still_newest(settings, leads(again), says(other, role="async-master"))
    with pytest.raises(StandingError, match="it is no master any more"):
        check_newest(settings, leads(again), {"10.0.0.9:10911": other})
    assert check_still_newest(settings, leads(other), says(again, role="async-master")) == ""
    check_newest(settings, leads(other), {"10.0.0.9:10911": again})


def test_of_two_masters_of_which_none_took_over_none_ends_and_both_say_so(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, *MASTER)
    one, other = HISTORY.begun(1400, "a/0", 5), HISTORY
    two, three = HISTORY.begun(1400, "b/1", 5), HISTORY.begun(1500, "c/2", 5)

    for mine, theirs in ((one, other), (other, one), (two, three), (three, two), (one, one)):
        said = check_still_newest(settings, leads(mine), says(theirs, role="sync-master"))
        assert "leads, too" in said
        assert check_still_newest(settings, leads(mine), says(theirs)) == ""


def test_a_slave_of_who_took_over_is_word_enough(tmp_path: Path) -> None:
    with pytest.raises(StandingError, match="has epoch 2 of b/1, this one ends with epoch 1"):
        check_still_newest(settings_in(tmp_path, *MASTER), leads(HISTORY),
                           says(HISTORY.begun(1400, "b/1", 5)))


@pytest.mark.parametrize(("last", "number"), [
    (LastRun(clean=True), 1), (LastRun(clean=False, ours=True, same_boot=True), 1),
    (LastRun(clean=False, ours=True), 2), (LastRun(clean=False), 2)])
def test_a_master_whose_machine_went_down_begins_an_epoch(
    tmp_path: Path, last: LastRun, number: int,
) -> None:
    settings = settings_in(tmp_path, *MASTER)
    settings.store_root.mkdir(parents=True, exist_ok=True)
    epochs.write(settings.store_root, leads(HISTORY))
    segment = new_segment()

    assert standing.begin_run(settings, segment, last)

    found = epochs.read(settings.store_root)
    assert found is not None
    assert (found.state, found.history.last.number) == (State.LEADS, number)


@pytest.mark.parametrize("state", [State.FOLLOWS, State.PROMOTED])
def test_a_slave_whose_machine_went_down_begins_none(tmp_path: Path, state: State) -> None:
    settings = settings_in(tmp_path, *SLAVE)
    settings.store_root.mkdir(parents=True, exist_ok=True)
    word = Standing(HISTORY, state)
    epochs.write(settings.store_root, word)

    assert standing.begin_run(settings, new_segment(), LastRun(clean=False))
    assert epochs.read(settings.store_root) == word


def test_an_address_that_changed_is_no_takeover(tmp_path: Path) -> None:
    """A copy of the master, at another address, lost power: the master does not end for it."""
    moved = of_run(settings_in(tmp_path, *MASTER), leads(HISTORY), 0, 1400, 5, lost_power=True)

    assert moved is not None
    assert (moved.history.last.number, moved.history.last.master) == (2, "a/0")
    said = check_still_newest(settings_in(tmp_path, *MASTER), leads(HISTORY),
                              says(moved.history, role="async-master"))
    assert "none of the two has taken over" in said


@pytest.mark.parametrize("behind", [None, 2000])
def test_who_is_promoted_behind_its_own_epoch_has_taken_over(
    tmp_path: Path, behind: int | None,
) -> None:
    """behind: where an epoch of another one began, of which its log has nothing."""
    settings = settings_in(tmp_path, *MASTER, "broker.advertised_host=" + "h" * 240)
    own = epochs.first(member_name(settings), 0, 1)
    before = own if behind is None else own.begun(behind, "b/1", 3)
    stale = own.begun(1600, member_name(settings), 4).begun(1700, member_name(settings), 4)
    word = promoted(demoted(leads(before), 2), synchronous=True)

    made = of_run(settings, word, 0, 1400, 5)

    assert made is not None
    assert len(made.history.last.master.encode()) <= NAME_LENGTH_MAX
    check_newest(settings, leads(made.history), {"10.0.0.9:10911": stale})
    with pytest.raises(StandingError, match="it is no master any more"):
        check_newest(settings, leads(stale), {"10.0.0.9:10911": made.history})


def test_a_master_that_lost_all_of_its_log_begins_another_one(tmp_path: Path) -> None:
    """Its first epoch began where older messages were gone already."""
    before = epochs.first("a/0", 1000, 1).begun(2000, "a/0", 2)

    made = of_run(settings_in(tmp_path, *MASTER), leads(before), 0, 0, 5, lost_power=True)

    assert made is not None
    assert (made.state, made.history.last.start, made.history.last.number) == (State.LEADS, 0, 3)
    assert epochs.common_end(made.history, 0, before, 3000) is None
    check_newest(settings_in(tmp_path, *MASTER), made, {"10.0.0.9:10911": before})


@pytest.mark.parametrize("key", ["readable", "lost"])
def test_a_start_whose_key_or_name_servers_are_away_goes_on_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str,
) -> None:
    secret = tmp_path / "secret"
    if key == "readable":
        secret.write_text("secret12\n")
    settings = settings_in(tmp_path, *MASTER, "acl.client_access_key=broker",
                           f"acl.client_secret_key_file={secret}")
    settings.store_root.mkdir(parents=True, exist_ok=True)
    epochs.write(settings.store_root, leads(HISTORY))

    assert standing.prepared(settings, ChangedSettings(settings)) == settings
    assert standing.begin_run(settings, new_segment(), LastRun(clean=True))

    said = [one.getMessage() for one in caplog.records]
    assert sum("no name server says who else" in one for one in said) == 1
    assert any(f"without its account: {secret}: cannot be read" in one
               for one in said) == (key == "lost")


def test_a_master_that_was_overtaken_says_so_to_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = settings_in(tmp_path, *MASTER, f"broker.name={NAME}")
    settings.store_root.mkdir(parents=True, exist_ok=True)
    epochs.write(settings.store_root, leads(HISTORY))
    contexts: list[object] = []
    told: list[bool] = []

    async def states(*given: object) -> dict[str, PeerState]:
        contexts.append(given[3])
        return {"10.0.0.9:10911": PeerState(NAME, settings.broker.cluster, 0, "async-master", 0,
                                            2000, HISTORY.begun(1400, "b/1", 5))}

    monkeypatch.setattr(standing, "states", states)
    in_force = [ssl.create_default_context(), ssl.create_default_context()]
    watch = standing.Watch(lambda: in_force[len(contexts)], lambda: None,
                           lambda: told.append(True))

    assert not asyncio.run(watch.look(settings))
    assert not asyncio.run(watch.look(settings))

    assert contexts == in_force
    assert told == [True, True]


@pytest.mark.parametrize("is_elected", [False, True])
def test_an_elected_member_begins_also_where_its_disk_takes_no_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_elected: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It begins as a follower; its master's greeting, or an election, writes them again."""
    settings = settings_in(tmp_path, "replication.role=sync-master", "replication.listen=true",
                           "broker.namesrv_addrs=127.0.0.1:1", "broker.id=1",
                           "failover.enable=true", "failover.etcd=http://127.0.0.1:1")
    settings = (standing.prepared(settings, ChangedSettings(settings)) if is_elected
                else settings_in(tmp_path, *SLAVE))
    settings.store_root.mkdir(parents=True, exist_ok=True)
    epochs.write(settings.store_root, leads(HISTORY))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(epochs, "write", full)

    assert standing.begin_run(settings, new_segment(), LastRun(clean=True)) == is_elected
    assert "No space left on device" in caplog.text
