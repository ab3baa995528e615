"""What a task of a sink sends and finds, and what a stream's driver hears, without a session."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType, TimestampType

from mqcore.client import Producer
from mqcore.client.admin import Admin
from mqcore.client.errors import NoRouteError
from mqcore.client.message import MessageQueue
from mqcore.spark.columns import all_columns
from mqcore.spark.options import ROCKETMQ, STREAM, WRITE, read_options
from mqcore.spark.topics.ends import Ends
from mqcore.spark.topics.topic_read import TopicRead
from mqcore.spark.topics.writer import Sink, TopicStreamWriter, TopicWriter
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until

COUNT = 10
BODY = StructField("body", BinaryType())


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("first")) as up:
        yield up


@pytest.fixture
def second(first: MqcoreProcess, tmp_path: Path) -> Iterator[MqcoreProcess]:
    """A broker more at the first one's name server."""
    with mqcore_up(tmp_path, {"broker.name": "second", "namesrv.embedded": False,
                              "broker.namesrv_addrs": [first.namesrv_addr]}) as up:
        yield up


@pytest.fixture
def admin(first: MqcoreProcess) -> Iterator[Admin]:
    with Admin(namesrv=first.namesrv_addr) as made:
        yield made


def sink(up: MqcoreProcess, topic: str, *fields: StructField, kind: type[Any] = Sink, **more: str
         ) -> Any:
    return kind(read_options({
        "nameServer": up.namesrv_addr, "topic": topic, "deliveryGuarantee": "effectively-once",
        **more}, ROCKETMQ, WRITE, "rocketmq"), StructType([BODY, *fields]))


def rows(**more: Any) -> Any:
    return pa.RecordBatch.from_pydict(
        {"body": pa.array([b"%d" % number for number in range(COUNT)], pa.binary()), **more})


def written(of: Any, batch: Any) -> tuple[int, int]:
    """(sent, found) of one try of a task."""
    said = of.write(iter([batch]))
    return said.rows, said.found


def indexed(admin: Admin, topic: str, count: int = COUNT) -> None:
    """Wait until the brokers' indexes have what queues show: they have it before."""
    wait_until(lambda: admin.topic_stats(topic).message_count == count, "all is dispatched")


def waiting(admin: Admin) -> int:
    """Messages with a time; name servers hear of their topic after the first one."""
    try:
        return admin.topic_stats("rmq_sys_wheel_timer").message_count
    except NoRouteError:
        return 0


def test_delayed_messages_are_found_while_they_wait(first: MqcoreProcess, admin: Admin) -> None:
    admin.create_topic("delayed", queues=4)
    task = sink(first, "delayed", StructField("delayTimeLevel", IntegerType()))
    batch = rows(delayTimeLevel=pa.array([18] * COUNT, pa.int32()))

    assert written(task, batch) == (COUNT, 0)
    indexed(admin, "SCHEDULE_TOPIC_XXXX")
    assert written(task, batch) == (0, COUNT)


def test_messages_with_a_time_are_found_while_they_wait_and_when_they_are_delivered(
    first: MqcoreProcess, admin: Admin,
) -> None:
    admin.create_topic("timed", queues=4)
    task = sink(first, "timed", StructField("deliverAt", TimestampType()))
    now = datetime.now(UTC)
    batch = rows(deliverAt=pa.array([now + timedelta(days=number % 2) for number in range(COUNT)],
                                    pa.timestamp("us", tz="UTC")))

    assert written(task, batch) == (COUNT, 0)
    indexed(admin, "timed", COUNT // 2)
    wait_until(lambda: waiting(admin) >= COUNT // 2, "the others wait")
    assert written(task, batch) == (0, COUNT)


def test_a_broker_that_only_lets_read_is_asked_for_what_it_has(
    first: MqcoreProcess, second: MqcoreProcess, admin: Admin,
) -> None:
    admin.create_topic("both", queues=1)
    wait_until(lambda: len(admin.topic_stats("both").queues) == 2, "both brokers have it")
    task = sink(first, "both", sendBatchRows="1")
    batch = rows()

    assert written(task, batch) == (COUNT, 0)
    indexed(admin, "both")
    assert {queue.max_offset for queue in admin.topic_stats("both").queues} == {COUNT // 2}
    admin.wipe_write_perm("second")
    assert written(task, batch) == (0, COUNT)


def test_two_writes_of_one_micro_batch_are_two(first: MqcoreProcess, admin: Admin,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """As within foreachBatch, where the context names the query for all of them."""
    class Context:
        def getLocalProperty(self, name: str) -> str:
            return {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}[name]

        def partitionId(self) -> int:
            return 0

        def attemptNumber(self) -> int:
            return 0

    monkeypatch.setattr("mqcore.spark.topics.writer.TaskContext.get", Context)
    admin.create_topic("audited", queues=1)
    orders, audit = (sink(first, "audited", kind=TopicWriter) for _ in range(2))

    assert written(orders, rows()) == written(audit, rows()) == (COUNT, 0)
    streams = [sink(first, "audited", kind=TopicStreamWriter) for _ in range(2)]
    assert written(streams[0], rows()) == (COUNT, 0)
    indexed(admin, "audited", 3 * COUNT)
    assert written(streams[1], rows()) == (0, COUNT)


def test_a_stream_goes_on_with_the_brokers_that_answer(
    first: MqcoreProcess, second: MqcoreProcess, admin: Admin,
) -> None:
    admin.create_topic("ends", queues=1)
    wait_until(lambda: len(admin.topic_stats("ends").queues) == 2, "both brokers have it")
    ends = Ends(TopicRead(read_options({
        "nameServer": first.namesrv_addr, "topic": "ends", "pollInterval": "10ms",
        "rocketmq.callTimeout": "300ms"}, ROCKETMQ, STREAM, "rocketmq"), all_columns()))
    assert set(ends.latest().values()) == {0}
    queue = next(one for one in ends.latest() if one.broker_name != "second")
    family = second.family()
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    try:
        with Producer("p", namesrv=first.namesrv_addr) as producer:
            producer.send("ends", "x", queue=queue)
        wait_until(lambda: ends.latest()[queue] == 1, "its new end is known")
    finally:
        for pid in family:
            os.kill(pid, signal.SIGCONT)
    assert ends.latest()[MessageQueue("ends", "second", 0)] == 0
