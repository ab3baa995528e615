"""The jobs `replay` and `lake-maintain`, each after an archive."""
from __future__ import annotations

import json
import time

import pytest

from mqcore.admin.cli import main
from mqcore.spark import read_lake
from tests.spark.test_archive import archived, in_order
from tests.spark.world import KeptSession

KEPT = ["body", "tags", "keys", "flag", "properties['n'] n"]


def replayed(world, root, target, **options):
    from mqcore.spark.jobs.replay import Choice, replay

    choice = Choice(**options.pop("choice", {}))
    return replay(world.spark, root, target, {"nameServer": world.namesrv}, choice, **options)


def test_what_is_archived_and_replayed_and_archived_is_the_same(world, tmp_path):
    source, target = world.topic(2), world.topic(3)
    world.send(source, 400)
    archived(world, tmp_path / "first", source)

    dry = replayed(world, tmp_path / "first", target, dry_run=True)
    done = replayed(world, tmp_path / "first", target, step_rows=150)
    assert (dry.figures["messages"], done.figures["messages"], done.figures["steps"]) == (
        400, 400, 3)
    # as if the driver had died in the last step: it is sent again, and found
    (tmp_path / "first/_mqcore_replay/replay/step-000002.done").unlink()
    again = replayed(world, tmp_path / "first", target, step_rows=150)
    archived(world, tmp_path / "second", target)

    assert (again.figures["stepsBefore"], again.figures["resumed"]) == (2, True)
    first = read_lake(world.spark, tmp_path / "first")
    second = read_lake(world.spark, tmp_path / "second")
    place = ["cast(properties['MQCORE_ORIGIN_QUEUE_ID'] as int) origin_queue",
             "cast(properties['MQCORE_ORIGIN_OFFSET'] as bigint) origin_offset",
             "properties['MQCORE_ORIGIN_TOPIC'] origin_topic"]
    came = second.selectExpr("brokerName", "queueId", "queueOffset", *place, *KEPT).orderBy(
        "queueId", "queueOffset").collect()
    assert sorted(row[3:] for row in came) == sorted(tuple(row) for row in first.selectExpr(
        "queueId", "queueOffset", "topic", *KEPT).collect())
    order = [(row["queueId"], row["origin_queue"], row["origin_offset"]) for row in came]
    assert order == sorted(order)

    with pytest.raises(Exception, match="is where the messages come from"):
        replayed(world, tmp_path / "first", source, name="back")
    with pytest.raises(Exception, match="begun with other choices"):
        replayed(world, tmp_path / "first", source)
    chosen = {"where": "tags = 't1'", "keys": ("k1", "k2", "k4", "k7"), "ends": (
        f'{{"{source}": {{"{world.broker_name}": {{"0": 9999, "1": 0}}}}}}')}
    few = replayed(world, tmp_path / "first", target, dry_run=True, choice=chosen, name="few")
    count = first.where("queueId = 0 AND keys[0] IN ('k1', 'k4', 'k7')").count()
    assert few.figures["messages"] == count
    began = time.monotonic()
    replayed(world, tmp_path / "first", target, choice={"keys": ("k5",)}, name="slow", rate=1)
    replayed(world, tmp_path / "first", target, choice={"where": "queueId = 0 AND queueOffset < 3"},
             name="slower", rate=2)
    assert time.monotonic() - began >= 1.0
    assert world.read(target).count() == 404


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_maintenance_changes_files_and_no_row(world, tmp_path, kind):
    from mqcore.spark.jobs.lake_maintain import lake_maintain
    from mqcore.spark.lake.content import content

    topic, root = world.topic(2), tmp_path / "lake"
    world.send(topic, 200)
    archived(world, root, topic, batch_rows=60, sink={"tableFormat": kind})
    before = read_lake(world.spark, root)
    orphan = next(root.glob("**/mq-*.parquet")).with_name("mq-of-a-dead-try.parquet")
    orphan.write_bytes(b"PAR1")

    done = lake_maintain(world.spark, root, latest=tmp_path / "latest" if kind == "parquet" else
                         None)

    after = read_lake(world.spark, root)
    assert done.status == 0
    assert done.figures["filesAfter"] == 1 < done.figures["filesBefore"]
    assert content(after) == content(before)            # whose files a reader still has
    offsets = [(row[0], row[1]) for row in after.select("queueId", "queueOffset").collect()]
    assert offsets == sorted(offsets)
    assert orphan.exists()
    swept = lake_maintain(world.spark, root, compact=False, orphans_after_s=-1)
    assert swept.figures["filesRemoved"] == done.figures["filesBefore"] + 1
    assert in_order(read_lake(world.spark, root)) == in_order(world.read(topic))
    if kind == "parquet":
        assert done.figures["latestRows"] == 200
        dropped = lake_maintain(world.spark, root, compact=False, keep_s=-86_400.0)
        assert dropped.figures["rows"] == 0


def test_each_is_a_command(world, tmp_path, capsys, monkeypatch):
    from mqcore.spark.jobs import frame

    source, target, lake = world.topic(2), world.topic(2), str(tmp_path / "lake")
    monkeypatch.setattr(frame, "session", lambda *_: KeptSession(world.spark))

    def said(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["spark", *arguments])
        (line,) = capsys.readouterr().out.splitlines()
        report = json.loads(line)
        assert (ended.value.code, report["status"], report["job"]) == (0, 0, arguments[0])
        return report

    world.send(source, 60)
    archive = said("archive", lake, "-n", world.namesrv, "--topics", source, "--verify",
                   "--batch-rows", "25", "--format", "parquet", "--sink", "compression=none",
                   "--group", f"archive-{source}")
    replay = said("replay", lake, target, "-n", world.namesrv, "--from", "2001-01-01T00:00:00Z",
                  "--to", "2100-01-01T00:00:00Z", "--key", "k5", "--key", "k7",
                  "--where", "queueOffset >= 0", "--name", "few", "--broken", "skip")
    maintained = said("lake-maintain", lake, "--keep", "30d", "--target-bytes", "1000000",
                      "--orphans-after", "1h", "--latest", str(tmp_path / "latest"))

    assert (archive["rows"], archive["wrongQueues"], archive["groupCommitted"]) == (60, [], True)
    assert (replay["messages"], replay["broken"]) == (2, 0)
    assert world.numbers(world.read(target)) == [5, 7]
    assert (maintained["filesAfter"], maintained["rows"], maintained["latestRows"]) == (1, 60, 60)
