"""
Who is elected leads in place; who lost the election follows, and cuts by itself what it alone has.

The words of the election are written by the tests (elected.py): there is no etcd.
"""
from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.replication import epochs
from mqcore.replication.epochs import State
from mqcore.store import restored
from mqcore.store.verify.report import DAMAGE
from mqcore.store.verify.store import verify
from mqcore.wire.command import Command, encode, request
from mqcore.wire.properties import encode_properties
from mqcore.wire.records import decode_records
from tests.replication.elected import TOPIC, Member, member_up, send, two
from tests.replication.pairs import addresses
from tests.replication.stores import log_of
from tests.support.mounted import mounted
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv
from tests.support.waiting import wait_until
from tests.transactions.producer import COMMIT, Producer
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields, topic_fields
from tests.workers.processes import by_role, pid_of
from tests.workers.test_full_disk import fill

CHANGE_S_MAX = 2.0               # some 50 ms on a machine of one's own
STORED = {0, 11, 12}
DISK_BYTES = 96 << 20

Set = tuple[MqcoreProcess, Member, Member]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Set]:
    with two(tmp_path) as found:
        yield found


def bodies(address: str, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    """All messages of a queue that whoever answers has."""
    found: list[bytes] = []
    with Peer(address) as peer:
        while True:
            answer = peer.ask(11, pull_fields(topic, queue_id=queue_id, offset=len(found)))
            if answer.code != 0:
                return found
            found += [record.body for record in decode_records(answer.body)]


def same_log(one: Member, other: Member) -> bool:
    return log_of(one.broker.store) == log_of(other.broker.store)


def last_epoch(member: Member) -> tuple[int, State]:
    standing = epochs.read(member.broker.store)
    assert standing is not None
    return standing.history.last.number, standing.state


def test_a_follower_that_is_elected_leads_in_place(pair: Set) -> None:
    names, one, other = pair
    assert send(one.address, *(b"kept %d" % number for number in range(20))) == [0] * 20
    assert send(other.address, b"not here") == [14]
    before = by_role(other.broker)
    one.broker.kill()
    took = other.lead(2)
    print(f"{1000 * took:.0f} ms from the election to the first send")
    assert took < CHANGE_S_MAX
    after = by_role(other.broker)
    for role in ("writer", "dispatcher", "pull-serving-0", "coordinator", "supervisor"):
        assert after[role] == before[role], role
    wait_until(lambda: {"ha-master", "scheduler", "transaction-check"} <= set(
        by_role(other.broker)), "the processes of who leads")
    assert "ha-slave" not in by_role(other.broker)
    wait_until(lambda: addresses(names).get("0") == other.address, "clients find it")
    assert "2" not in addresses(names)
    wait_until(lambda: b"first of 2" in bodies(other.address), "its first message")
    kept = [body for body in bodies(other.address) if body.startswith(b"kept")]
    assert kept == [b"kept %d" % number for number in range(20)]
    assert last_epoch(other) == (2, State.LEADS)
    assert "this broker is the master now" in other.broker.tail()


@pytest.mark.slow
def test_who_lost_the_election_follows_also_where_its_disk_takes_nothing(tmp_path: Path) -> None:
    """Neither its tables nor its epochs can be written: the next run does without."""
    with (mounted(tmp_path / "one" / "store", f"size={DISK_BYTES}") as disk,
          two(tmp_path) as (_, one, other)):
        assert send(one.address, b"both") == [0]
        filler = fill(disk)
        with Peer(one.address) as peer:
            peer.ask(17, topic_fields("Unsaved", 1))
        one.lose()
        assert send(one.address, b"to one who follows") == [14]
        os.unlink(filler)
        other.lead(2)
        one.hear_of(other, 2)
        wait_until(lambda: send(other.address, b"new") == [0], "both have the next")


@pytest.mark.slow
def test_who_lost_the_election_follows_and_cuts_what_it_alone_has(pair: Set) -> None:
    names, one, other = pair
    assert send(one.address, *(b"both %d" % number for number in range(5))) == [0] * 5
    os.kill(pid_of(other.broker, "ha-slave"), signal.SIGSTOP)
    assert set(send(one.address, *(b"alone %d" % number for number in range(7)))) <= {11, 12}
    other.lead(2)                    # its ha-slave does not end: it is killed
    one.lose()
    assert send(one.address, b"to one who follows") == [14]
    one.follow(other, 2)
    wait_until(lambda: send(other.address, b"new") == [0], "both have the next")
    wait_until(lambda: same_log(one, other), "the same log")
    wait_until(lambda: addresses(names) == {"0": other.address, "1": one.address}, "who is who")
    assert not [body for body in bodies(one.address) if body.startswith(b"alone")]
    (told,) = (one.broker.store / "overtaken").glob("*.json")
    kept = json.loads(told.read_text())
    assert (kept["messages"], kept["topics"]) == (7, {TOPIC: 7})
    side = told.with_suffix(".log").read_bytes()
    assert len(side) == kept["end"] - kept["position"]
    assert all(b"alone %d" % number in side for number in range(7))
    assert "7 messages, log positions" in one.broker.tail()
    after_cut = one.broker.output.read_text().rpartition("7 messages, log positions")[2]
    assert re.findall(r"(\d+) records checked", after_cut) == ["0"]      # it was closed in order
    assert last_epoch(one) == (2, State.FOLLOWS)
    one.wake_election()
    one.broker.stop()
    assert not [found for found in verify(one.broker.store).findings if found.severity == DAMAGE]


def test_what_an_operator_said_before_there_was_an_election_keeps_nobody_from_following(
        tmp_path: Path) -> None:
    """Told to lead, and never started since; a restored store, which the election has settled."""
    for name in ("one", "two"):
        (tmp_path / name / "store").mkdir(parents=True)
        restored.mark(tmp_path / name / "store")
    with two(tmp_path) as (names, one, other):
        assert not restored.is_marked(one.broker.store)
        assert not restored.is_marked(other.broker.store)
        other.wake_election()
        other.broker.stop()
        standing = epochs.read(other.broker.store)
        assert standing is not None
        epochs.write(other.broker.store, epochs.promoted(standing, synchronous=True))
        with member_up(tmp_path / "two", 2, names.namesrv_addr) as again:
            again.hear_of(one, 1)
            wait_until(lambda: send(one.address, b"both") == [0], "it follows")
            assert last_epoch(again) == (1, State.FOLLOWS)


@pytest.mark.slow
def test_nobody_of_a_set_shows_what_its_leader_alone_has(tmp_path: Path) -> None:
    """
    Without a word in its settings: a leader, who led, before it cuts, and who is elected with it,
    until others have it: then who asked for it, as the former leader's reader may, is not moved.
    """

    def shown(member: Member, beginning: bytes) -> int:
        return sum(body.startswith(beginning) for body in bodies(member.address))

    with two(tmp_path, {"replication.read_replicated_only": "auto"}) as (_, one, other):
        assert send(one.address, *(b"all %d" % number for number in range(5))) == [0] * 5
        wait_until(lambda: shown(one, b"all") == shown(other, b"all") == 5, "what both have")
        stopped = pid_of(other.broker, "ha-slave")
        os.kill(stopped, signal.SIGSTOP)
        assert set(send(one.address, *(b"alone %d" % number for number in range(7)))) <= {11, 12}
        assert (shown(one, b"all"), shown(one, b"alone")) == (5, 0)
        one.lose()
        assert (shown(one, b"all"), shown(one, b"alone")) == (5, 0)
        os.kill(stopped, signal.SIGCONT)
        one.lead(2)
        assert (shown(one, b"all"), shown(one, b"alone")) == (5, 0)
        with Peer(one.address) as reader:
            asked = request(11, pull_fields(TOPIC, offset=len(bodies(one.address)) + 3, sys_flag=6,
                                            suspend_ms=60_000))
            reader.send(encode(asked))
            other.hear_of(one, 2)
            wait_until(lambda: shown(one, b"alone") == shown(other, b"alone") == 7,
                       "what both have by then")
            found = decode_records(reader.answer_to(asked.opaque).body)
        assert [one.body for one in found][:4] == [b"alone %d" % number for number in range(3, 7)]


def ask(address: str, code: int, fields: dict[str, str | None]) -> Command:
    with Peer(address) as peer:
        return peer.ask(code, fields)


def test_delays_transactions_and_offsets_go_on_at_the_new_leader(tmp_path: Path) -> None:
    levels: dict[str, object] = {
        "broker.message_delay_levels": "1s 4s", "broker.transaction_timeout_ms": 500,
        "broker.transaction_check_interval_ms": 500, "replication.metadata_interval_ms": 200}
    with two(tmp_path, levels) as (_, one, other):
        at = one.address
        assert ask(at, 17, topic_fields("Later", 1)).code == 0
        with Producer(at, "undecided") as producer:
            producer.prepare("Later", b"undecided")
            assert producer.end(producer.prepare("Later", b"decided"), COMMIT).code == 0
        assert later(at, 1, b"early 0", b"early 1") == [0, 0]
        wait_until(lambda: set(bodies(at, "Later")) == {b"decided", b"early 0", b"early 1"},
                   "those that are due")
        assert later(at, 2, *(b"late %d" % number for number in range(5))) == [0] * 5
        assert ask(at, 15, {"consumerGroup": "Group", "topic": TOPIC, "queueId": "0",
                            "commitOffset": "1"}).code == 0
        offset: dict[str, str | None] = {"consumerGroup": "Group", "topic": TOPIC, "queueId": "0"}
        wait_until(lambda: (ask(other.address, 14, offset).ext or {}).get("offset") == "1",
                   "the offset is known at the other one")
        one.broker.kill()
        at = other.address
        other.lead(2)
        with Producer(at, "undecided") as producer:
            (asked,) = producer.wait_asked(1, b"undecided")
            assert producer.end(asked, COMMIT).code in STORED
        wait_until(lambda: b"late 4" in bodies(at, "Later"), "what came due")
        assert set(later(at, 1, b"last")) <= STORED
        wait_until(lambda: b"last" in bodies(at, "Later"), "the scheduler goes on")
        assert Counter(bodies(at, "Later")) == Counter(
            [b"undecided", b"decided", b"early 0", b"early 1", b"last",
             *(b"late %d" % number for number in range(5))])
        assert (ask(at, 14, offset).ext or {}).get("offset") == "1"
        assert ask(at, 17, topic_fields("New", 1)).code == 0


def later(address: str, level: int, *found: bytes) -> list[int]:
    """Send messages with a delay; the codes of the answers."""
    with Peer(address) as peer:
        return [peer.ask(310, send_fields(
            "Later", properties=encode_properties({"DELAY": str(level)})), body).code
            for body in found]


def test_a_leader_that_is_cut_off_does_not_hide_the_next_one(pair: Set) -> None:
    """Its processes stand still, and so its connections to name servers stay."""
    names, one, other = pair
    assert addresses(names)["0"] == one.address
    family = one.broker.family()
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    try:
        other.lead(2)
        wait_until(lambda: addresses(names)["0"] == other.address, "clients find the new one",
                   timeout_s=5)
        one.say(lambda pen: pen.hold_until(0))       # while it stood still its lease has ended
    finally:
        for pid in family:
            os.kill(pid, signal.SIGCONT)
    with Peer(one.address) as peer:                  # a topic is told to name servers at once
        peer.ask(17, topic_fields("Late", 1))
    assert addresses(names)["0"] == other.address
    one.lose()
    wait_until(lambda: addresses(names) == {"0": other.address, "1": one.address},
               "name servers know it as one that follows")


class Sender:
    """Sends one message after the other to a broker until it is left; what became of them."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stopping = False
        self._thread = threading.Thread(target=self._run)
        self.codes: Counter[int] = Counter()
        self.stored: list[bytes] = []

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stopping:
            with contextlib.suppress(OSError, Closed), Peer(self._address) as peer:
                while not self._stopping:
                    number += 1
                    body = b"number %06d" % number
                    code = peer.ask(310, send_fields(TOPIC), body).code
                    self.codes[code] += 1
                    if code in STORED:
                        self.stored.append(body)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["writer", "dispatcher", "coordinator", "pull-serving-0",
                                  "ha-slave"])
@pytest.mark.parametrize("late", [False, True], ids=["before", "behind"])
def test_whoever_dies_at_the_change_it_leads_and_loses_nothing(
        alone: Member, role: str, late: bool) -> None:
    epoch = last_epoch(alone)[0] + 1 if epochs.read(alone.broker.store) else 1
    with Sender(alone.address) as sender:
        wait_until(lambda: sender.codes, "somebody who is refused")
        if not late:
            os.kill(pid_of(alone.broker, role), signal.SIGKILL)
        alone.elect(epoch)
        if late:
            victims = by_role(alone.broker)
            if role in victims:                      # ha-slave may have ended in order by now
                os.kill(victims[role], signal.SIGKILL)
        wait_until(lambda: len(sender.stored) >= 20, "it takes messages")
        wait_until(lambda: {"ha-master", "scheduler", "transaction-check", "coordinator"} <= set(
            by_role(alone.broker)), "the processes of who leads")
    assert set(sender.codes) <= {14, *STORED, 1}     # 1: the writer's successor cannot know
    wait_until(lambda: set(sender.stored) <= set(bodies(alone.address)), "what it took")
    assert last_epoch(alone) == (epoch, State.LEADS)
    alone.lose()
    assert set(sender.stored) <= set(bodies(alone.address))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """One without others, for all of the tests of this file: each leads in an epoch of its own."""
    folder = tmp_path_factory.mktemp("alone")
    with mqcore_namesrv(folder / "names") as names, member_up(
            folder / "one", 1, names.namesrv_addr) as one:
        yield one
