"""Brokers and an etcd as processes: who dies, who is cut off, and what clients see of it."""
from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from mqcore.admin.replication import election_words
from mqcore.broker.settings.load import load
from mqcore.failover.election import Grant, Look
from mqcore.failover.etcd import EtcdError, Key, Put
from mqcore.failover.keys import Names, View, view_of
from mqcore.failover.storing import Storing
from mqcore.layout import LEADERSHIP_LEADS
from mqcore.replication import epochs
from mqcore.shm.segment import Segment
from mqcore.wire.records import decode_records
from mqcore.workers.failover import failover
from mqcore.workers.failover.failover import Failover
from tests.replication.elected import TOPIC, send, settings_of
from tests.replication.pairs import NAME, addresses
from tests.replication.test_promotion import has_acknowledged
from tests.shm.test_segment import SMALL
from tests.support.command import mqcore
from tests.support.etcd import EtcdMembers, EtcdServer, etcd_server
from tests.support.mqcore_process import MqcoreError, MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields
from tests.workers.processes import pid_of

LEASE_S = 2
WRITABLE_S_MAX = 3.0
PAUSE_S = 0.005                  # between two messages
STORED = {0, 11, 12}
KEYS = Names.of("DefaultCluster", NAME)


@dataclass
class Members:
    """Two brokers of one name, their name server and their etcd, which may be others', too."""

    folder: Path
    etcd: EtcdServer | EtcdMembers
    names: MqcoreProcess
    settings: Mapping[str, object] = field(default_factory=dict)     # of each more
    name: str = NAME
    running: dict[int, MqcoreProcess] = field(default_factory=dict)
    contexts: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self, number: int) -> MqcoreProcess:
        self.running[number] = self.contexts.enter_context(mqcore_up(
            self.folder / str(number),
            {**settings_of(number), "broker.name": self.name,
             "failover.etcd": self.etcd.addresses, "failover.lease_seconds": LEASE_S,
             **self.settings},
            namesrv_addr=self.names.namesrv_addr))
        return self.running[number]

    def view(self) -> View:
        keys = Names.of("DefaultCluster", self.name)
        client = self.etcd.client()
        try:
            return view_of(keys, client.below(keys.prefix))
        finally:
            client.close()

    def are_in_sync(self) -> bool:
        view = self.view()
        return (view.master is not None and view.state is not None
                and view.state.in_sync == frozenset(self.running))

    def leader(self) -> int:
        master = self.view().master
        return 0 if master is None else master.member


@contextlib.contextmanager
def members_by(folder: Path, etcd: EtcdServer | EtcdMembers,
               settings: Mapping[str, object] | None = None) -> Iterator[Members]:
    """Both are in the set, and messages are acknowledged."""
    with (
        mqcore_namesrv(folder / "names") as names,
        acknowledging(Members(folder, etcd, names, settings or {})) as made,
    ):
        yield made


@contextlib.contextmanager
def acknowledging(made: Members) -> Iterator[Members]:
    """The same of one that has its name server."""
    with made.contexts:
        for number in (1, 2):
            made.start(number)
        wait_until(made.are_in_sync, "both are in the set")
        wait_until(lambda: (leader := made.leader()) > 0 and send(
            made.running[leader].broker_addr, b"first") == [0],
            "the first message is acknowledged")
        yield made


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with etcd_server(tmp_path) as etcd, members_by(tmp_path, etcd) as made:
        yield made


class Producer:
    """Sends one message after the other to whoever takes them, and keeps the answers."""

    def __init__(self, addresses_known: list[str]) -> None:
        self._addresses = addresses_known
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.answers: list[tuple[float, int, bytes, str]] = []

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def since(self, moment: float, codes: set[int], whose: str = "") -> list[float]:
        """When answers of these codes came after a moment, in seconds behind it."""
        return [at - moment for at, code, _, address in self.answers
                if at > moment and code in codes and whose in ("", address)]

    @property
    def acknowledged(self) -> set[bytes]:
        return {body for _, code, body, _ in self.answers if code == 0}

    def _send(self) -> None:
        number = 0
        while not self._stopped.is_set():
            for address in self._addresses:
                with contextlib.suppress(OSError, Closed), Peer(address) as peer:
                    while not self._stopped.wait(PAUSE_S):
                        number += 1
                        body = b"message %d" % number
                        code = peer.ask(310, send_fields(TOPIC), body).code
                        self.answers.append((time.monotonic(), code, body, address))
                        if code == 14:
                            break
            self._stopped.wait(0.02)


def bodies(address: str) -> set[bytes]:
    """All messages of the queue."""
    found: list[bytes] = []
    with Peer(address) as peer:
        while True:
            answer = peer.ask(11, pull_fields(TOPIC, queue_id=0, offset=len(found)))
            if answer.code != 0:
                return set(found)
            found += [record.body for record in decode_records(answer.body)]


@pytest.mark.slow
def test_another_one_is_writable_soon_after_who_led_was_killed(members: Members) -> None:
    known = [one.broker_addr for one in members.running.values()]
    leader = members.leader()
    other = 3 - leader
    new = members.running[other].broker_addr
    with Producer(known) as producer:
        wait_until(lambda: len(producer.acknowledged) > 20, "messages are acknowledged")
        killed = time.monotonic()
        members.running[leader].kill()
        wait_until(lambda: producer.since(killed, STORED, new), "the other one takes messages")
    took = producer.since(killed, STORED, new)[0]
    print(f"writable {took:.2f} s after kill -9 of all processes, lease {LEASE_S} s")
    assert producer.acknowledged <= bodies(new)
    wait_until(lambda: addresses(members.names).get("0") == new, "name servers say so")
    assert members.view().master.epoch == 2
    assert took <= WRITABLE_S_MAX

    members.start(leader)                        # and comes back by itself
    wait_until(members.are_in_sync, "both are in the set again")
    wait_until(lambda: send(members.running[other].broker_addr, b"both again") == [0],
               "messages are acknowledged again")


@pytest.mark.slow
def test_without_etcd_nothing_is_acknowledged_behind_the_lease(members: Members) -> None:
    known = [one.broker_addr for one in members.running.values()]
    etcd = members.etcd
    assert isinstance(etcd, EtcdServer)
    with Producer(known) as producer:
        wait_until(lambda: len(producer.acknowledged) > 20, "messages are acknowledged")
        stopped = time.monotonic()
        etcd.stop_answering()
        wait_until(lambda: producer.since(stopped, {11}), "the lease has run out")
        late = time.monotonic()
        wait_until(lambda: len(producer.since(late, {11})) > 20, "more are sent")
        assert producer.since(late, {0}) == []
        until = producer.since(stopped, {0})[-1]
        assert until <= LEASE_S
        etcd.answer_again()
        again = time.monotonic()
        wait_until(lambda: producer.since(again, {0}), "messages are acknowledged again")
    print(f"acknowledged until {until:.2f} s after etcd was gone, and from "
          f"{producer.since(again, {0})[0]:.2f} s after it was back")
    leader = members.running[members.leader()].broker_addr
    assert producer.acknowledged <= bodies(leader)


def test_nonsense_in_etcd_ends_no_process_and_is_named(members: Members) -> None:
    number = members.leader()
    leader = members.running[number]
    wait_until(lambda: send(leader.broker_addr, b"both") == [0], "both have it")
    pid, client = pid_of(leader, "failover"), members.etcd.client()
    state = next(key for key in client.below(KEYS.prefix) if key.name == KEYS.state)
    assert client.transact([], [Put(f"{KEYS.prefix}members/notes", b"do not touch")])
    wait_until(lambda: "a key in etcd is passed over" in leader.tail(), "it is named")
    assert send(leader.broker_addr, b"passed over") == [0]
    crowd = [*range(1, 40)]
    for value in (json.dumps({"epoch": 1, "master": number, "inSync": crowd,
                              "stores": {str(one): "s" for one in crowd}}).encode(), b"[" * 99_999):
        assert client.transact([], [Put(KEYS.state, value)])
        wait_until(lambda: send(leader.broker_addr, b"no longer") == [11], "the lease has run out")
    assert "what etcd holds cannot be used" in leader.tail()
    assert client.transact([], [Put(KEYS.state, state.value)])
    wait_until(lambda: has_acknowledged(leader.broker_addr, b"again"), "it leads again")
    assert pid_of(leader, "failover") == pid
    client.close()


def test_what_ha_master_goes_by_is_read_before_what_follows_from_it() -> None:
    """Who comes in is to have what was acknowledged before ha-master waited for it (FO3)."""
    read: list[str] = []

    class Noted:
        role = (LEADERSHIP_LEADS, 1)

        def __getattr__(self, name: str) -> object:
            read.append(name)
            return {"applied": True, "reports": {}, "replicated": 0, "begun": 0, "told": 0,
                    "appends_taken": bool}[name]

        def log_state(self) -> dict[str, int]:
            return {"published": 0, "flushed": 0, "refusal": 0, "unreadable": 0, "first": 0}

    process = Failover.__new__(Failover)
    process._pen = process._gate = process._segment = Noted()        # type: ignore[assignment]
    process._settings = SimpleNamespace(store_root=Path("/nowhere"), failover=SimpleNamespace(
        in_sync_timeout_ms=3000))                                    # type: ignore[assignment]
    process._troubles, process._storing, process._producers = {}, Storing(), []
    process._missed_from, process._ages_looked_ms = 0, 1 << 62
    process._here()
    assert read.index("applied") < min(read.index("replicated"), read.index("reports"))


def test_an_etcd_that_tells_keys_and_grants_no_lease_is_silent_once(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Half:
        grants = False

        def below(self, _prefix: str) -> list[Key]:
            return []

        def grant(self, _seconds: int) -> int:
            if not self.grants:
                raise EtcdError("no lease")
            return 7

    monkeypatch.setattr(failover, "AFTER_LOSS_S", 0.0)
    monkeypatch.setattr(failover, "client", lambda _settings: Half())
    settings = load(None, {}, [f"store.path={tmp_path}"])
    segment = Segment.create("/mqcore-test-failover", **SMALL, kind="memfd")
    segment.make_bells()
    process = Failover(settings, segment)
    process.start()
    for _ in range(20):
        assert process._ask(Look())
        assert not process._ask(Grant())
    assert caplog.text.count("etcd does not answer") == 1
    assert "answers again" not in caplog.text
    Half.grants = True
    assert process._ask(Look())
    assert process._ask(Grant())
    assert caplog.text.count("etcd answers again") == 1


def test_epochs_that_cannot_be_read_are_said_once(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / epochs.FILE_NAME).write_bytes(b"none")
    process = Failover.__new__(Failover)
    process._settings = SimpleNamespace(store_root=tmp_path)         # type: ignore[assignment]
    process._epoch, process._epochs_stamp, process._troubles = 3, (0, 0), {}
    for _ in range(5):
        assert process._last_epoch() == 3
        process._complain("part", "")
    assert caplog.text.count("the epochs of the log cannot be read") == 1


def test_an_orderly_stop_lets_the_other_one_lead_at_once(members: Members) -> None:
    leader = members.leader()
    members.running[leader].stop()
    stopped = time.monotonic()
    other = members.running[3 - leader].broker_addr
    wait_until(lambda: send(other, b"after the stop")[0] in STORED, "the other one leads")
    took = time.monotonic() - stopped
    print(f"writable {took:.2f} s after an orderly stop")
    assert took < LEASE_S


@pytest.mark.slow
def test_tools_say_who_leads_for_how_long_and_who_has_what(members: Members) -> None:
    leader = members.leader()
    follower = members.running[3 - leader]

    def told() -> dict[int, dict[str, str]]:
        rows = json.loads(mqcore("replication", "status", NAME, "--json", "-n",
                                 members.names.namesrv_addr).stdout)
        return {row["brokerId"]: row["election"] for row in rows}

    # the other one looks at etcd later than who leads
    wait_until(lambda: {row["failoverInSync"] for row in told().values()} == {"1,2"}, "the set")
    by_id = told()
    assert by_id.keys() == {0, 3 - leader}
    assert {row["failoverLeader"] for row in by_id.values()} == {str(leader)}
    assert 0 < int(by_id[0]["failoverLeaseMillis"]) <= 1000 * LEASE_S
    assert by_id[3 - leader]["failoverLeaseMillis"] == "0"
    wanted = re.compile(rf"elected: {leader} in epoch 1, set 1,2, lease [01]\.[0-9] s")
    wait_until(lambda: wanted.search(mqcore("replication", "status", NAME, "-n",
                                            members.names.namesrv_addr).stdout), "its line")
    local = mqcore("status").stdout
    assert f"role leads  epoch 1  leader {leader}  in_sync 1,2  waited_for {3 - leader}" in local
    assert f"role follows  epoch 1  leader {leader}  in_sync 1,2  waited_for -" in local
    for command in ("promote", "demote"):
        refused = mqcore("replication", command, follower.store)
        assert refused.returncode == 1
        assert "takes part in elections (failover.enable)" in refused.stderr


def test_a_member_that_takes_no_part_knows_nobody_who_leads() -> None:
    """Another one has its id, say: no broker has the id 0 there."""
    assert election_words({"election": {"failoverLeader": "0", "failoverEpoch": "1",
                                        "failoverInSync": "1,2"}}) == (
        ", elected: nobody that it knows of in epoch 1, set 1,2, lease none")


@pytest.mark.parametrize(("settings", "said"), [
    ({"failover.etcd": ["https://127.0.0.1:1"], "failover.etcd_ca_file": "/nowhere"},
     'failover.etcd_ca_file = "/nowhere" cannot be used'),
    ({"failover.etcd_user": "u", "failover.etcd_password_file": "/nowhere"},
     'failover.etcd_password_file = "/nowhere" cannot be used'),
])
def test_a_file_of_etcds_that_cannot_be_used_stops_the_start(
        tmp_path: Path, settings: dict[str, object], said: str) -> None:
    with pytest.raises(MqcoreError, match=said), mqcore_up(
            tmp_path, {**settings_of(1), **settings}, namesrv_addr="127.0.0.1:1"):
        raise AssertionError("it has started")
