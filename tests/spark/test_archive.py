"""The job `archive`: topics are in a table, each message once."""
from __future__ import annotations

import shutil

import pytest

from mqcore.client.message import MessageQueue
from mqcore.spark import read_lake

KEY = ["topic", "brokerName", "queueId", "queueOffset"]


def archived(world, path, topic, **options):
    """Run the job; what it says."""
    from mqcore.spark.jobs.archive import archive

    source = {"nameServer": world.namesrv, "subscribe": topic, **options.pop("source", {})}
    return archive(world.spark, path, source, **options)


def in_order(frame):
    """All rows, properties as lists of pairs."""
    return frame.drop("gapEnd").orderBy(KEY).collect()


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_each_message_is_in_the_table_once_bit_for_bit(world, tmp_path, kind):
    topic, root = world.topic(2), tmp_path / "a [lake]"
    world.send(topic, 300)
    sink = {"tableFormat": kind}

    first = archived(world, root, topic, sink=sink, batch_rows=200,
                     source={"group": f"archive-{topic}"})
    again = archived(world, root, topic)
    world.send(topic, 50, begin=300)
    shutil.rmtree(root / "_mqcore_archive")         # then the table says where to go on
    last = archived(world, root, topic, verify=True)

    assert [(one.status, one.figures["rows"]) for one in (first, again, last)] == [
        (0, 300), (0, 0), (0, 50)]
    assert first.figures["batches"] == 2
    assert last.figures["tableRows"] == 350
    assert in_order(read_lake(world.spark, root)) == in_order(world.read(topic))
    for number in range(2):
        queue = MessageQueue(topic, world.broker_name, number)
        assert 0 < world.admin.committed(f"archive-{topic}", queue) < world.admin.max_offset(queue)
