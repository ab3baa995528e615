"""kombu's own tests for transports, and what is this transport's alone."""
from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import kombu
import pytest
from kombu.exceptions import OperationalError

from mqcore.client import Admin, Consumer, Message, Producer
from mqcore.client.core.compression import Compressor
from mqcore.contrib.kombu import ForeignError, _keys_of, delay_level, message_in, topic_of
from mqcore.testing import MemoryBroker
from tests.contrib import sdists
from tests.support.waiting import wait_until

THEIRS = '''
import os

import kombu
import pytest
from t.integration.common import (
    BaseExchangeTypes, BaseMessage, BaseTimeToLive, BasicFunctionality)

import mqcore.contrib.kombu


@pytest.fixture
def connection():
    return kombu.Connection(os.environ["BROKER"])


@pytest.fixture
def invalid_connection():
    return kombu.Connection("rocketmq://localhost:1")


class TestFunctionality(BasicFunctionality): ...
class TestExchangeTypes(BaseExchangeTypes): ...
class TestTimeToLive(BaseTimeToLive): ...
class TestMessages(BaseMessage): ...
'''

numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as running:
        yield running


@pytest.fixture
def connection(broker) -> Iterator[kombu.Connection]:
    with kombu.Connection(f"rocketmq://{broker.namesrv}") as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"queue{next(numbers)}"


@pytest.mark.slow
def test_their_own_tests_pass(broker, tmp_path: Path) -> None:
    found = sdists.run_tests(THEIRS, tmp_path, sdists.sources("kombu"),
                             env={"BROKER": f"rocketmq://{broker.namesrv}"})
    assert found["passed"] >= 23
    assert found.get("skipped", 0) == 0


def test_what_is_not_acked_comes_again_to_the_next_one(broker, connection, name):
    with closing(connection.SimpleQueue(name)) as queue:
        queue.put({"number": 1})
        assert queue.get(timeout=30).payload == {"number": 1}
    connection.close()
    with kombu.Connection(f"rocketmq://{broker.namesrv}") as other, \
            closing(other.SimpleQueue(name)) as queue:
        message = queue.get(timeout=30)
        assert message.payload == {"number": 1}
        message.ack()


def test_a_queue_is_counted_and_purged(connection, name):
    with closing(connection.SimpleQueue(name)) as queue:
        for number in range(5):
            queue.put(number)
        assert queue.qsize() == 5
        assert queue.clear() == 5
        assert queue.qsize() == 0
        for number in range(3):
            queue.put(number)
        assert queue.get(timeout=30).ack() is None
        assert queue.clear() == 2                       # by the member that has them
        with pytest.raises(queue.Empty):
            queue.get_nowait()


def test_queues_are_there_until_they_are_deleted(broker, connection, name):
    channel = connection.channel()
    queue = kombu.Queue(name, channel=channel)
    passing = kombu.Queue(f"{name}.passing", channel=channel, auto_delete=True)
    with pytest.raises(Exception, match="NOT_FOUND"):
        queue.queue_declare(passive=True)
    queue.declare()
    passing.declare()
    assert queue.queue_declare(passive=True).message_count == 0
    with Admin(broker.namesrv) as admin:
        assert {topic_of(name), topic_of(f"{name}.passing")} <= set(admin.topics())
        connection.close()
        assert topic_of(f"{name}.passing") not in admin.topics()
        with kombu.Connection(f"rocketmq://{broker.namesrv}") as other:
            kombu.Queue(name, channel=other.channel()).delete()
        assert topic_of(name) not in admin.topics()


def test_a_prefetch_window_is_kept(connection, name):
    got = []
    with closing(connection.SimpleQueue(name)) as queue:
        for number in range(4):
            queue.put(number)
    channel = connection.channel()
    with kombu.Consumer(channel, [kombu.Queue(name)], prefetch_count=2,
                        on_message=got.append) as consumer:
        for _ in range(2):
            connection.drain_events(timeout=30)
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.3)
        got[0].ack()
        connection.drain_events(timeout=30)
        assert len(got) == 3
        assert consumer.channel.qos.prefetch_count == 2


def test_without_acks_nothing_comes_again(broker, connection, name):
    got = []
    with closing(connection.SimpleQueue(name)) as queue:
        queue.put("x")
    channel = connection.channel()
    with kombu.Consumer(channel, [kombu.Queue(name)], no_ack=True, on_message=got.append):
        connection.drain_events(timeout=30)
    channel.close()
    with closing(connection.SimpleQueue(name)) as queue, pytest.raises(queue.Empty):
        queue.get_nowait()
    assert [message.payload for message in got] == ["x"]


def test_a_foreign_message_goes_to_the_dead_letters(broker, connection, name):
    with closing(connection.SimpleQueue(name)) as queue:
        with Producer("p", namesrv=broker.namesrv) as producer:
            producer.send(topic_of(name), "no json")
        with pytest.raises(queue.Empty):
            queue.get_nowait()
    with Consumer("g", f"%DLQ%{topic_of(name)}", namesrv=broker.namesrv,
                  start="earliest") as consumer:
        assert next(consumer).text() == "no json"


MESSAGE = {"body": "MQ==", "content-type": "application/json", "content-encoding": "utf-8",
           "headers": {}, "properties": {"body_encoding": "base64"}}
FOREIGN = [
    b"\xff", b"no json", b"7", b"[]", b"null", b"[" * 100_000, b"{}",
    b'{"a": {"__type__": "uuid", "__value__": {"hex": "zz"}}}',
    b'{"a": {"__type__": "datetime", "__value__": 5}}',
    b'{"a": {"__type__": "decimal", "__value__": "x"}}',
    b'{"a": {"__type__": [], "__value__": 5}}', b'{"a": {"__type__": "base64", "__value__": 5}}',
    *(json.dumps(MESSAGE | changed).encode() for changed in (
        {"properties": None}, {"properties": "x"}, {"properties": []}, {"headers": "x"},
        {"headers": [1]}, {"body": 5}, {"body": None}, {"body": {}}, {"body": "x"},
        {"body": "\ud800"}, {"content-type": 5}, {"content-encoding": {}},
        *({"properties": MESSAGE["properties"] | wrong} for wrong in (
            {"expiration": "soon"}, {"expiration": {}}, {"expiration": "nan"},
            {"expiration": 10 ** 400}, {"body_encoding": "rot13"}, {"body_encoding": 5},
            {"delivery_info": "x"}, {"delivery_info": {"exchange": []}},
            {"delivery_info": {"consumer_tag": {}}})))),
]


@pytest.mark.parametrize("body", FOREIGN, ids=lambda body: body[:99].decode("ascii", "replace"))
def test_what_is_no_message_of_kombu_s_is_told_where_it_comes_in(body):
    with pytest.raises(ForeignError):
        message_in(body)


def test_foreign_messages_block_no_queue(broker, connection, name):
    got = []
    channel = connection.channel()
    kombu.Queue(name, channel=channel).declare()
    with Producer("p", namesrv=broker.namesrv) as producer:
        producer.send_many([Message(topic_of(name), body) for body in FOREIGN],
                           shard=lambda message: name)
        producer.send(topic_of(name), json.dumps(MESSAGE | {"headers": None}), shard=name)
    with kombu.Consumer(channel, [kombu.Queue(name)], on_message=got.append):
        connection.drain_events(timeout=60)
    assert got[0].payload == 1
    got[0].requeue()                                    # although it does not say where it is from
    with kombu.Consumer(channel, [kombu.Queue(name)], on_message=got.append):
        connection.drain_events(timeout=30)
    got[1].ack()
    with Consumer("g", f"%DLQ%{topic_of(name)}", namesrv=broker.namesrv,
                  start="earliest") as consumer:
        assert {next(consumer).body for _ in FOREIGN} == set(FOREIGN)


def test_a_body_that_cannot_be_decompressed_blocks_no_queue(
        broker, connection, name, monkeypatch):
    with closing(connection.SimpleQueue(name)) as queue:
        with Producer("p", namesrv=broker.namesrv) as producer:
            monkeypatch.setattr(Compressor, "compress", lambda self, body: (b"no zlib", 1))
            producer.send(topic_of(name), bytes(5_000))
        with pytest.raises(queue.Empty):
            queue.get_nowait()
    with Consumer("g", f"%DLQ%{topic_of(name)}", namesrv=broker.namesrv,
                  start="earliest") as consumer:
        assert next(consumer).body_size == len(b"no zlib")


def test_a_task_that_cannot_wait_at_the_broker_waits_in_a_worker(broker, connection, name):
    eta = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = json.dumps(MESSAGE | {"body": "", "headers": {"eta": eta, "more": "é" * 1_000_000}},
                      ensure_ascii=False)               # three times as long when kombu writes it
    with closing(connection.SimpleQueue(name)) as queue:
        with Producer("p", namesrv=broker.namesrv) as producer:
            producer.send(topic_of(name), body)
        assert queue.get(timeout=30).headers["eta"] == eta


@pytest.mark.parametrize(("task", "keys"), [
    ("a b", ["a_b"]), (None, []), ("", []), ("x" * 300, []), ("a\x01b", []), (7, ["7"])])
def test_the_key_of_a_task_is_one_that_brokers_take(task, keys):
    assert _keys_of({"correlation_id": task}) == keys


def test_a_requeued_message_lives_no_longer(connection, name, monkeypatch):
    with closing(connection.SimpleQueue(name)) as queue:
        queue.put("x", expiration=60.0)
        for age in (40.0, 90.0):
            message = queue.get(timeout=30)
            life_ms = int(message.properties["expiration"])
            now = time.time()
            with monkeypatch.context() as later:
                later.setattr(time, "time", lambda at=now + age: at)
                message.requeue()
        assert 0 < life_ms <= 20_000                    # of the copy that was got
        with pytest.raises(queue.Empty):
            queue.get_nowait()


@pytest.mark.parametrize(("seconds", "level"), [
    (0.0, 0), (0.9, 0), (1.0, 1), (4.9, 1), (5.0, 2), (59.0, 4), (7_199.0, 17), (1e6, 18)])
def test_the_delay_of_a_task_is_no_longer_than_it_has(seconds, level):
    assert delay_level(seconds) == level


@pytest.mark.slow
def test_a_task_waits_at_the_broker_until_it_is_nearly_due(broker, connection, name):
    began = time.time()
    eta = datetime.now(UTC) + timedelta(seconds=11.5)
    with closing(connection.SimpleQueue(name)) as queue:
        queue.put("later", headers={"eta": eta.isoformat()})
        queue.put("now", headers={"eta": "no time"})
        assert queue.get(timeout=5).payload == "now"
        message = queue.get(timeout=60)
        assert 9.5 < time.time() - began < 12.0         # level 3 of the broker; a worker the rest
        message.ack()


@pytest.mark.parametrize(("queue", "topic"), [
    ("celery", "kombu-celery"), ("a.b@c:d", "kombu-a%2Eb%40c%3Ad"),
    ("ü", "kombu-%C3%BC")])
def test_names_of_topics(queue, topic):
    assert topic_of(queue) == topic


def test_long_names_stay_apart():
    first, second = topic_of("q" * 200 + "1"), topic_of("q" * 200 + "2")
    assert first != second
    assert len(first) == len(second) == 100


def test_nobody_there_is_an_error_of_kombu_s():
    with pytest.raises(OperationalError):
        kombu.Connection("rocketmq://127.0.0.1:1").ensure_connection(max_retries=1)


def test_waiting_ends_when_something_comes(broker, connection, name):
    with closing(connection.SimpleQueue(name)) as queue:
        with pytest.raises(queue.Empty):
            queue.get(timeout=0.2)
        queue.put("x")
        assert wait_until(lambda: queue.get(timeout=30), "it came") < 5.0
