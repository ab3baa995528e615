"""
Producers that do not read what they are asked (N6 of serving/answers.pxd; broker.md 5.6).

A round over many undecided messages goes on for everybody else, and what a deaf producer leaves
unread takes little memory.
"""
from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.bench.control import find_target
from mqcore.bench.load import ProduceOptions, Span, produce
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import encode, request
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.transactions.producer import (
    HALF_TOPIC,
    ROLLBACK,
    Asked,
    Producer,
    unique,
)

GROUP = "mqcore_bench"               # whose transactions the load leaves undecided
PENDING = 5_000
BODY_BYTES = 4_096
FEW = 50
SMALL_RECEIVE_BYTES = 4_096
UNREAD_BYTES_MAX = 4 << 20           # OUT_OFFER_BYTES
KERNEL_BYTES_MAX = 6 << 20           # in the two socket buffers, by Linux's defaults
GROWTH_KIB_MAX = 12 << 10            # what may wait, and the buffers on its way there
ROUNDS_S = 60.0
EXPIRY_MS = 3_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MqcoreProcess]:
    """Rounds follow each other; nobody is given up before the test is over."""
    with mqcore_up(tmp_path, {
        "broker.transaction_timeout_ms": 1, "broker.transaction_check_interval_ms": 2_000,
        "broker.transaction_check_max": 1_000, "store.queue_file_entry_count": 300_000,
    }) as running:
        yield running


def undecided(broker: MqcoreProcess) -> None:
    """PENDING half messages of GROUP, of four kilobytes each."""
    target = find_target("Undecided", broker=broker.broker_addr, namesrv=None, queues=1,
                         create=True)
    produce(target, ProduceOptions(span=Span(count=PENDING), connections=2, size=BODY_BYTES,
                                   undecided=True))


def answer(producer: Producer, asked: list[Asked]) -> None:
    """Roll back all that it was asked about."""
    producer.send(b"".join(encode(request(Code.END_TRANSACTION, {
        "producerGroup": producer.group, "tranStateTableOffset": str(one.half_offset),
        "commitLogOffset": str(one.position), "commitOrRollback": str(ROLLBACK), "msgId": "m",
        "fromTransactionCheck": "true"}, oneway=True)) for one in asked))


def take(producer: Producer, count: int) -> list[Asked]:
    """Wait until `count` questions came, and take them."""
    end = time.monotonic() + ROUNDS_S
    while len(producer.asked) < count:
        assert time.monotonic() < end, f"{len(producer.asked)} of {count} questions"
        with contextlib.suppress(TimeoutError):
            producer.receive(1)
    taken, producer.asked = producer.asked, []
    return taken


def settle(producer: Producer, end: int) -> None:
    """Roll back what comes until all half messages below `end` are settled."""
    limit = time.monotonic() + ROUNDS_S
    while producer.offset(HALF_TOPIC) < end:           # reads the questions on the way
        assert time.monotonic() < limit, f"not settled after {ROUNDS_S} s"
        answer(producer, producer.asked)
        producer.asked = []


@pytest.mark.slow
def test_a_round_goes_on_past_a_producer_that_never_reads(broker: MqcoreProcess) -> None:
    watch = Watch(broker)
    address = broker.broker_addr
    with (Producer(address, GROUP, receive_buffer_bytes=SMALL_RECEIVE_BYTES),
          Producer(address, GROUP) as honest, Producer(address, unique("PG")) as other):
        undecided(broker)
        topic = other.topic()
        for number in range(FEW):
            other.prepare(topic, b"%d" % number)
        last = other.end_of(HALF_TOPIC)
        answer(other, take(other, FEW))                # they are the last of the round

        asked = take(honest, 1)
        given_away = (UNREAD_BYTES_MAX + KERNEL_BYTES_MAX) // len(asked[0].record.body)
        asked += take(honest, PENDING - given_away)
        growth = watch.growth_kib()
        assert max(growth.values()) <= GROWTH_KIB_MAX, growth
        answer(honest, asked)
        settle(honest, last)
    watch.assert_unharmed()


def test_a_producer_that_is_slow_is_not_dropped_and_is_asked_again(broker: MqcoreProcess) -> None:
    """Alone in its group it leaves whole rounds unread; then it reads, and settles all."""
    watch = Watch(broker)
    with (Producer(broker.broker_addr, GROUP) as slow,
          Producer(broker.broker_addr, unique("PG")) as other):
        undecided(broker)
        topic = other.topic()
        other.prepare(topic, b"each round")
        last = other.end_of(HALF_TOPIC)
        for times in range(1, 4):                      # rounds, each of more than 20 MB
            (asked,) = take(other, 1)
            assert asked.record.properties["TRANSACTION_CHECK_TIMES"] == str(times)
        growth = watch.growth_kib()
        assert max(growth.values()) <= GROWTH_KIB_MAX, growth
        answer(other, [asked])
        settle(slow, last)
    watch.assert_unharmed()


@pytest.mark.slow
def test_a_producer_that_never_reads_is_gone_when_its_heartbeats_are_unread_for_long(
    tmp_path: Path,
) -> None:
    with (mqcore_up(tmp_path, {
              "broker.transaction_timeout_ms": 1, "broker.transaction_check_interval_ms": 500,
              "broker.client_expiry_ms": EXPIRY_MS}) as broker,
          Producer(broker.broker_addr, GROUP, receive_buffer_bytes=SMALL_RECEIVE_BYTES) as deaf,
          Producer(broker.broker_addr, unique("PG")) as looker):
        undecided(broker)
        beat = encode(request(Code.HEART_BEAT, None, deaf.heartbeat))

        def gone() -> bool:
            with contextlib.suppress(BlockingIOError):
                try:
                    deaf.socket.send(beat)
                except ConnectionError:
                    return True
            assert looker.ask(Code.HEART_BEAT, None, looker.heartbeat).code == 0
            return False

        deaf.socket.setblocking(False)
        looker.until(gone, "the connection closed", ROUNDS_S)
