"""Replies as large as messages reach their requester, in parts (broker.md 2.6; N5)."""
from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.segment import Segment
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, encode, request, response
from mqcore.wire.properties import encode_properties
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields
from tests.wire_live.state import State
from tests.workers.processes import pid_of

TOPIC = "DefaultCluster_REPLY_TOPIC"
MIB = 1 << 20
LARGEST = 4 * MIB
SUCCESS, SYSTEM_ERROR, MESSAGE_ILLEGAL = 0, 1, 13
LONG_NAMES = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "m": "batch",
}
MANY, REPLIERS = 24, 6
DELAY_MAX_S = 1.0
BETWEEN_S = 0.005      # questions of the client beside them, which shares the interpreter with them
LINGER_NOT = bytes([1, 0, 0, 0, 0, 0, 0, 0])            # a close is a reset


def body_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """A broker of its own: what is stored here would fill the log of the others' one."""
    with mqcore_up(tmp_path_factory.mktemp("replies"), {"broker.name": "broker-a"}) as running:
        yield running


@pytest.fixture
def requester(live: MqcoreProcess) -> Iterator[Peer]:
    """A client that waits for replies."""
    with Peer(live.broker_addr) as peer:
        beat(peer, "asker")
        yield peer


def beat(peer: Peer, client: str) -> None:
    body = {"clientID": client, "producerDataSet": [{"groupName": f"G-{client}"}],
            "consumerDataSet": []}
    assert peer.ask(Code.HEART_BEAT, None, fastjson.dumps(body)).code == SUCCESS


def reply(body: bytes, code: int = Code.SEND_REPLY_MESSAGE_V2, client: str = "asker") -> Command:
    fields = send_fields(TOPIC, properties=encode_properties({"REPLY_TO_CLIENT": client}))
    if code == Code.SEND_REPLY_MESSAGE:
        fields = {LONG_NAMES[name]: value for name, value in fields.items()}
    return request(code, dict(fields), body)


def take(peer: Peer) -> bytes:
    """The next reply that is pushed to a requester, which says that it has it."""
    pushed = peer.receive()
    assert pushed.code == Code.PUSH_REPLY_MESSAGE_TO_CLIENT
    peer.send(encode(response(pushed, SUCCESS)))
    return pushed.body


@pytest.mark.parametrize("code", [Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2])
@pytest.mark.parametrize("size", [384 << 10, MIB, LARGEST])
def test_a_large_reply_is_pushed_and_stored_whole(
    live: MqcoreProcess, state: State, requester: Peer, code: int, size: int
) -> None:
    body = body_of(size)
    with Peer(live.broker_addr) as replier:
        question = reply(body, code)
        replier.send(encode(question))
        assert take(requester) == body
        answer = replier.answer_to(question.opaque)

    assert answer.code == SUCCESS
    assert state.by_id((answer.ext or {})["msgId"] or "").body == body


def test_a_reply_larger_than_a_message_is_refused_with_the_limit(
    live: MqcoreProcess, requester: Peer
) -> None:
    with Peer(live.broker_addr) as replier:
        question = reply(bytes(LARGEST + 1))
        replier.send(encode(question))
        answer = replier.answer_to(question.opaque)
        assert (answer.code, str(LARGEST) in (answer.remark or "")) == (MESSAGE_ILLEGAL, True)

        replier.send(encode(reply(b"short")))
        assert take(requester) == b"short"


def test_many_large_replies_at_a_time_all_arrive_and_others_are_served_meanwhile(
    live: MqcoreProcess, state: State, requester: Peer
) -> None:
    """More than the places for such frames, and more than is sent to one client at a time."""
    bodies = [body_of(LARGEST - index) for index in range(MANY)]
    repliers = [Peer(live.broker_addr) for _ in range(REPLIERS)]
    over = threading.Event()
    delays: list[float] = []

    def ask_meanwhile() -> None:
        while not over.wait(BETWEEN_S):
            began = time.monotonic()
            state.queue_end(TOPIC, 0)
            delays.append(time.monotonic() - began)

    def send_all(replier: Peer, mine: list[bytes]) -> None:
        for body in mine:
            replier.send(encode(reply(body)))

    threads = [threading.Thread(target=ask_meanwhile)] + [
        threading.Thread(target=send_all, args=(replier, bodies[index::REPLIERS]))
        for index, replier in enumerate(repliers)]
    for thread in threads:
        thread.start()
    found = [take(requester) for _ in bodies]
    codes = [replier.receive().code for replier in repliers for _ in range(MANY // REPLIERS)]
    over.set()
    for thread in threads:
        thread.join()
    for replier in repliers:
        replier.close()

    assert sorted(found) == sorted(bodies)
    assert codes == [SUCCESS] * MANY
    assert len(delays) > 10
    assert max(delays) < DELAY_MAX_S


def test_frames_that_end_in_the_middle_of_their_way_leave_nothing_behind(tmp_path: Path) -> None:
    """Their connections are gone, or the coordinator that had the first parts of them."""
    with mqcore_up(tmp_path, {"broker.name": "broker-a"}) as broker, (
            Peer(broker.broker_addr)) as requester:
        beat(requester, "asker")
        for end in (signal.SIGCONT, signal.SIGKILL):
            pid = pid_of(broker, "coordinator")
            os.kill(pid, signal.SIGSTOP)
            half_sent(broker)
            os.kill(pid, end)
            wait_until(lambda: connections(broker) == 1, "the end of their connections")
            wait_until(lambda: registered(broker), "the requester known again")
            with Peer(broker.broker_addr) as replier:
                for index in range(6):         # more than there are places
                    replier.send(encode(reply(body_of(MIB + index))))
                    assert take(requester) == body_of(MIB + index)
                    assert replier.receive().code == SUCCESS


def half_sent(broker: MqcoreProcess) -> None:
    """Large replies, of which the ring to the coordinator has room for the first parts only."""
    before = figure(broker, "bytes_in")
    repliers = [Peer(broker.broker_addr) for _ in range(REPLIERS)]
    frame = encode(reply(body_of(MIB)))
    for replier in repliers:
        replier.send(frame)
    wait_until(lambda: figure(broker, "bytes_in") - before >= len(frame) * REPLIERS,
               "all of them read")
    for replier in repliers:
        replier.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        replier.close()


def figure(broker: MqcoreProcess, name: str) -> int:
    segment = Segment.attach(broker.segment_name())
    return FigureSlots(segment).total(name)


def connections(broker: MqcoreProcess) -> int:
    return figure(broker, "connections")


def registered(broker: MqcoreProcess) -> bool:
    with Peer(broker.broker_addr) as peer:
        return peer.ask(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "G-asker"}).code == 0


def test_a_requester_that_does_not_read_is_not_buried(live: MqcoreProcess) -> None:
    """What is pushed to one client without an answer stays below what its connection may hold."""
    body = body_of(LARGEST)
    with Peer(live.broker_addr) as slow, Peer(live.broker_addr) as replier:
        beat(slow, "slow")
        sent = threading.Thread(target=lambda: replier.send(
            b"".join(encode(reply(body, client="slow")) for _ in range(10))))
        sent.start()
        sent.join()
        assert [take(slow) == body for _ in range(10)] == [True] * 10
        assert [replier.receive().code for _ in range(10)] == [SUCCESS] * 10
