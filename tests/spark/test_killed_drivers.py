"""A driver of archives and other jobs is killed: nothing is lost, nothing twice."""
from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from mqcore.client.admin import Admin
from mqcore.client.message import MessageQueue
from mqcore.spark import read_lake
from mqcore.spark.jobs.lake_maintain import lake_maintain
from mqcore.spark.jobs.migrate import Migration
from mqcore.spark.jobs.replay import Choice, replay
from mqcore.spark.lake.content import content
from mqcore.spark.lake.opening import open_table
from tests.spark.drivers import killed
from tests.spark.test_archive import archived, in_order
from tests.spark.test_dlq import Letters
from tests.spark.test_lake_jobs import KEPT
from tests.spark.test_migrate import rows
from tests.spark.world import World

COUNT, MOVED = 300, 100
NAMES = ("before", "after", "middle")
ARCHIVES = ("parquet-before", "delta-after", "iceberg-after")


def stored(admin: Admin, broker_name: str, topic: str) -> int:
    """Messages of a topic of two queues."""
    return sum(admin.max_offset(MessageQueue(topic, broker_name, number)) for number in range(2))


def archives_go_on(world: World, topic: str, folders: list[Path]) -> None:
    """Of a driver that was killed before and after a commit."""
    tables = [open_table(folder, folder.name.partition("-")[0]) for folder in folders]
    assert [table.exists() and table.state().rows for table in tables] == [False, COUNT, COUNT]
    files = [len(list(table.root.rglob("mq-*.parquet"))) for table in tables]
    assert min(files) > 0
    world.send(topic, 20, begin=COUNT)

    expected = in_order(world.read(topic))
    for table, count in zip(tables, files, strict=True):
        done = archived(world, table.root, topic, verify=True)
        assert (done.status, done.figures["tableRows"]) == (0, COUNT + 20)
        assert in_order(read_lake(world.spark, table.root)) == expected
        # the dead driver's files are those of the table, or of nobody: then of the batch that
        # found itself there nothing stayed
        orphans = len(table.orphans(round(1e15)))
        assert orphans == (count if table.root.name.endswith("before") else 0)


@pytest.mark.slow
@pytest.mark.drivers
@pytest.mark.timeout(900)               # eleven jobs, which all go on afterwards
def test_jobs_whose_driver_is_killed_go_on_and_nothing_is_lost_or_twice(
        world: World, target: Admin, tmp_path: Path) -> None:
    sent_to = partial(stored, world.admin, world.broker_name)
    moved_to = partial(stored, target, target.clusters()[0].brokers[0].broker_name)
    source, lake, kept = world.topic(2), tmp_path / "lake", world.topic(2)
    archives = [tmp_path / name for name in ARCHIVES]
    world.send(source, COUNT)
    world.send(kept, COUNT)
    archived(world, lake, source, batch_rows=100)
    tables = [shutil.copytree(lake, tmp_path / f"table-{name}") for name in NAMES[:2]]
    replays = {name: world.topic(2) for name in NAMES}
    moved = {name: (tmp_path / "states" / name, world.topic(2)) for name in ("before", "middle")}
    (tmp_path / "states").mkdir()
    for _, topic in moved.values():
        world.send(topic, MOVED)
    letters = Letters.given_up(world, tmp_path / "ledger")
    signs = [*(table / "held" for table in (*archives, *tables)),
             *(lake / "_mqcore_replay" / name / "held" for name in NAMES[:2]),
             moved["before"][0].with_suffix(".held")]

    def is_time() -> bool:
        return all(sign.exists() for sign in signs) and (
            sent_to(replays["middle"]) > 20 and moved_to(moved["middle"][1]) > 10)

    killed("jobs_to_kill", json.dumps({
        "namesrv": world.namesrv, "target": target.namesrv, "archived": kept,
        "archives": list(map(str, archives)), "table": str(lake), "tables": list(map(str, tables)),
        "replays": replays, "letters": [letters.group, letters.topic, str(letters.ledger)],
        "migrations": {
            name: [str(state), topic] for name, (state, topic) in moved.items()}}),
        folder=tmp_path, when=is_time)
    letters.resume(world)
    archives_go_on(world, kept, archives)
    assert [sent_to(replays[name]) for name in NAMES[:2]] == [150, 150]
    assert moved_to(moved["before"][1]) == MOVED
    assert 20 < sent_to(replays["middle"]) < COUNT
    assert 10 < moved_to(moved["middle"][1]) < MOVED

    for name, step in zip(NAMES, (0, 1, 0), strict=True):
        done = replay(world.spark, lake, replays[name], {"nameServer": world.namesrv}, Choice(),
                      name=name)
        assert (done.figures["resumed"], done.figures["stepsBefore"]) == (True, step)
    for state, topic in moved.values():
        went = Migration({"nameServer": world.namesrv}, {"nameServer": target.namesrv}, state,
                         topics=topic).copy(world.spark)
        assert (went.status, went.figures["there"], went.figures["behind"]) == (0, MOVED, 0)

    sent = world.read(subscribe=",".join(replays.values())).selectExpr(
        "topic", "queueId", "queueOffset", "cast(properties['MQCORE_ORIGIN_QUEUE_ID'] AS int) q",
        "cast(properties['MQCORE_ORIGIN_OFFSET'] AS bigint) o", *KEPT).orderBy(
        "topic", "queueId", "queueOffset").collect()
    archived_rows = world.read(source).selectExpr("queueId", "queueOffset", *KEPT).collect()
    for topic in replays.values():
        came = [row[3:] for row in sent if row["topic"] == topic]
        assert sorted(came) == sorted(map(tuple, archived_rows))
    places = [(row["topic"], row["queueId"], row["q"], row["o"]) for row in sent]
    assert places == sorted(places)

    there = world.spark.read.format("rocketmq").options(
        nameServer=target.namesrv, subscribe=",".join(topic for _, topic in moved.values())).load()
    assert rows(there) == rows(world.read(subscribe=",".join(
        topic for _, topic in moved.values())))

    same = content(read_lake(world.spark, lake))
    for table in tables:
        assert content(read_lake(world.spark, table)) == same
        done = lake_maintain(world.spark, table, orphans_after_s=-1)
        assert done.figures["filesAfter"] == 1
        assert content(read_lake(world.spark, table)) == same
