"""Connections that cost without giving: idle, slow, many, deaf. Others do not notice them."""
from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path

import pytest

from mqcore.layout import FRAME_LENGTH_MAX
from mqcore.wire.command import Codec, encode, request
from mqcore.wire.records import decode_records
from tests.hostile.crowd import crowd, push
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields
from tests.wire_live.state import State

IDLE_COUNT = 1_000
SLOW_COUNT = 200
CHURN_COUNT = 5_000
DEAF_COUNT = 20
GROWTH_KIB_MAX = 10 << 10
HONEST_ROUND_S_MAX = 1.0
SMALL_RECEIVE_BYTES = 4_096


def assert_served(honest: State, topic: str = "Served") -> None:
    """A send and the pull of what it sent, within a second."""
    began = time.monotonic()
    stored = honest.message(topic, body=b"honest")
    offset = int((stored.ext or {})["queueOffset"] or 0)
    found = honest.ask(11, pull_fields(topic, offset=offset, sys_flag=6, suspend_ms=5_000))
    assert time.monotonic() - began < HONEST_ROUND_S_MAX
    assert decode_records(found.body)[0].body == b"honest"


def assert_growth(watch: Watch, most_kib: int) -> None:
    growth = watch.growth_kib()
    assert max(growth.values()) <= most_kib, growth


@pytest.fixture(scope="module", autouse=True)
def served_topic(target: MqcoreProcess) -> None:
    with State(target.broker_addr) as peer:
        peer.topic("Served", 1)
        peer.topic("Deaf", 1)


@pytest.mark.parametrize("server", ["broker", "name server"])
def test_a_thousand_idle_and_two_hundred_slow_connections_cost_little(
    target: MqcoreProcess, watch: Watch, honest: State, server: str
) -> None:
    """The slow ones declare frames of 16 MiB and send them one byte at a time."""
    address = target.broker_addr if server == "broker" else target.namesrv_addr
    with crowd(address, IDLE_COUNT + SLOW_COUNT) as sockets:
        slow = sockets[:SLOW_COUNT]
        for data in (struct.pack(">I", FRAME_LENGTH_MAX), b"\0\0\1\0", *[b"{"] * 10):
            for one in slow:
                one.sendall(data)
        assert_served(honest)
        with Peer(target.namesrv_addr) as names:
            assert names.ask(105, {"topic": "TBW102"}).code == 0
        assert_growth(watch, GROWTH_KIB_MAX)


def test_five_thousand_short_connections_leave_nothing_behind(
    target: MqcoreProcess, watch: Watch, honest: State
) -> None:
    host, _, port = target.broker_addr.rpartition(":")
    data = encode(request(38, {"consumerGroup": "nobody"}))
    for number in range(CHURN_COUNT):
        with socket.create_connection((host, int(port)), 5) as one:
            if number % 3 == 0:
                one.sendall(data[:number % len(data)])
            elif number % 3 == 1:
                one.sendall(data)
    assert_served(honest)
    assert_growth(watch, GROWTH_KIB_MAX)


# What is asked for, and how much may wait for each peer: 1 MiB before its requests are held back,
# and the answers to those that were in the rings by then.
DEAF = {
    "sends": (encode(request(310, send_fields("Deaf"), b"x" * 100, codec=Codec.ROCKETMQ)), 8_192),
    "pulls of a full batch": (
        encode(request(11, pull_fields("Deaf"), codec=Codec.ROCKETMQ)), 2_048),
    "requests for all topics": (encode(request(21)), 12_288),
}


@pytest.mark.parametrize(("asked", "kib_each_max"), DEAF.values(), ids=DEAF.keys())
def test_peers_that_never_read_are_not_read_either(
    target: MqcoreProcess, watch: Watch, honest: State, asked: bytes, kib_each_max: int
) -> None:
    for _ in range(40):
        honest.message("Deaf", body=b"y" * 8_000)
    with contextlib.ExitStack() as opened:
        for _ in range(DEAF_COUNT):
            deaf = opened.enter_context(
                Peer(target.broker_addr, receive_buffer_bytes=SMALL_RECEIVE_BYTES))
            push(deaf.socket, asked * 500, patience_s=0.1)
        assert_served(honest)
        assert_growth(watch, DEAF_COUNT * kib_each_max)
    wait_until(lambda: max(watch.growth_kib().values()) <= GROWTH_KIB_MAX,
               "their memory given back")


@pytest.mark.slow
def test_a_peer_that_begins_to_read_late_gets_every_answer_in_its_order(
    target: MqcoreProcess, watch: Watch, honest: State
) -> None:
    """What was held back while it did not read, 100 MB, is neither lost nor forgotten."""
    count = 400
    for _ in range(40):
        honest.message("Deaf", body=b"y" * 8_000)
    with Peer(target.broker_addr) as early:
        wait_until(lambda: early.ask(11, pull_fields("Deaf")).code == 0, "messages to pull")
    pulls = [request(11, pull_fields("Deaf"), codec=Codec(number % 2)) for number in range(count)]
    with Peer(target.broker_addr, receive_buffer_bytes=SMALL_RECEIVE_BYTES) as late:
        for start in range(0, count, 100):
            late.send(b"".join(encode(pull) for pull in pulls[start:start + 100]))
        for pull in pulls:
            answer = late.receive()
            assert (answer.opaque, answer.code, answer.codec) == (pull.opaque, 0, pull.codec)


@pytest.fixture
def small(tmp_path: Path) -> object:
    with mqcore_up(tmp_path, {"processes.connection_count_max": 20}) as running:
        yield running


def test_connections_over_the_limit_are_refused_and_not_stalled(small: MqcoreProcess) -> None:
    watch = Watch(small)
    with State(small.broker_addr) as honest, contextlib.ExitStack() as opened:
        honest.topic("Served", 1)
        taken = [opened.enter_context(Peer(small.broker_addr)) for _ in range(19)]
        for one in taken:
            assert one.ask(30, {"topic": "Served", "queueId": "0"}).code == 0
        began = time.monotonic()
        for _ in range(50):
            with Peer(small.broker_addr) as refused:
                assert refused.is_closed(5)
        assert time.monotonic() - began < 5
        assert_served(honest)
        taken.pop().close()

        def has_room() -> bool:
            with Peer(small.broker_addr) as again, contextlib.suppress(Closed, ConnectionError):
                return again.ask(30, {"topic": "Served", "queueId": "0"}).code == 0
            return False
        wait_until(has_room, "a free place taken")
        wait_until(lambda: any("refused" in line for line in watch.new_lines()), "a log line")
    watch.assert_unharmed()


def test_connections_that_say_nothing_make_place_for_others(small: MqcoreProcess) -> None:
    watch = Watch(small)
    with State(small.broker_addr) as honest:
        honest.topic("Placed", 1)
        with crowd(small.broker_addr, 60):
            for _ in range(30):
                with Peer(small.broker_addr) as other:
                    assert other.ask(30, {"topic": "Placed", "queueId": "0"}).code == 0
        assert_served(honest, "Placed")
        wait_until(lambda: any("it said nothing for" in line for line in watch.new_lines()),
                   "a log line")
