"""
A stop while the disk takes seconds for a write: what was acknowledged is waited for. Where that is
cut short, the broker says how much is lost and does not end with 0.
"""
from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from tests.attacks.after_a_kill import assert_all_there, make_topic, send_honest
from tests.support.failing_disk import FailingDisk, compiler
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields, topic_fields

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")

TOPIC = "honest"
WRITE_MS = {"transient-pool": 3_000, "async": 3_000, "sync": 700}      # sync has 17 of them
STOP_S = 90
UNFINISHED = 5


def stopped(broker: MqcoreProcess, *, twice: bool = False) -> int:
    """The exit status after SIGTERM; twice: and a second one, when the broker says it waits."""
    broker.process.send_signal(signal.SIGTERM)
    if twice:
        wait_until(lambda: "another signal ends it" in broker.output.read_text(), "the wait")
        broker.process.send_signal(signal.SIGTERM)
    return broker.process.wait(STOP_S)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("flush", ["transient-pool", "async", "sync"])
def test_a_stop_waits_for_a_slow_disk_and_loses_nothing(
    tmp_path: Path, disk: FailingDisk, flush: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mqcore_up(tmp_path / "broker", {"store.flush": flush}) as broker:
        with Peer(broker.broker_addr) as peer:
            make_topic(peer, TOPIC)
            promised = send_honest(peer, TOPIC, 50)
            if flush == "transient-pool":        # these are acknowledged before a write begins
                disk.arm(at=0, error=WRITE_MS[flush], kind="slow")
                promised |= send_honest(peer, TOPIC, 300)
            else:
                disk.arm(at=0, error=WRITE_MS[flush], kind="slow")
        assert stopped(broker) == 0
        said = broker.output.read_text()
    disk.disarm()
    assert "is killed" not in said, said
    assert "lost" not in said, said
    if flush == "transient-pool":
        assert "stopping" in said.partition("stopping on SIGTERM")[2], said
    assert_all_there(tmp_path / "broker", flush, TOPIC, promised)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["second signal", "time-out"])
def test_a_stop_that_loses_something_says_how_much_and_ends_with_an_error(
    tmp_path: Path, disk: FailingDisk, how: str,
) -> None:
    with mqcore_up(tmp_path / "broker", {
        "store.flush": "transient-pool",
        "processes.stop_timeout_ms": 2_000 if how == "time-out" else 60_000,
    }) as broker:
        with Peer(broker.broker_addr) as peer:
            make_topic(peer, TOPIC)
            disk.arm(at=0, error=60_000, kind="slow")
            send_honest(peer, TOPIC, 100)
        began = time.monotonic()
        assert stopped(broker, twice=how == "second signal") == UNFINISHED
        assert time.monotonic() - began < STOP_S / 2
        said = broker.output.read_text()
    assert re.search(r"[1-9]\d* bytes of acknowledged messages are lost", said), said


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_idle_stop_with_thousands_of_queues_is_quick_and_whole(tmp_path: Path) -> None:
    """And so is the start after it: nothing has to be made again."""
    queues = 4_000
    with mqcore_up(tmp_path, {"store.queue_file_entry_count": 1000}) as broker:
        with Peer(broker.broker_addr) as peer:
            for number in range(queues // 1000):
                answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC,
                                  topic_fields(f"many-{number}", 1000))
                assert answer.code == 0, answer.remark
            for number in range(queues):
                answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(
                    f"many-{number // 1000}", queue_id=number % 1000), b"x")
                assert answer.code == 0, answer.remark
        began = time.monotonic()
        assert stopped(broker) == 0
        took = time.monotonic() - began
        said = broker.output.read_text()
    assert "is killed" not in said
    assert not (tmp_path / "store" / "abort").exists()
    began = time.monotonic()
    with mqcore_up(tmp_path, {"store.queue_file_entry_count": 1000}):
        start_s = time.monotonic() - began
    print(f"stop {took:.2f} s, start {start_s:.2f} s with {queues} queues")
    assert start_s < 20
