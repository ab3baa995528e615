"""
The machine's clock is set an hour forward and back while messages wait: nothing that waits is
early, late, lost or doubled.

How long something waits is counted on the steady clock. A clock that is set says nothing about it.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import pytest

from mqcore.wire.codes import RequestCode
from mqcore.wire.records import decode_records
from tests.attacks.honest import Honest
from tests.support.failing_disk import compiler
from tests.support.mqcore_process import mqcore_up
from tests.support.stepping_clock import SteppingClock
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")

HOUR_S = 3600.0
DELAYS_S = {1: 1, 2: 5, 3: 10}           # by level
LATE_S = 8.0                             # what a busy machine may take on top
EARLY_S = 0.002                          # of the test's own clock, read before the send
STAYED_S = 11.0                          # a step forward is believed after ten seconds
QUESTION = 39
PREPARED = 4                             # sysFlag of a half message
TIMEOUT_MS = 3_000
STORE_TICK_S = 0.02                      # the store clock's next millisecond, also when it is slow


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> SteppingClock:
    """One for all: so all their brokers have one environment."""
    return SteppingClock.create(tmp_path_factory.mktemp("clock"))


@pytest.fixture
def clock(right: SteppingClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppingClock]:
    right.ahead_s = 0
    with right.worn(monkeypatch):
        yield right


@dataclass
class Delayed:
    """Sends delayed messages and notes when they come: topic `delayed`, body = the number."""

    address: str
    sent: dict[int, tuple[int, float]] = field(default_factory=dict)     # number -> (level, when)
    came: list[tuple[int, float]] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def make_topic(self) -> None:
        with Peer(self.address) as peer:
            answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("delayed", 1))
            assert answer.code == 0, answer.remark

    def send_all(self) -> None:
        """One message at each level."""
        with Peer(self.address) as peer:
            for level in DELAYS_S:
                number = len(self.sent)
                self.sent[number] = (level, time.monotonic())
                answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(
                    "delayed", properties=f"DELAY\x01{level}\x02"), b"%d" % number)
                assert answer.code == 0, (answer.code, answer.remark)

    def receive(self, seconds: float) -> None:
        """Until all that was sent has come, or the time is over."""
        deadline = time.monotonic() + seconds
        with Peer(self.address) as peer:
            while len(self.came) < len(self.sent) and time.monotonic() < deadline:
                answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(
                    "delayed", sys_flag=6, suspend_ms=200, offset=len(self.came)))
                if answer.code == 0:
                    now = time.monotonic()
                    self.came += [(int(one.body), now) for one in decode_records(answer.body)]

    def check(self) -> None:
        assert sorted(number for number, _ in self.came) == sorted(self.sent)
        for number, came in self.came:
            level, sent = self.sent[number]
            waited = came - sent
            assert DELAYS_S[level] - EARLY_S <= waited <= DELAYS_S[level] + LATE_S, (
                f"message {number}, {DELAYS_S[level]} s of delay, came after {waited:.2f} s")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_delayed_messages_keep_their_time_through_steps_both_ways(
    tmp_path: Path, clock: SteppingClock,
) -> None:
    with mqcore_up(tmp_path / "broker") as broker:
        delayed = Delayed(broker.broker_addr)
        delayed.make_topic()
        with Honest(broker.broker_addr, rest=5.0) as honest:
            calm = honest.measure()
            with honest.span() as attacked:
                for ahead_s, seconds in (
                        (0, 1.0), (HOUR_S, 1.0), (0, 1.0), (-HOUR_S, 2.0), (HOUR_S, STAYED_S),
                        (0, 2.0), (HOUR_S, 1.0), (-HOUR_S, 2.0), (0, 1.0)):
                    clock.ahead_s = ahead_s
                    delayed.send_all()
                    delayed.receive(seconds)
                    delayed.send_all()
                delayed.receive(DELAYS_S[3] + LATE_S)
            delayed.check()
            honest.assert_served(attacked, calm)
            honest.caught_up()
        honest.check()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ahead_s", [-HOUR_S, 0.0])
def test_what_waits_over_a_restart_with_the_clock_set_back_is_not_early_and_not_lost(
    tmp_path: Path, clock: SteppingClock, ahead_s: float,
) -> None:
    clock.ahead_s = HOUR_S + ahead_s
    with mqcore_up(tmp_path / "broker") as broker:
        delayed = Delayed(broker.broker_addr)
        delayed.make_topic()
        delayed.send_all()
    clock.ahead_s = ahead_s
    began = time.monotonic()
    with mqcore_up(tmp_path / "broker") as broker:
        delayed.address = broker.broker_addr
        delayed.send_all()
        delayed.receive(time.monotonic() - began + DELAYS_S[3] + LATE_S)
        down_s = time.monotonic() - began
    assert sorted(number for number, _ in delayed.came) == list(range(6))
    for number, came in delayed.came:
        level, sent = delayed.sent[number]
        assert DELAYS_S[level] - EARLY_S <= came - sent <= DELAYS_S[level] + LATE_S + down_s


def passed(when: float) -> bool:
    return time.monotonic() >= when


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_an_open_transaction_is_asked_about_in_its_time(
    tmp_path: Path, clock: SteppingClock, ahead_s: float,
) -> None:
    with mqcore_up(tmp_path / "broker", {
        "broker.transaction_timeout_ms": TIMEOUT_MS, "broker.transaction_check_interval_ms": 1000,
    }) as broker, Peer(broker.broker_addr) as peer:
        assert peer.ask(RequestCode.HEART_BEAT, {}, msgspec.json.encode({
            "clientID": "producer@1", "producerDataSet": [{"groupName": "PG"}],
            "consumerDataSet": []})).code == 0
        assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("orders", 1)).code == 0
        sent = []
        for step in (0.0, ahead_s, 0.0):
            clock.ahead_s = step
            # the writer's turn that is under way has looked at the clock: the next one is a new one
            assert peer.ask(
                RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"before").code == 0
            time_ms = time.time_ns() // 1_000_000 + int(1000 * step)      # the producer's as well
            sent.append(time.monotonic())
            assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(
                "orders", sys_flag=PREPARED, born_ms=time_ms,
                properties=f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01K{len(sent)}\x02"),
                b"half").code == 0
            # a store time says which side of a step it is on if the step is in another millisecond
            wait_until(partial(passed, time.monotonic() + STORE_TICK_S), "another store time")
        asked: dict[str, float] = {}
        while len(asked) < len(sent):
            question = peer.receive(TIMEOUT_MS / 1000 + LATE_S)
            if question.code == QUESTION:
                key = (question.ext or {}).get("msgId") or ""
                asked.setdefault(key, time.monotonic())
        for number, when in enumerate(sent, 1):
            waited = asked[f"K{number}"] - when
            assert TIMEOUT_MS / 1000 - EARLY_S <= waited <= TIMEOUT_MS / 1000 + LATE_S, waited


@pytest.mark.timeout(300)
def test_locks_and_members_outlive_a_step_of_the_clock(
    tmp_path: Path, clock: SteppingClock,
) -> None:
    def lock(peer: Peer, client: str) -> list[object]:
        answer = peer.ask(RequestCode.LOCK_BATCH_MQ, {}, msgspec.json.encode({
            "clientId": client, "consumerGroup": "CG",
            "mqSet": [{"brokerName": "b", "queueId": 0, "topic": "T"}]}))
        assert answer.code == 0
        return list(msgspec.json.decode(answer.body)["lockOKMQSet"])

    with mqcore_up(tmp_path / "broker") as broker, Peer(broker.broker_addr) as peer:
        assert peer.ask(RequestCode.HEART_BEAT, {}, msgspec.json.encode({
            "clientID": "one", "producerDataSet": [], "consumerDataSet": [{
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
                "groupName": "CG", "messageModel": "CLUSTERING", "unitMode": False,
                "subscriptionDataSet": []}]})).code == 0
        assert len(lock(peer, "one")) == 1
        for ahead_s in (HOUR_S, -HOUR_S, 0.0):
            clock.ahead_s = ahead_s
            assert lock(peer, "two") == []
            assert peer.silent_for(1.5)                   # members are looked at now and then
            members = peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "CG"})
            assert msgspec.json.decode(members.body)["consumerIdList"] == ["one"]
            assert len(lock(peer, "one")) == 1
