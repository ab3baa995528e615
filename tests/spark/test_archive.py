"""The job `archive`: topics are in a table, each message once."""
from __future__ import annotations

import shutil
import threading

from mqcore.client.message import MessageQueue
from mqcore.spark import read_lake
from mqcore.spark.lake.opening import open_table
from tests.spark.test_kills import killed_when
from tests.spark.world import World
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import free_broker_port, free_port
from tests.support.waiting import wait_until

KEY = ["topic", "brokerName", "queueId", "queueOffset"]


def archived(world, path, topic, **options):
    """Run the job; what it says."""
    from mqcore.spark.jobs.archive import archive

    source = {"nameServer": world.namesrv, "subscribe": topic, **options.pop("source", {})}
    return archive(world.spark, path, source, **options)


def in_order(frame):
    """All rows, properties as lists of pairs."""
    return frame.drop("gapEnd").orderBy(KEY).collect()


def test_each_message_is_in_the_table_once_bit_for_bit(world, tmp_path):
    topic, root = world.topic(2), tmp_path / "a [lake]"
    world.send(topic, 300)

    first = archived(world, root, topic, batch_rows=200,
                     source={"group": f"archive-{topic}"})
    again = archived(world, root, topic)
    world.send(topic, 50, begin=300)
    shutil.rmtree(root / "_mqcore_archive")         # then the table says where to go on
    last = archived(world, root, topic, verify=True, source={"startingOffsets": "earliest"})

    assert [(one.status, one.figures["rows"]) for one in (first, again, last)] == [
        (0, 300), (0, 0), (0, 50)]
    assert first.figures["batches"] == 2
    assert last.figures["tableRows"] == 350
    assert in_order(read_lake(world.spark, root)) == in_order(world.read(topic))
    for number in range(2):
        queue = MessageQueue(topic, world.broker_name, number)
        assert 0 < world.admin.committed(f"archive-{topic}", queue) < world.admin.max_offset(queue)


def test_a_broker_that_is_killed_and_comes_back_costs_nothing(spark, tmp_path):
    ports: dict[str, object] = {
        "broker.listen_port": free_broker_port(), "namesrv.listen_port": free_port()}

    class Begun:
        def exists(self) -> bool:
            return any((tmp_path / "lake").rglob("mq-*.parquet"))

    with mqcore_up(tmp_path, ports) as first, World(spark, first.namesrv_addr) as world:
        topic = world.topic(2)
        world.send(topic, 6_000, body=500)
        with killed_when(Begun(), first, tmp_path, ports):
            done = archived(world, tmp_path / "lake", topic, verify=True, batch_rows=4_000,
                            sink={"rowGroupBytes": "40k"}, source={
                                "timeout": "90s", "pullsInFlight": "1", "rowsPerBatch": "50"})
            assert (done.status, done.figures["tableRows"]) == (0, 6_000)
            assert world.numbers(read_lake(spark, tmp_path / "lake")) == list(range(6_000))


def test_maintenance_goes_on_beside_an_archive_that_goes_on(world, tmp_path):
    from mqcore.spark.jobs.lake_maintain import lake_maintain

    topic, root, stop = world.topic(2), tmp_path / "lake", threading.Event()
    outcomes = []
    running = threading.Thread(target=lambda: outcomes.append(archived(
        world, root, topic, every_s=0.2, batch_rows=40, stop=stop, verify=True)))
    running.start()
    try:
        table = open_table(root)
        compacted = 0
        for turn in range(1, 4):
            world.send(topic, 100, begin=100 * turn - 100)
            wait_until(lambda: table.exists() and len(table.state().files) > 1, "files are there")
            reader = read_lake(world.spark, root)
            seen = reader.count()
            compacted += lake_maintain(world.spark, root).figures["filesCompacted"]
            assert reader.count() == seen
        wait_until(lambda: table.state().rows == 300, "all is archived")
    finally:
        stop.set()
        running.join()

    assert compacted > 3
    assert [(one.status, one.figures["rows"]) for one in outcomes] == [(0, 300)]
    assert in_order(read_lake(world.spark, root)) == in_order(world.read(topic))
