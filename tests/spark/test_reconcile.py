"""The job `reconcile` finds exactly the losses and duplicates that were put in."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqcore.client.message import MessageQueue
from mqcore.spark.errors import OptionError
from tests.spark.world import KeptSession, World

COUNT = 1_200


def wrong(report: dict[str, Any]) -> dict[str, int]:
    return {name: report[name] for name in ("lost", "extra", "duplicates", "changed")}


def places(report: dict[str, Any], kind: str) -> set[tuple[int, int]]:
    return {(one["queueId"], offset) for one in report["findings"] if one["kind"] == kind
            for offset in range(one["begin"], one["end"])}


def test_losses_duplicates_and_changes_are_found_exactly_while_traffic_runs(
        world: World, tmp_path: Path) -> None:
    from mqcore.spark.jobs.reconcile import ID, reconcile

    topic = world.topic(2)
    world.send(topic, COUNT)
    table = str(tmp_path / "table")
    world.read(topic).coalesce(1).write.parquet(table)
    copy = world.spark.read.parquet(table)
    fence = {MessageQueue(topic, world.broker_name, queue): world.admin.max_offset(
        MessageQueue(topic, world.broker_name, queue)) for queue in (0, 1)}
    world.send(topic, 100, begin=COUNT)             # goes on; not in the table yet
    live = world.read(topic)
    far = 1 << 60

    same = reconcile(live, copy, until=far, fence=fence, keys=True)
    assert (same.status, wrong(same.figures)) == (0, dict.fromkeys(
        ("lost", "extra", "duplicates", "changed"), 0))
    assert (same.figures["left"], same.figures["right"]) == (COUNT, COUNT)
    assert same.figures["keys"] == {"count": COUNT, "different": 0, "findings": []}

    lost = "queueId = 0 AND queueOffset IN (7, 8, 9, 100) OR queueId = 1 AND queueOffset = 3"
    twice = "queueId = 1 AND queueOffset IN (20, 21)"
    other = "queueId = 0 AND queueOffset = 50"
    more = copy.where("queueOffset < 3").withColumn("queueOffset", copy.queueOffset + 10_000)
    broken = copy.where(f"NOT ({lost})").union(copy.where(twice)).union(more).selectExpr(*[
        f"IF({other}, cast('other' AS binary), body) AS body" if name == "body" else name
        for name in copy.columns])
    found = reconcile(copy, broken, until=far, keys=True)

    assert found.status == 1
    assert wrong(found.figures) == {"lost": 5, "extra": 6, "duplicates": 2, "changed": 1}
    assert places(found.figures, "lost") == {(0, 7), (0, 8), (0, 9), (0, 100), (1, 3)}
    assert places(found.figures, "extra") == {
        (queue, 10_000 + offset) for queue in (0, 1) for offset in range(3)}
    assert places(found.figures, "duplicate") == {(1, 20), (1, 21)}
    assert places(found.figures, "changed") == {(0, 50)}
    assert found.figures["keys"]["different"] == 6
    by_id = reconcile(copy.drop("queueId", "queueOffset"), broken, by=ID, until=far)
    assert wrong(by_id.figures) == {"lost": 5, "extra": 0, "duplicates": 8, "changed": 1}


def test_what_the_left_side_has_deleted_is_no_alarm_and_what_it_lacks_is_counted(
        spark: Any) -> None:
    from mqcore.spark.jobs.reconcile import reconcile

    whole = spark.range(0, 50, 1, 1).selectExpr(
        "'t' topic", "'b' brokerName", "0 queueId", "id queueOffset",
        "timestamp_millis(id) storeTimestamp", "cast(cast(id AS string) AS binary) body")
    left = whole.where("queueOffset >= 20 AND queueOffset <> 30")

    found = reconcile(left, whole.where("queueOffset <> 30"), until=1 << 60)
    early = reconcile(left, whole.limit(0), until=20)

    assert (found.status, found.figures["expired"], found.figures["gaps"]) == (0, 20, 1)
    assert (early.status, early.figures["left"]) == (0, 0)


def test_sides_that_cannot_be_compared_are_told(spark: Any) -> None:
    from mqcore.spark.jobs.reconcile import reconcile

    plain = spark.range(1).selectExpr("'t' topic", "cast('x' AS binary) body")
    with pytest.raises(OptionError, match="the left side has no column brokerName"):
        reconcile(plain, plain)


def test_the_command_takes_two_sides_and_says_one_line(
        world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    from mqcore.spark.jobs import frame
    from mqcore.spark.jobs.reconcile import command

    topic = world.topic(1)
    world.send(topic, 30)
    world.read(topic).write.parquet(str(tmp_path / "table"))
    monkeypatch.setattr(frame, "session", lambda *_: KeptSession(world.spark))
    with pytest.raises(SystemExit) as ended:
        command.main(["--left", "rocketmq", "--left-option", f"nameServer={world.namesrv}",
                      "--left-option", f"topic={topic}", "--right",
                      f"parquet:{tmp_path / 'table'}", "--settle", "0", "--keys"])

    said = json.loads(capsys.readouterr().out)
    assert (ended.value.code, said["job"], said["left"]) == (0, "reconcile", 30)
