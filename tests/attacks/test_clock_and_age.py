"""
The machine's clock goes days or years ahead while messages are a minute old: whatever process ends
and is started again, no message is deleted for its age, delivered early or given up.
"""
from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from mqcore.wire.codes import RequestCode
from tests.support.failing_disk import compiler
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stepping_clock import SteppingClock
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields
from tests.workers.processes import kill

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")

DAY_S = 86_400.0
BODY = bytes(200_000)
COUNT = 20
DELAY_S = 10                             # of level 3
EARLY_S = 0.002
SETTINGS: dict[str, object] = {
    "store.segment_size_bytes": 1 << 20, "store.message_size_max_bytes": 1 << 18,
    "store.clean_interval_ms": 100, "store.clean_pause_ms": 1,
    "store.delete_when_hours": list(range(24))}


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppingClock]:
    made = SteppingClock.create(tmp_path / "clock")
    with made.worn(monkeypatch):
        yield made


def send(broker: MqcoreProcess, body: bytes, properties: str = "") -> None:
    with Peer(broker.broker_addr) as peer:
        answer = peer.ask(
            RequestCode.SEND_MESSAGE_V2, send_fields("T", properties=properties), body)
    assert answer.code == 0, answer.remark


def with_topic(broker: MqcoreProcess) -> MqcoreProcess:
    with Peer(broker.broker_addr) as peer:
        assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("T", 1)).code == 0
    return broker


def segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def is_gone(path: Path) -> bool:
    return not path.exists()


def check_ages(broker: MqcoreProcess) -> None:
    """A segment goes when it is four days old, so there are passes, and the others stay."""
    before = segments(broker.store)
    assert len(before) >= 4
    for oldest in before[:2]:
        at = time.time() - 4 * DAY_S
        os.utime(oldest, (at, at))
        wait_until(partial(is_gone, oldest), "the deletion of an old segment")
    assert [path for path in segments(broker.store) if path in before] == before[2:]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ahead_s", [10 * DAY_S, -10 * DAY_S, 10_000 * DAY_S])
@pytest.mark.parametrize("ends", ["none", "writer", "broker", "all"])
def test_segments_of_a_minute_stay_whatever_the_clock_says(
        tmp_path: Path, clock: SteppingClock, ends: str, ahead_s: float) -> None:
    with mqcore_up(tmp_path / "broker", SETTINGS) as broker:
        with_topic(broker)
        for _ in range(COUNT):
            send(broker, BODY)
        wait_until((broker.store / "clock").exists, "the kept clock")
        clock.ahead_s = ahead_s
        if ends == "writer":
            kill(broker, "writer")
        if ends == "all":
            broker.kill()
        if ends in ("none", "writer"):
            check_ages(broker)
    if ends in ("broker", "all"):
        with mqcore_up(tmp_path / "broker", SETTINGS) as broker:
            check_ages(broker)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ahead_s", [10 * DAY_S, -10 * DAY_S])
def test_a_delayed_message_keeps_its_time_over_a_restart(
        tmp_path: Path, clock: SteppingClock, ahead_s: float) -> None:
    with mqcore_up(tmp_path / "broker", SETTINGS) as broker:
        with_topic(broker)
        sent = time.monotonic()
        send(broker, b"late", "DELAY\x013\x02")
    clock.ahead_s = ahead_s
    with mqcore_up(tmp_path / "broker", SETTINGS) as broker, Peer(broker.broker_addr) as peer:
        came = 0.0
        while not came:
            answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(
                "T", sys_flag=6, suspend_ms=500, offset=0))
            if answer.code == 0:
                came = time.monotonic()
    assert DELAY_S - EARLY_S <= came - sent <= DELAY_S + 30


@pytest.mark.timeout(300)
def test_a_half_message_of_an_honest_producer_is_asked_about_and_not_given_up(
        tmp_path: Path, clock: SteppingClock) -> None:
    with mqcore_up(tmp_path / "broker", {
        "broker.transaction_timeout_ms": 1_000, "broker.transaction_check_interval_ms": 500,
    }) as broker, Peer(with_topic(broker).broker_addr) as peer:
        assert peer.ask(RequestCode.HEART_BEAT, {}, msgspec.json.encode({
            "clientID": "producer@1", "producerDataSet": [{"groupName": "PG"}],
            "consumerDataSet": []})).code == 0
        clock.ahead_s = 10 * DAY_S                # longer than messages are kept
        assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(
            "T", sys_flag=4, born_ms=time.time_ns() // 1_000_000,
            properties="TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01K\x02"), b"half").code == 0
        assert peer.receive(30).code == 39        # CHECK_TRANSACTION_STATE
