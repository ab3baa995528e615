"""Sends that make a topic do not overtake each other on their connection (serving/send.pxd, N7)."""
from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Codec, Command, encode, request
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields
from tests.wire_live.state import State
from tests.workers.processes import by_role, kill, pid_of

SENDS = 1_000
ROUNDS = 25
SUCCESS = 0
SYSTEM_BUSY = 2
BUSY = "[OVERLOAD]the coordinator did not answer in time, try again later"
ORPHANS_WAIT_S = 7.0            # the coordinator's start, and ORPHAN_LIFE_MS


def send(topic: str, number: int, codec: Codec = Codec.JSON, **fields: int) -> Command:
    return request(Code.SEND_MESSAGE_V2, dict(send_fields(topic, **fields)), str(number).encode(),
                   codec=codec)


def numbers(state: State, topic: str, count: int, queue_id: int = 0) -> list[int]:
    """The bodies of a queue's first `count` messages, in their order."""
    wait_until(lambda: state.queue_end(topic, queue_id) >= count, f"{count} messages")
    found: list[int] = []
    while len(found) < count:
        found += [int(record.body) for record in state.stored(topic, queue_id, len(found))]
    return found


def unusual(frame: bytes) -> bytes:
    """The same frame with a key as nobody writes it."""
    header = frame[8:].replace(b'"flag"', rb'"fl\u0061g"', 1)
    added = len(header) - len(frame[8:])
    assert added == 5
    return b"".join((int.from_bytes(frame[at:at + 4], "big") + added).to_bytes(4, "big")
                    for at in (0, 4)) + header


def answered(peer: Peer, sends: list[Command]) -> None:
    """Every send has been stored."""
    codes = [peer.receive().code for _ in sends]
    assert codes == [SUCCESS] * len(sends)


@pytest.mark.slow
@pytest.mark.parametrize("codec", list(Codec))
def test_a_thousand_pipelined_sends_to_a_new_topic_are_stored_in_their_order(
    live: MqcoreProcess, state: State, codec: Codec
) -> None:
    for number in range(ROUNDS):
        topic = f"New_{codec.name}_{number}"
        sends = [send(topic, number, codec) for number in range(SENDS)]
        with Peer(live.broker_addr) as producer:
            producer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            producer.send(b"".join(map(encode, sends)))
            answered(producer, sends)

        assert numbers(state, topic, SENDS) == list(range(SENDS)), topic


def test_sends_to_several_new_topics_keep_the_order_of_each(
    live: MqcoreProcess, state: State
) -> None:
    topics = [f"Several_{index}" for index in range(20)]
    sends = [send(topic, number) for number in range(100) for topic in topics]
    with Peer(live.broker_addr) as producer:
        producer.send(b"".join(map(encode, sends)))
        answered(producer, sends)

    for topic in topics:
        assert numbers(state, topic, 100) == list(range(100))


def test_a_send_whose_header_is_unusual_is_not_overtaken(
    live: MqcoreProcess, state: State
) -> None:
    """The general reader takes it; the fast one, which reads all others, comes to them sooner."""
    state.topic("Unusual", 1)
    frames = []
    for number in range(SENDS):
        frame = encode(send("Unusual", number))
        frames.append(unusual(frame) if number % 10 == 0 else frame)
    with Peer(live.broker_addr) as producer:
        producer.send(b"".join(frames))
        assert [producer.receive().code for _ in frames] == [SUCCESS] * SENDS

    assert numbers(state, "Unusual", SENDS) == list(range(SENDS))


def test_sends_to_topics_that_exist_go_on_beside_one_that_waits(tmp_path: Path) -> None:
    """Nobody makes topics while the coordinator is away: that send waits, and those behind it."""
    with mqcore_up(tmp_path, {"broker.name": "broker-a"}) as broker, (
            State(broker.broker_addr)) as state, Peer(broker.broker_addr) as maker:
        state.topic("Known", 1)
        pid = pid_of(broker, "coordinator")
        os.kill(pid, signal.SIGSTOP)
        try:
            first, known, second = send("Made", 0), send("Known", 7), send("Made", 1)
            maker.send(b"".join(map(encode, (first, known, second))))
            assert maker.receive().opaque == known.opaque
            assert state.message("Known").code == SUCCESS
        finally:
            os.kill(pid, signal.SIGCONT)
        answered(maker, [first, second])
        assert numbers(state, "Made", 2) == [0, 1]


def test_what_a_dead_coordinator_took_is_answered_and_holds_no_later_sends_up_for_long(
    tmp_path: Path
) -> None:
    with mqcore_up(tmp_path, {"broker.name": "broker-a"}) as broker, (
            Peer(broker.broker_addr)) as producer:
        for number in range(2):
            wait_until(lambda: "coordinator" in by_role(broker), "a coordinator")
            topic = f"Lost_{number}"
            sends = [send(topic, position) for position in range(SENDS)]
            producer.send(b"".join(map(encode, sends)))
            kill(broker, "coordinator")
            answers = [producer.receive(ORPHANS_WAIT_S) for _ in sends]
            assert {answer.opaque for answer in answers} == {one.opaque for one in sends}
            busy = [answer for answer in answers if answer.code != SUCCESS]
            assert {(answer.code, answer.remark) for answer in busy} <= {(SYSTEM_BUSY, BUSY)}
            last = send(topic, SENDS)
            producer.send(encode(last))
            assert producer.answer_to(last.opaque, ORPHANS_WAIT_S).code == SUCCESS
