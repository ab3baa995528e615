"""
Writes of the commit log fail for a while (EIO): nothing acknowledged is lost, sends are refused
only while it lasts, and a single failure is not even seen. A failed flush is another matter: it is
final.
"""
from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from mqcore.wire.records import decode_records
from tests.attacks.after_a_kill import (
    assert_all_there,
    committed,
    make_topic,
    send_honest,
)
from tests.attacks.honest import Honest
from tests.support.failing_disk import FailingDisk, compiler
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")

TOPIC = "honest"
NOT_AVAILABLE = 14
NOT_KNOWN = 1
WAIT_S = 60.0


def until_answered(peer: Peer, code: int, what: str) -> None:
    """Send until a send is answered so."""
    fields, body = send_fields("other"), what.encode()
    wait_until(lambda: peer.ask(RequestCode.SEND_MESSAGE_V2, fields, body).code == code, what)


def until_said(broker: MqcoreProcess, what: str) -> None:
    wait_until(lambda: what in broker.output.read_text(), what, WAIT_S)


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync", "transient-pool"])
@pytest.mark.parametrize("error", [errno.EIO, errno.EAGAIN])
def test_writes_that_fail_for_a_while_are_refused_for_that_while_and_lose_nothing(
    tmp_path: Path, disk: FailingDisk, flush: str, error: int,
) -> None:
    with mqcore_up(tmp_path / "broker", {"store.flush": flush}) as broker:
        with Peer(broker.broker_addr) as peer:
            make_topic(peer, TOPIC)
            make_topic(peer, "other")
            promised = send_honest(peer, TOPIC, 50)
            for _ in range(3):
                disk.arm(at=0, error=error, kind="writes")
                if flush == "transient-pool" and error == errno.EAGAIN:
                    send_honest(peer, "other", 5)          # there it means: the flush is behind
                else:
                    until_answered(peer, NOT_AVAILABLE, "while writes fail")
                    until_said(broker, "a write has failed and is tried again")
                disk.disarm()
                until_answered(peer, 0, "when they work again")
                promised |= send_honest(peer, TOPIC, 50)
        if not (flush == "transient-pool" and error == errno.EAGAIN):
            until_said(broker, "writes are taken again")
        if flush == "transient-pool":
            broker.stop()
        else:
            broker.kill()
    assert_all_there(tmp_path / "broker", flush, TOPIC, promised)


@pytest.mark.parametrize("kind", ["once", "torn"])
def test_one_failed_write_is_tried_again_and_nobody_sees_it(
    tmp_path: Path, disk: FailingDisk, kind: str,
) -> None:
    with mqcore_up(tmp_path / "broker") as broker:
        with Honest(broker.broker_addr) as honest:
            honest.measure(50)
            deadline = time.monotonic() + WAIT_S
            while not disk.fired:
                disk.arm(at=0, error=errno.EIO, kind=kind)
                before = len(honest.acknowledged)
                honest.until(lambda least=before + 5: len(honest.acknowledged) > least, "sends")
                assert time.monotonic() < deadline
            honest.measure(50)
            honest.caught_up()
            assert honest.every.refusals == []
        honest.check()
        assert "refused" not in broker.output.read_text()


@pytest.mark.slow
def test_a_failed_flush_is_final_and_the_broker_says_what_to_do(
    tmp_path: Path, disk: FailingDisk,
) -> None:
    with mqcore_up(tmp_path / "broker", {"store.flush": "sync"}) as broker:
        with Peer(broker.broker_addr) as peer:
            make_topic(peer, TOPIC)
            make_topic(peer, "other")
            promised = send_honest(peer, TOPIC, 50)
            disk.arm(at=0, error=errno.EIO, kind="syncs")
            until_answered(peer, NOT_AVAILABLE, "while flushes fail")
            disk.disarm()

            def is_final() -> bool:
                answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("other"), b"still")
                assert answer.code == NOT_AVAILABLE, answer.remark
                return "which is final" in broker.output.read_text()

            wait_until(is_final, "it is said", WAIT_S)
            answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("other"), b"and then")
            assert answer.code == NOT_AVAILABLE, answer.remark
        broker.process.terminate()
        broker.process.wait(WAIT_S)
        assert "restart the broker" in broker.output.read_text()
    assert_all_there(tmp_path / "broker", "sync", TOPIC, promised)


def test_a_send_whose_flush_failed_is_not_told_that_it_was_refused(
    tmp_path: Path, disk: FailingDisk,
) -> None:
    """It may be stored: here it is. Clients send again what was refused."""
    with mqcore_up(tmp_path / "broker", {"store.flush": "sync"}) as broker:
        with Peer(broker.broker_addr) as peer:
            make_topic(peer, TOPIC)
            promised = send_honest(peer, TOPIC, 5)
            disk.arm(at=0, error=errno.EIO, kind="syncs")
            answers = [peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC), b"outcome %d" % n)
                       for n in range(3)]
            disk.disarm()
        broker.kill()
    assert [answer.code for answer in answers] == [NOT_KNOWN, NOT_AVAILABLE, NOT_AVAILABLE]
    assert (answers[0].remark or "").startswith("[DISK_FAILED]")
    with mqcore_up(tmp_path / "broker", {"store.flush": "sync"}) as broker:
        wait_until(lambda: len(all_bodies(broker)) > len(promised), "the one that was not answered")
        bodies = all_bodies(broker)
    assert [body for body in bodies if body.startswith(b"outcome")] == [b"outcome 0"]


def all_bodies(broker: MqcoreProcess) -> list[bytes]:
    """Of queue 0 of the honest topic."""
    with Peer(broker.broker_addr) as peer:
        answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, offset=0))
        return [record.body for record in decode_records(answer.body)] if answer.code == 0 else []


@pytest.mark.slow
def test_a_failed_flush_of_queue_files_ends_the_checkpoints_and_nothing_else(
    tmp_path: Path, disk: FailingDisk,
) -> None:
    disk.turn_to(tmp_path / "broker" / "store" / "consumequeue")
    with mqcore_up(tmp_path / "broker", {"store.checkpoint_interval_ms": 100}) as broker:
        with Peer(broker.broker_addr) as peer:
            make_topic(peer, TOPIC)
            promised = send_honest(peer, TOPIC, 50)
            wait_until((broker.store / "checkpoint").exists, "a checkpoint")
            disk.arm(at=0, error=errno.EIO, kind="syncs")
            promised |= send_honest(peer, TOPIC, 50)
            until_said(broker, "which is final")
            disk.disarm()
            before = (broker.store / "checkpoint").read_bytes()
            promised |= send_honest(peer, TOPIC, 200)       # 100 ms and more of work
            committed(broker, TOPIC, len(promised))
            assert (broker.store / "checkpoint").read_bytes() == before
        broker.kill()
    assert_all_there(tmp_path / "broker", "async", TOPIC, promised)
