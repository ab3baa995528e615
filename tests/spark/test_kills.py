"""Brokers that die while tasks read and write, and brokers of others."""
from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from mqcore.spark.topics.idle import Idle
from tests.spark.world import World, forget_commit
from tests.support.ci import unavailable
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stock import StockError, free_broker_port, free_port, have_stock, stock_cluster
from tests.support.waiting import wait_until

COUNT = 6_000


def slowly(frame, begun: Path):
    """The same rows; each takes a moment, and the first leaves a sign."""
    from pyspark.sql.functions import udf

    @udf("binary", useArrow=False)
    def given(body):
        begun.touch()
        threading.Event().wait(0.001)
        return body

    return frame.withColumn("body", given("body"))


@contextlib.contextmanager
def killed_when(begun: Path, first: MqcoreProcess, folder: Path, ports: dict[str, object]):
    """A broker that dies when a file is there, and comes back with its store."""
    ended, troubles = threading.Event(), []

    def fate() -> None:
        try:
            wait_until(begun.exists, "the job reads", 240)
            first.kill()
            with mqcore_up(folder, ports):      # its processes live as long as this thread
                ended.wait(300)
        except BaseException as error:
            troubles.append(error)

    thread = threading.Thread(target=fate)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert troubles == []


@pytest.mark.parametrize("what", ["read", "write"])
def test_a_broker_that_is_killed_and_comes_back_costs_nothing(spark, tmp_path, what):
    ports: dict[str, object] = {
        "broker.listen_port": free_broker_port(), "namesrv.listen_port": free_port()}
    begun = tmp_path / "begun"
    with mqcore_up(tmp_path, ports) as first, World(spark, first.namesrv_addr) as world:
        topic, target = world.topic(2), world.topic(2)
        world.send(topic, COUNT, body=500)
        with killed_when(begun, first, tmp_path, ports):
            frame = slowly(world.read(topic, rowsPerBatch=100, pullsInFlight=1, timeout="90s"),
                           begun)
            if what == "write":
                world.write(frame.drop("queueId"), target, timeout="20s", retries=40,
                            sendBatchRows=50, deliveryGuarantee="effectively-once")
                frame = world.read(target, timeout="60s")
            assert world.numbers(frame) == list(range(COUNT))


@pytest.mark.interop
def test_a_stock_broker_is_read_and_written_alike(spark, tmp_path):
    if not have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    properties = {"mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 20_000 * 20,
                  "maxHashSlotNum": 50_000, "maxIndexNum": 200_000, "enablePropertyFilter": True,
                  "accessMessageInMemoryMaxRatio": 0}       # all counts as cold: 8 at a time
    try:
        with stock_cluster(tmp_path, properties) as stock, World(
                spark, stock.namesrv_addr) as world:
            source, target = world.topic(2), world.topic(2)
            world.send(source, 2_000)
            query = world.run(
                world.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=1_200)
                .drop("queueId"), tmp_path / "checkpoint", topic=target,
                deliveryGuarantee="effectively-once", sendBatchRows=100)

            sizes = [progress["numInputRows"] for progress in query.recentProgress]
            assert (len(sizes), sum(sizes)) == (2, 2_000)
            assert world.numbers(world.read(target)) == list(range(2_000))
            assert world.numbers(world.read(source, subExpression="t1")) == list(range(1, 2_000, 3))
            assert world.numbers(world.read(
                source, subExpression="n < 7", subExpressionType="sql92")) == list(range(7))
            forget_commit(tmp_path / "checkpoint", 1)
            world.run(
                world.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=1_200)
                .drop("queueId"), tmp_path / "checkpoint", topic=target,
                deliveryGuarantee="effectively-once", sendBatchRows=100)
            assert world.numbers(world.read(target)) == list(range(2_000))
    except StockError as error:
        unavailable(str(error))


def test_connections_are_used_again_and_closed_when_idle():
    """Apache's streams make a consumer for each task."""
    closed: list[str] = []
    kept: Idle[str] = Idle(closed.append, idle_s=0.0)
    kept.give("a", "one")
    assert kept.take("b") is None
    assert kept.take("a") == "one"
    assert kept.take("a") is None
    kept.give("a", "two")
    kept._look()
    assert closed == ["two"]
