"""Streams of topics."""
from __future__ import annotations

import json
import uuid

import pytest

pytest.importorskip("pyspark")

from mqcore.client.message import MessageQueue
from mqcore.spark import Progress, track
from tests.spark.world import forget_commit
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _both(source):
    """Each test runs on the source in Python and on the one in the JVM."""


def memory(world, frame, checkpoint):
    """Run a stream up to what is there; its query and the frame of what came out."""
    name = f"m{uuid.uuid4().hex}"
    query = world.run(frame, checkpoint, "memory", queryName=name)
    return query, world.spark.table(name)


def live(world, frame, checkpoint, **options):
    """A stream that runs on, and the name of the table of what comes out."""
    name = f"m{uuid.uuid4().hex}"
    writer = frame.writeStream.format("memory").queryName(name)
    return writer.option("checkpointLocation", str(checkpoint)).start(), name


def test_a_stream_is_the_batch_in_parts(world, tmp_path):
    """Apache's connector has no trigger that reads what is there and ends."""
    topic = world.topic()
    world.send(topic, 2_000)

    query, out = memory(world, world.stream(topic, startingOffsets="earliest",
                                            maxOffsetsPerTrigger=700), tmp_path)

    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert len(sizes) == 3
    assert max(sizes) <= 700
    key = ["queueId", "queueOffset"]
    batch = world.read(topic)
    columns = [name for name in batch.columns if name != "properties"]
    assert out.select(columns).orderBy(key).collect() == batch.select(columns).orderBy(
        key).collect()


def test_a_batch_may_be_limited_in_bytes(world, tmp_path):
    topic = world.topic(1)
    world.send(topic, 300, body=1_000)

    query, out = memory(world, world.stream(topic, startingOffsets="earliest",
                                            maxBytesPerTrigger="120k"), tmp_path)

    assert out.count() == 300
    assert 3 <= len(query.recentProgress) <= 5


def test_queues_and_topics_that_are_new_are_read_from_their_begin(world, tmp_path):
    first = world.topic(1)
    world.send(first, 10)
    frame = world.stream(subscribePattern=f"{first}.*", startingOffsets="latest",
                         stateDir=str(tmp_path / "state"))
    query, name = live(world, frame, tmp_path / "checkpoint")
    try:
        wait_until((tmp_path / "state" / "initial-offsets.json").exists, "the stream has begun")
        world.admin.create_topic(f"{first}-b", queues=1)
        world.send(f"{first}-b", 5, begin=100)
        world.admin.create_topic(first, queues=3)
        world.send(first, 30, begin=200)

        wait_until(lambda: world.spark.table(name).count() >= 35, "all was read")
        assert world.numbers(world.spark.table(name)) == [*range(100, 105), *range(200, 230)]
    finally:
        query.stop()


def test_a_stream_begins_again_where_it_began(world, tmp_path):
    """Spark asks twice for the first offsets, and again after a crash in the first batch."""
    topic = world.topic(2)
    world.send(topic, 10)
    frame = world.stream(topic, startingOffsets="latest", stateDir=str(tmp_path / "state"))
    world.run(frame, tmp_path / "unused", "noop")           # nothing came since: no batch is done
    world.send(topic, 20, begin=10)

    name = f"m{uuid.uuid4().hex}"
    out = tmp_path / "out"
    world.run(frame, tmp_path / "checkpoint", "parquet", path=str(out))
    first = world.numbers(world.spark.read.parquet(str(out)))
    forget_commit(tmp_path / "checkpoint", 0)
    again = []
    writer = frame.writeStream.foreachBatch(lambda part, _: again.extend(world.numbers(part)))
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).queryName(name).trigger(
        availableNow=True).start().awaitTermination()

    assert first == list(range(10, 30))
    assert sorted(again) == first


def test_a_group_and_its_lag_are_where_operators_look(world, tmp_path):
    """Behind the last message, not at it: Apache's connector reads one again at each restart."""
    topic = world.topic(2)
    world.send(topic, 100)
    group = f"group-{topic}"
    heard = []
    tracker = track(world.spark, nameServer=world.namesrv, topic=topic, group=group,
                    on_progress=heard.append)
    try:
        query = world.run(world.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=60),
                          tmp_path, "noop")
        assert tracker.wait(query)
    finally:
        tracker.stop()

    first, second = (progress.rows for progress in heard)          # shares are rounded down
    assert first + second == 100
    assert 58 <= first <= 60
    assert [progress.total_lag for progress in heard] == [second, 0]
    for queue, offset in heard[-1].offsets.items():
        assert world.admin.committed(group, queue) == offset == world.admin.max_offset(queue)
    late = track(query, nameServer=world.namesrv, topic=topic, group=f"late-{topic}")
    try:
        assert late.wait(query)         # of a query that has ended
    finally:
        late.stop()
    for queue, offset in heard[-1].offsets.items():
        assert world.admin.committed(f"late-{topic}", queue) == offset
    world.send(topic, 5, begin=100)
    assert world.numbers(world.read(topic, startingOffsets="group", group=group)) == list(
        range(100, 105))


def test_the_lag_of_a_batch_that_is_done_again_is_what_came_since(world, tmp_path):
    """Spark knows no end of the queues for the first batch behind a restart."""
    topic = world.topic(2)
    world.send(topic, 40)
    frame = world.stream(topic, startingOffsets="earliest")
    world.run(frame, tmp_path, "noop")
    forget_commit(tmp_path, 0)
    world.send(topic, 30, begin=40)
    heard = []
    tracker = track(world.spark, nameServer=world.namesrv, topic=topic, on_progress=heard.append)
    try:
        assert tracker.wait(world.run(frame, tmp_path, "noop"))
    finally:
        tracker.stop()

    assert [(one.batch, one.rows, one.total_lag) for one in heard] == [(0, 40, 30), (1, 30, 0)]


def test_an_unknown_lag_is_not_nothing():
    known, unknown = (MessageQueue("t", "b", number) for number in range(2))
    offsets = {known: 5, unknown: 7}

    part = Progress("q", 1, 2, offsets, {known: 3})
    assert part.total_lag is None
    assert part.as_json()["lagByQueue"] == {"t": {"b": {"0": 3}}}
    assert Progress("q", 1, 2, offsets, {known: 3, unknown: 0}).total_lag == 3


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_is_made_anew_is_an_error_or_read_from_its_begin(world, tmp_path, fails):
    topic = world.topic(1)
    world.send(topic, 50)
    frame = world.stream(topic, startingOffsets="earliest", failOnDataLoss=fails)
    memory(world, frame, tmp_path)
    world.admin.delete_topic(topic)
    world.admin.create_topic(topic, queues=1)
    queue = MessageQueue(topic, world.broker_name, 0)
    wait_until(lambda: world.admin.max_offset(queue) == 0, "the queue is empty")
    world.send(topic, 7, begin=100)

    rows = []
    writer = frame.writeStream.foreachBatch(lambda part, _: rows.extend(world.numbers(part)))
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        if fails == "true":
            with pytest.raises(Exception, match="its topic was made anew"):
                query.awaitTermination(60)
            assert rows == []
        else:
            wait_until(lambda: len(rows) >= 7, "all was read")
            assert rows == list(range(100, 107))
    finally:
        query.stop()


def test_the_offsets_of_a_stream_are_text_that_does_not_change(world, tmp_path):
    topic = world.topic(12)
    world.send(topic, 24)

    memory(world, world.stream(topic, startingOffsets="earliest"), tmp_path)

    text = (tmp_path / "offsets" / "0").read_text().splitlines()[-1]
    said = json.loads(text)
    assert said["v"] == 1
    assert text == json.dumps(said, separators=(",", ":"), sort_keys=True) or list(
        said["offsets"][topic].values()) == [dict(sorted(
            next(iter(said["offsets"][topic].values())).items()))]
