"""What happens to topics, messages and offsets while a query runs."""
from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from mqcore.client.message import MessageQueue
from mqcore.spark import track
from tests.retention.test_live import ALWAYS, SMALL
from tests.spark.world import World
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until

BODY = 3_000                        # a batch of 16 stays below the broker's limit


def collecting(frame: Any, checkpoint: Path, rows: list[Any], *columns: str) -> Any:
    """A query that runs, and puts what it reads into a list."""
    writer = frame.selectExpr(*columns).writeStream.foreachBatch(
        lambda part, _: rows.extend(tuple(row) for row in part.collect()))
    return writer.option("checkpointLocation", str(checkpoint)).queryName(
        f"q{uuid.uuid4().hex}").start()


def test_retention_that_deletes_behind_the_reader_is_an_error_or_a_gap_to_the_last_offset(
        spark: Any, tmp_path: Path) -> None:
    with mqcore_up(tmp_path / "broker", {**SMALL, **ALWAYS}) as broker, World(
            spark, broker.namesrv_addr) as world:
        topic = world.topic(1)
        queue = MessageQueue(topic, world.broker_name, 0)
        world.send(topic, 100, body=BODY)
        world.run(world.stream(topic, startingOffsets="earliest"), tmp_path / "checkpoint", "noop")
        sent = 100
        deadline = time.monotonic() + 60
        while world.admin.min_offset(queue) <= 100:
            assert time.monotonic() < deadline
            world.send(topic, 200, begin=sent, body=BODY)
            sent += 200

        with pytest.raises(Exception, match=r"offsets 100 to \d+ .*: retention"):
            world.run(world.stream(topic), tmp_path / "checkpoint", "noop")
        rows: list[Any] = []
        query = collecting(
            world.stream(topic, columns="queueOffset,gapEnd,body", failOnDataLoss="false",
                         maxOffsetsPerTrigger=400), tmp_path / "checkpoint", rows,
            "queueOffset", "gapEnd", "cast(split(cast(body AS string), ':')[0] AS int)")
        try:
            for _ in range(3):                          # goes on being deleted meanwhile
                world.send(topic, 200, begin=sent, body=BODY)
                sent += 200
            wait_until(lambda: rows and max(
                end or offset + 1 for offset, end, _ in rows) == sent, "all was read")
        finally:
            query.stop()

    at = 100
    for offset, end, number in sorted(rows):
        assert offset == at                             # nothing twice, nothing left out
        assert (end is None) == (number == offset)
        at = offset + 1 if end is None else end
    assert at == sent
    assert any(end is not None for _, end, _ in rows)


def test_a_topic_that_is_deleted_ends_its_query_or_lets_others_go_on(
        world: World, tmp_path: Path) -> None:
    first, second = world.topic(1), world.topic(1)
    world.send(first, 10)
    world.send(second, 10, begin=10)
    rows: list[Any] = []
    others: list[Any] = []
    queries = [collecting(
        world.stream(subscribe=f"{first},{second}", startingOffsets="earliest",
                     failOnDataLoss=fails, timeout="1s"), tmp_path / fails, found,
        "cast(split(cast(body AS string), ':')[0] AS int)")
        for fails, found in (("true", others), ("false", rows))]
    try:
        wait_until(lambda: len(rows) == len(others) == 20, "both were read")
        world.admin.delete_topic(first)
        with pytest.raises(Exception, match=rf"topic {first} (has no route \(any|on .* ends at 0)"):
            queries[0].awaitTermination(60)
        world.send(second, 5, begin=20)
        wait_until(lambda: len(rows) == 25, "the other topic goes on")
        assert sorted(number for number, in rows) == list(range(25))
    finally:
        for query in queries:
            query.stop()


def test_a_group_that_is_reset_changes_nothing_and_is_put_right_with_the_next_batch(
        world: World, tmp_path: Path) -> None:
    topic = world.topic(1)
    group, queue = f"group-{topic}", MessageQueue(topic, world.broker_name, 0)
    rows: list[Any] = []
    frame = world.stream(topic, startingOffsets="earliest")
    tracker = track(world.spark, nameServer=world.namesrv, topic=topic, group=group)
    query = collecting(frame, tmp_path, rows, "queueOffset")
    try:
        world.send(topic, 50)
        wait_until(lambda: world.admin.committed(group, queue) == 50, "the batch is committed")
        world.admin.set_offset(group, queue, 5)
        world.send(topic, 50, begin=50)
        wait_until(lambda: world.admin.committed(group, queue) == 100, "the group is put right")
    finally:
        query.stop()
        tracker.stop()

    assert rows == [(offset,) for offset in range(100)]
