"""
A body may hold a whole half message, and its place in the log is easily told. Who names that place
gets a refusal: from the end of a transaction (37) and from all else that takes a position.
"""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.admin.status import PREFIX, describe
from mqcore.shm.segment import stale_segments
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.ids import offset_message_id
from tests.attacks.forged_half import Forged, half, position_of, smuggle
from tests.attacks.honest import Honest
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until
from tests.transactions.producer import COMMIT, Producer
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

OUTSIDE = "../../outside"
QUEUE_ID_MAX = 2**31 - 1
HOSTILE = {
    "up": (OUTSIDE, 0), "further up": ("../../../outside", 3), "a slash": ("a/b", 0),
    "a blank": ("a b", 0), "dots": ("..", 0), "a queue": ("carrier", 99),
    "the last queue": ("carrier", QUEUE_ID_MAX), "a system topic": ("SCHEDULE_TOPIC_XXXX", 0),
}


@pytest.fixture
def peer(target: MqcoreProcess) -> Iterator[Peer]:
    with Peer(target.broker_addr) as made:
        assert made.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("carrier", 2)).code == 0
        yield made


@pytest.fixture
def frozen(target: MqcoreProcess) -> Iterator[None]:
    """The dispatcher does nothing: no record gets its queue entry."""
    name = next(name for name in stale_segments(PREFIX) if name.endswith(f"-{target.pid}"))
    run = describe(name)
    assert run is not None
    (pid,) = [one["pid"] for one in run["processes"]                # type: ignore[attr-defined]
              if one["role"] == "dispatcher"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def tree(target: MqcoreProcess) -> set[str]:
    """Every path of the test's folder but files that come and go in the store's own."""
    root = target.folder
    return {str(path.relative_to(root)) for path in root.rglob("*")
            if "consumequeue" in path.parts or "store" not in path.parts}


def refused_ends(peer: Peer, found: Forged) -> None:
    for half_offset in ("0", "1"):
        answer = peer.ask(Code.END_TRANSACTION, found.end(tranStateTableOffset=half_offset))
        assert answer.code == 1, answer
        assert answer.remark == "there is no message at commitLogOffset"


@pytest.mark.slow
@pytest.mark.parametrize(("topic", "queue"), HOSTILE.values(), ids=[*HOSTILE])
def test_a_half_message_inside_a_body_is_not_ended(
    target: MqcoreProcess, honest: Honest, watch: Watch, peer: Peer, topic: str, queue: int
) -> None:
    calm = honest.measure()
    found = smuggle(peer, "carrier", lambda at: half(at, topic, queue))
    carrier = {"topic": "carrier", "queueId": "0"}
    wait_until(lambda: (peer.ask(Code.GET_MAX_OFFSET, carrier).ext or {})["offset"] != "0",
               "the carrier's queue")
    honest.caught_up()
    before = tree(target)
    with honest.span() as attacked:
        refused_ends(peer, found)
        honest.until(lambda: len(attacked.sends_ms) > 20, "sends after the attack")
    honest.caught_up()
    assert tree(target) == before
    assert not (target.folder / "outside").exists()
    honest.assert_served(attacked, calm)


def test_a_half_message_inside_a_body_is_not_ended_before_it_has_a_queue_entry_either(
    target: MqcoreProcess, peer: Peer, frozen: None
) -> None:
    before = tree(target)
    refused_ends(peer, smuggle(peer, "carrier", lambda at: half(at, OUTSIDE, 0)))
    assert tree(target) == before


def test_an_honest_transaction_ends_at_once_whatever_the_dispatcher_does(
    target: MqcoreProcess, frozen: None
) -> None:
    with Producer(target.broker_addr, "honest-ends") as producer:
        producer.topic_named("ends", 1)
        for number in range(50):
            answer = producer.ask(Code.SEND_MESSAGE_V2, send_fields(
                "ends", sys_flag=4, properties="TRAN_MSG\x01true\x02PGROUP\x01honest-ends\x02"
            ), b"x" * 100 * number)
            fields = answer.ext or {}
            ended = producer.ask(Code.END_TRANSACTION, {
                "producerGroup": "honest-ends", "tranStateTableOffset": fields["queueOffset"],
                "commitLogOffset": str(position_of(answer)), "commitOrRollback": str(COMMIT),
                "fromTransactionCheck": "false"})
            assert (ended.code, ended.remark) == (0, None)


def test_a_half_message_of_another_offset_is_not_ended(target: MqcoreProcess) -> None:
    with Producer(target.broker_addr, "offsets") as producer:
        topic = producer.topic()
        first, second = (producer.prepare(topic, body) for body in (b"one", b"two"))
        wait_until(lambda: producer.ask(Code.GET_MAX_OFFSET, {
            "topic": first.topic, "queueId": "0"}).ext["offset"] > str(first.queue_offset), "entry")
        answer = producer.ask(Code.END_TRANSACTION, {
            "producerGroup": "offsets", "tranStateTableOffset": str(second.queue_offset),
            "commitLogOffset": str(first.physical_offset), "commitOrRollback": str(COMMIT),
            "fromTransactionCheck": "false"})
        assert answer.code == 1


def test_nothing_that_takes_a_position_believes_a_record_inside_a_body(
    target: MqcoreProcess, watch: Watch, peer: Peer
) -> None:
    found = smuggle(peer, "carrier", lambda at: half(at, OUTSIDE, 0))
    forged, true = (offset_message_id("127.0.0.1", 10911, at)
                    for at in (found.position, found.carrier))
    for code, fields in (
        (Code.VIEW_MESSAGE_BY_ID, {"offset": str(found.position)}),
        (Code.CONSUMER_SEND_MSG_BACK, {"offset": str(found.position), "group": "G",
                                       "delayLevel": "0", "originMsgId": "M",
                                       "originTopic": "carrier", "unitMode": "false"}),
        (Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": forged}),
        (Code.CONSUME_MESSAGE_DIRECTLY, {"msgId": forged, "consumerGroup": "G", "clientId": "C",
                                         "brokerName": "mqcore-a"}),
    ):
        answer = peer.ask(code, fields)
        assert answer.code == 1, (code, answer)
        assert "position" in (answer.remark or ""), (code, answer)
    assert peer.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": str(found.carrier)}).code == 0
    answer = peer.ask(Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": true})
    assert answer.code == 1, "an ordinary message became a half message"
    assert "no half message" in (answer.remark or "")


def test_a_message_can_be_looked_up_before_it_has_a_queue_entry(
    target: MqcoreProcess, peer: Peer, frozen: None
) -> None:
    for _ in range(20):
        sent = peer.ask(Code.SEND_MESSAGE_V2, send_fields("carrier"), b"just now")
        seen = peer.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": str(position_of(sent))})
        assert seen.code == 0
        assert b"just now" in seen.body


def test_what_a_client_says_of_a_real_topic_is_overwritten(
    target: MqcoreProcess, honest: Honest, watch: Watch, peer: Peer
) -> None:
    said = f"REAL_TOPIC\x01{OUTSIDE}\x02REAL_QID\x01{QUEUE_ID_MAX}\x02"
    before = tree(target)
    for extra in ("DELAY\x011\x02", "", "WAIT\x01false\x02"):
        for code in (Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE):
            body = b"plain"
            if code == Code.SEND_BATCH_MESSAGE:
                text = said.encode()
                body = (22 + len(text)).to_bytes(4, "big") + bytes(12) + (0).to_bytes(4, "big")
                body += len(text).to_bytes(2, "big") + text
            peer.ask(code, send_fields("carrier", properties=said + extra), body)
    with Producer(target.broker_addr, "liar") as producer:
        producer.topic_named("liars", 1)
        record = producer.prepare("liars", b"x", REAL_TOPIC=OUTSIDE, REAL_QID=str(QUEUE_ID_MAX))
        assert record.properties["REAL_TOPIC"] == "liars"
    pulled = peer.ask(Code.PULL_MESSAGE, pull_fields("carrier"))
    assert pulled.code == 0
    wait_until(lambda: Path(target.store, "config", "delayOffset.json").exists(), "a delivery")
    honest.caught_up()
    new = tree(target) - before
    assert not [path for path in new if "outside" in path or str(QUEUE_ID_MAX) in path]
