"""
Another protocol sends and pulls by the same native functions as RocketMQ's: a small binary front
(mqcore/net/probes/binary_front.pyx) beside it, over a real store whose services are turned by hand.
"""
from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqcore.net.probes.binary_front import BinaryFront
from mqcore.participants import SERVING
from mqcore.shm.tables import TableWriter
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import decode, encode, request
from mqcore.wire.records import decode_records
from tests.net.front import (
    GROUP,
    PULL,
    SAID,
    SEND,
    TOPIC,
    Answer,
    Front,
    ask_frame,
    pull_frame,
    send_frame,
)
from tests.net.serving import Serving
from tests.store.harness import Run
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields

TURNS_MAX = 200
FOUND, NOT_FOUND, MESSAGE_ILLEGAL = 0, 19, 13


class Broker:
    """A store and a serving process with both fronts, in this process."""

    def __init__(self, root: Path) -> None:
        self.run = Run(root)
        self.run.recover(clean=True)
        self.run.segment.begin_incarnation(SERVING.slot)
        tables = TableWriter(self.run.segment)
        tables.publish_topic(TOPIC, read_queues=1, write_queues=1, perm=6)
        tables.publish_group(GROUP)
        self.writer = self.run.writer("async", 0)
        self.dispatcher = self.run.dispatcher()
        self.main, self.other = socket.create_server(("127.0.0.1", 0)), socket.create_server(
            ("127.0.0.1", 0))
        for listener in (self.main, self.other):
            listener.setblocking(False)
        self.serving = BinaryFront(
            self.run.segment, 0, [(self.main, False)], os.fsencode(self.run.log_folder),
            os.fsencode(self.run.queue_folder), store_address=("127.0.0.1", 10911), cluster="C",
            file_entries=self.run.file_entries, connection_max=8, held_max=8,
            body_bytes_max=4096, seed=1, region="R", trace_on=True, idle_ms_max=60_000,
            memory_bytes=1 << 30, memory_count_max=32, memory_bytes_max=1 << 18,
            disk_count_max=32, disk_bytes_max=1 << 18,
            replay_count_max=32, replay_bytes_max=1 << 18, long_polling=True, short_polling_ms=1000)
        self.serving.listen(self.other)

    def turn(self) -> None:
        self.serving.run(1)
        self.writer.run(1)
        self.dispatcher.run(1)

    def until_answer(self, peer: Peer) -> bytes:
        """The next frame for a client, while everybody works."""
        for _ in range(TURNS_MAX):
            self.turn()
            try:
                return peer.receive_frame(0.01)
            except TimeoutError:
                continue
        raise AssertionError("no answer")

    def close(self) -> None:
        self.serving.drain()
        self.writer.finish()
        self.dispatcher.close()
        self.main.close()
        self.other.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def connect(broker: Broker) -> Iterator[Callable[[socket.socket], Peer]]:
    peers: list[Peer] = []

    def open_one(listener: socket.socket) -> Peer:
        host, port = listener.getsockname()
        peers.append(Peer(f"{host}:{port}"))
        return peers[-1]

    yield open_one
    for peer in peers:
        peer.close()


Connect = Callable[[socket.socket], Peer]


def test_a_message_sent_in_binary_is_pulled_in_both_protocols(broker: Broker, connect: Connect):
    binary, rocket = connect(broker.other), connect(broker.main)
    binary.send(send_frame(7, b"hello", properties=b"TAGS\x01A\x02"))
    sent = Answer(broker.until_answer(binary))
    assert (sent.kind, sent.opaque, sent.code, sent.stored) == (SEND, 7, 0, (0, 0, 0))
    binary.send(pull_frame(8, 0, wait_ms=1000))
    pulled = Answer(broker.until_answer(binary))
    assert (pulled.kind, pulled.opaque, pulled.code, pulled.range) == (PULL, 8, FOUND, (1, 0, 1))
    rocket.send(encode(request(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, group=GROUP))))
    theirs = decode_records(decode(broker.until_answer(rocket)[4:]).body)
    assert pulled.records == theirs
    assert [(record.body, record.properties["TAGS"]) for record in theirs] == [(b"hello", "A")]


def test_a_message_sent_by_rocketmq_answers_a_held_binary_pull(broker: Broker, connect: Connect):
    binary, rocket = connect(broker.other), connect(broker.main)
    binary.send(pull_frame(1, 0, wait_ms=60_000))
    broker.turn()
    rocket.send(encode(request(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC), b"wake up")))
    assert decode(broker.until_answer(rocket)[4:]).code == 0
    pulled = Answer(broker.until_answer(binary))
    assert (pulled.opaque, pulled.code) == (1, FOUND)
    assert [record.body for record in pulled.records] == [b"wake up"]


def test_binary_frames_are_answered_in_their_own_words(broker: Broker, connect: Connect):
    """Nothing there, too large: the same rules, in another form."""
    binary = connect(broker.other)
    binary.send(pull_frame(1, 0) + send_frame(2, b"x" * 5000))
    said = [Answer(broker.until_answer(binary)) for _ in range(2)]
    assert [(one.kind, one.opaque, one.code) for one in said] == [
        (PULL, 1, NOT_FOUND), (SAID, 2, MESSAGE_ILLEGAL)]
    assert said[1].remark.startswith("the message is illegal: its body or batch is longer than")


def test_what_a_coordinator_had_that_died_is_answered_in_the_fronts_words(tmp_path: Path):  # N16
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        serving = Serving(tmp_path, front=listener)
        with Front(f"127.0.0.1:{listener.getsockname()[1]}") as front:
            front.send(ask_frame(5, RequestCode.GET_BROKER_RUNTIME_INFO, {}))
            command = decode(serving.forwarded()[0].frame)
            assert (command.code, command.opaque) == (RequestCode.GET_BROKER_RUNTIME_INFO, 5)
            serving.another_coordinator()
            wait_until(lambda: serving.turn() or readable(front), "an answer")
            said = front.answer()
            assert (said.kind, said.opaque, said.code) == (SAID, 5, ResponseCode.SYSTEM_ERROR)
            assert said.remark == "[COORDINATOR_RESTARTED]whether the request was done is not known"


def readable(peer: Peer) -> bool:
    return bool(select.select([peer.socket], [], [], 0)[0])


def test_frames_that_come_in_pieces_are_joined_and_a_broken_one_ends_its_connection(
        broker: Broker, connect: Connect):
    binary = connect(broker.other)
    frame = send_frame(1, b"pieces")
    for piece in (frame[:3], frame[3:20], frame[20:] + frame[:9], frame[9:]):
        binary.send(piece)
        broker.turn()
    answers = [Answer(broker.until_answer(binary)) for _ in range(2)]
    assert [answer.stored[1] for answer in answers] == [0, 1]
    binary.send(struct.pack(">iBi", 5, SEND, 9))
    with pytest.raises(Closed):
        broker.until_answer(binary)
