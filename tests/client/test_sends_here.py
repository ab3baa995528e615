"""Sends that the calling thread writes by itself: order, sizes, ends of connections. One-way."""
from __future__ import annotations

import concurrent.futures
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.client import (
    Admin,
    ConnectError,
    Message,
    Producer,
    QueueFull,
    Reader,
    RequestTimeout,
)
from mqcore.client.native.answers import Waiter
from mqcore.client.network.connection import Connection
from mqcore.client.network.reading import Stored
from mqcore.testing import Broker, broker
from mqcore.wire.codes import RequestCode
from tests.client.threads import cluster_thread
from tests.support.waiting import wait_until

LARGE = 3 << 20                     # more than a socket takes at once
THREADS = 4


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker() as started:
        yield started


def created(running: Broker, topic: str, queues: int = 1) -> str:
    with Admin(running.namesrv) as admin:
        admin.create_topic(topic, queues=queues)
    return topic


def bodies(running: Broker, topic: str, count: int) -> list[bytes]:
    """The first `count` messages of a topic, in the order of each queue."""
    found: list[bytes] = []
    with Reader(topic, namesrv=running.namesrv) as reader:
        while len(found) < count:
            some = reader.read(timeout=20.0)
            assert some, f"only {len(found)} messages of {topic} are stored"
            found += [message.body for message in some]
    return found


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each `write_here` returned."""
    outcomes: list[bool] = []
    write_here = Connection.write_here

    def noted(self: Connection, opaque: int, waiter: Waiter, frame: bytearray) -> bool:
        outcomes.append(write_here(self, opaque, waiter, frame))
        return outcomes[-1]

    monkeypatch.setattr(Connection, "write_here", noted)
    return outcomes


def test_a_thread_that_waits_writes_by_itself(running: Broker, written: list[bool]) -> None:
    topic = created(running, "here")
    with Producer("here", namesrv=running.namesrv, topics=[topic]) as producer:
        offsets = [producer.send(Message(topic, f"{n}")).queue_offset for n in range(100)]
    assert offsets == list(range(100))
    assert written.count(True) >= 95            # not the first one: it has the timer armed
    assert bodies(running, topic, 100) == [f"{n}".encode() for n in range(100)]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each `read_here` got the answer."""
    outcomes: list[bool] = []
    read_here = Connection.read_here

    def noted(self: Connection, opaque: int, waiter: Waiter) -> Stored | None:
        answer = read_here(self, opaque, waiter)
        outcomes.append(answer is not None)
        return answer

    monkeypatch.setattr(Connection, "read_here", noted)
    return outcomes


def test_a_thread_that_sends_alone_reads_by_itself(running: Broker, read: list[bool]) -> None:
    topic = created(running, "here-read")
    with Producer("here", namesrv=running.namesrv, topics=[topic]) as producer:
        results = [producer.send(Message(topic, f"{n}")) for n in range(200)]
        producer.flush(10)
        assert producer._role._sender.room.count == 0
    assert [result.queue_offset for result in results] == list(range(200))
    assert read.count(True) > 100


def test_threads_and_futures_share_a_connection_that_one_thread_read(
    running: Broker, read: list[bool],
) -> None:
    topic = created(running, "here-mixed", queues=4)
    with Producer("here", namesrv=running.namesrv, topics=[topic], send_timeout=30.0) as producer:
        def work(number: int) -> None:
            for each in range(100):
                producer.send(Message(topic, f"{number}-{each}"))

        for turn in range(3):
            work(10 * turn)
            futures = [producer.send_soon(Message(topic, f"{turn}+{each}")) for each in range(50)]
            with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(work, range(10 * turn + 1, 10 * turn + 1 + THREADS)))
            assert all(future.result(20) for future in futures)
    found = bodies(running, topic, 3 * (100 + 50 + 100 * THREADS))
    assert len(set(found)) == len(found) == 3 * (150 + 100 * THREADS)
    assert read.count(True) > 100
    assert False in read


def test_what_a_thread_sent_before_stays_before(running: Broker, written: list[bool]) -> None:
    topic = created(running, "here-order")
    with Producer("here", namesrv=running.namesrv, topics=[topic]) as producer:
        for n in range(0, 300, 3):
            producer.send_soon(Message(topic, f"{n}"))
            producer.send_oneway(Message(topic, f"{n + 1}"))
            producer.send(Message(topic, f"{n + 2}"))
    assert bodies(running, topic, 300) == [f"{n}".encode() for n in range(300)]


def test_large_bodies_of_several_threads_arrive_whole(
    running: Broker, written: list[bool],
) -> None:
    topic = created(running, "here-large", queues=4)
    sent = [random.Random(n).randbytes(LARGE) for n in range(THREADS)]
    with Producer("here", namesrv=running.namesrv, topics=[topic], send_timeout=30.0,
                  compress_over_bytes=2 * LARGE) as producer:
        producer.send(Message(topic, "first"))

        def work(number: int) -> None:
            for each in range(5):
                producer.send(Message(topic, sent[number]))
                producer.send(Message(topic, f"{number}-{each}"))
                producer.send_soon(Message(topic, f"{number}+{each}"))

        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
    found = bodies(running, topic, 1 + 15 * THREADS)
    assert True in written
    assert len(found) == 1 + 15 * THREADS
    for body in sent:
        assert found.count(body) == 5


@pytest.mark.parametrize("before", [1, 30], ids=["loop-reads", "thread-reads"])
def test_a_connection_that_ends_leaves_the_outcome_open(tmp_path: Path, before: int) -> None:
    with cluster_thread(tmp_path) as (address, brokers), Producer(
            "PG", namesrv=address, topics=["T"], retry_count=0, send_timeout=10.0) as producer:
        for _ in range(before):
            producer.send(Message("T", "1"))
        brokers[0].silent.add(RequestCode.SEND_MESSAGE_V2)
        connection = producer._role._instance.pool._connections[brokers[0].address]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(producer.send, Message("T", "2"))
            wait_until(lambda: connection.pending_count == 1, "the send")
            connection._loop.call_soon_threadsafe(connection.abort)
            error = waits.exception(20)
        assert isinstance(error, ConnectError)
        assert error.stored is None
        assert connection._descriptor == -1
        brokers[0].silent.clear()
        assert producer.send(Message("T", "3")).message_id


@pytest.mark.parametrize("before", [1, 30], ids=["loop-reads", "thread-reads"])
def test_no_answer_is_a_timeout_and_the_room_is_free_again(
    tmp_path: Path, before: int,
) -> None:
    with cluster_thread(tmp_path) as (address, brokers), Producer(
            "PG", namesrv=address, topics=["T"], retry_count=0) as producer:
        for _ in range(before):
            producer.send(Message("T", "1"), timeout=2.0)
        brokers[0].silent.add(RequestCode.SEND_MESSAGE_V2)
        with pytest.raises(RequestTimeout) as caught:
            producer.send(Message("T", "2"), timeout=2.5)
        assert caught.value.stored is None
        assert producer._role._sender.room.count == 0


def test_one_way_sends_do_not_wait_and_flush_does(running: Broker) -> None:
    topic = created(running, "here-oneway", queues=4)
    with Producer("here", namesrv=running.namesrv, max_in_flight=50) as producer:
        for n in range(2_000):
            producer.send_oneway(Message(topic, f"{n}"))
        producer.flush(20)
        assert producer._role._sender.room.count == 0
        with pytest.raises(ValueError, match="body"):
            producer.send_oneway(Message(topic, b""))
    with Producer("nowhere", namesrv="127.0.0.1:9") as producer, pytest.raises(ConnectError):
        producer.send_oneway(Message(topic, "x"), timeout=1.0)
    assert sorted(map(int, bodies(running, topic, 2_000))) == list(range(2_000))


def test_a_callback_may_send_one_way(running: Broker) -> None:
    topic = created(running, "here-callback")
    done = threading.Event()
    with Producer("here", namesrv=running.namesrv, topics=[topic]) as producer:
        def again(future: object) -> None:
            producer.send_oneway(Message(topic, "2"))
            done.set()

        producer.send_soon(Message(topic, "1"), on_done=again)
        assert done.wait(20)
    assert bodies(running, topic, 2) == [b"1", b"2"]


def test_a_one_way_send_to_a_connection_that_ended_finds_another(
    tmp_path: Path,
) -> None:
    with cluster_thread(tmp_path) as (address, brokers), Producer(
            "PG", namesrv=address, topics=["T"]) as producer:
        connection = producer._role._instance.pool._connections[brokers[0].address]
        connection._loop.call_soon_threadsafe(connection.abort)
        producer.send_oneway(Message("T", "1"))
        producer.flush(10)
        wait_until(lambda: any(brokers[0].queues.values()), "the message")


def test_one_way_sends_beyond_the_room_are_refused_in_time(
    tmp_path: Path,
) -> None:
    with cluster_thread(tmp_path) as (address, _brokers), Producer(
            "PG", namesrv=address, topics=["T"], max_in_flight=5) as producer:
        role = producer._role
        stopped, resume = threading.Event(), threading.Event()

        def stop() -> None:
            stopped.set()
            resume.wait(20)

        role._sender._loop.call_soon_threadsafe(stop)
        assert stopped.wait(20)
        try:
            for n in range(5):
                producer.send_oneway(Message("T", f"{n}"))
            with pytest.raises(QueueFull):
                producer.send_oneway(Message("T", "6"), timeout=0.2)
        finally:
            resume.set()
        producer.flush(10)
