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
WRONG = ("lost", "extra", "duplicates", "changed")


def wrong(report: dict[str, Any]) -> dict[str, int]:
    return {name: report[name] for name in WRONG}


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
    assert (same.status, wrong(same.figures)) == (0, dict.fromkeys(WRONG, 0))
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


SCHEMA = ("topic string, brokerName string, queueId int, queueOffset bigint, ms bigint,"
          " body string, tags string, keys array<string>, msgId string, {}")
PLAIN: dict[str, Any] = {"brokerName": "b", "queueId": 0, "queueOffset": 0, "ms": 5, "body": "x"}


def rows(spark: Any, *given: dict[str, Any], properties: str = "map<string,string>") -> Any:
    """A frame of messages that differ from PLAIN in what is given."""
    columns = SCHEMA.format(f"properties {properties}")
    names = [column.split()[0] for column in columns.split(", ")]
    if properties == "string":
        given = tuple({**one, "properties": json.dumps(one["properties"])}
                      if isinstance(one.get("properties"), dict) else one for one in given)
    return spark.createDataFrame(
        [tuple({**PLAIN, **one}.get(name) for name in names) for one in given], columns,
    ).selectExpr("topic", "brokerName", "queueId", "queueOffset", "cast(body AS binary) body",
                 "tags", "keys", "msgId", "properties", "timestamp_millis(ms) storeTimestamp")


def of_topics(report: dict[str, Any], *names: str) -> dict[str, tuple[int, ...]]:
    counts: dict[str, tuple[int, ...]] = {}
    for queue in report["queues"]:
        before = counts.get(queue["topic"], (0,) * len(names))
        counts[queue["topic"]] = tuple(
            count + queue[name] for count, name in zip(before, names, strict=True))
    return counts


# what it is on the left side, and on the right one
MOVED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tags to keys": ({"tags": "x"}, {"keys": ["x"]}),
    "keys to properties": ({"keys": ["a", "b", "c"], "properties": {}},
                           {"keys": ["a"], "properties": {"b": "c"}}),
    "body to tags": ({"body": "x"}, {"body": None, "tags": "x"}),
    "no keys": ({"keys": None}, {"keys": []}),
    "a key that is none": ({"keys": ["x", None]}, {"keys": [None, "x"]}),
    "name to value": ({"properties": {"a": None, "b": "c"}},
                      {"properties": {"a": "b", "c": None}}),
    "another value": ({"properties": {"b": "2", "a": "1"}}, {"properties": {"a": "1", "b": "3"}}),
}
FIRST, LAST = -(1 << 63), (1 << 63) - 1


def test_what_looks_the_same_at_a_glance_is_told_apart(spark: Any) -> None:
    from mqcore.spark.jobs.reconcile import reconcile

    moved = [[{"topic": topic, **pair[side]} for topic, pair in MOVED.items()] for side in (0, 1)]
    there = {"topic": "there", "ms": 4, "queueOffset": 7}
    only_right = (
        {"topic": "there", "ms": 3, "queueOffset": 6}, {"topic": "there", "queueId": 1},
        {"topic": "newer", "ms": 4}, {"topic": "older", "ms": 3},
        {"topic": "foreign", "brokerName": "c", "ms": 3})
    twice = [{"topic": "twice", "queueOffset": offset} for offset in (0, 1, 1, 4, 4, 5)]
    wide = [{"topic": "wide", "queueOffset": offset} for offset in (FIRST, LAST - 1, LAST)]
    unplaced = ({"topic": "t", "ms": None}, {"topic": None}, {"topic": "t", "queueOffset": None},
                {"topic": "t", "queueOffset": None, "ms": 12})
    later = {"topic": "later", "ms": 12}
    alike = {"topic": "alike", "properties": {"a": "1", "b": "2"}}
    left = rows(spark, *moved[0], there, *twice, *wide, *unplaced, alike, later,
                properties="string")
    right = rows(spark, *moved[1], there, *only_right, *twice, wide[0], *unplaced[:1], alike)
    report = reconcile(left, right, until=10).figures
    counts = of_topics(report, "lost", "extra", "changed", "expired", "gaps")

    assert report["compared"] == ["body", "tags", "keys", "properties"]
    assert {topic: counts.pop(topic) for topic in MOVED} == dict.fromkeys(MOVED, (0, 0, 1, 0, 0))
    assert counts == {
        "alike": (0, 0, 0, 0, 0), "there": (0, 1, 0, 1, 0), "newer": (0, 1, 0, 0, 0),
        "older": (0, 0, 0, 1, 0), "foreign": (0, 1, 0, 0, 0), "twice": (0, 0, 0, 0, 2),
        "wide": (2, 0, 0, 0, (1 << 64) - 3)}
    assert [(one["begin"], one["end"]) for one in report["findings"] if one["kind"] == "lost"] == [
        (LAST - 1, LAST + 1)]
    assert report["unplaced"] == {"left": 3, "right": 1}


def test_properties_that_are_no_json_and_queues_of_a_fence(spark: Any) -> None:
    from mqcore.spark.jobs.reconcile import reconcile

    left = rows(spark, {"topic": "broken", "properties": '{"a":'}, {"topic": "none"},
                {"topic": "same", "properties": '{"a":'}, properties="string")
    right = rows(spark, {"topic": "broken", "properties": '{"b":'},
                 {"topic": "none", "properties": "{}"}, {"topic": "same", "properties": '{"a":'},
                 {"topic": "fenced"}, properties="string")
    found = reconcile(left, right, until=10, fence={MessageQueue("fenced", "b", 0): 1})

    assert of_topics(found.figures, "changed", "extra", "expired") == {
        "broken": (1, 0, 0), "none": (1, 0, 0), "same": (0, 0, 0), "fenced": (0, 0, 1)}


def test_by_ids_all_of_an_id_is_compared_by_the_time_of_the_left_side(spark: Any) -> None:
    from mqcore.spark.jobs.reconcile import ID, reconcile

    def side(bodies: str, *others: dict[str, Any], **stored: int) -> Any:
        return rows(spark, *({"topic": "bodies", "msgId": "1", "body": body} for body in bodies),
                    *({"topic": "alike", "msgId": "1", "body": body} for body in bodies[:1] + "z"),
                    *({"topic": "times", "msgId": name, "ms": ms} for name, ms in stored.items()),
                    *others)

    unplaced = ({"topic": "times"}, {"topic": "times", "ms": 12},
                {"topic": "times", "msgId": "7", "ms": None})
    found = reconcile(
        side("ab", *unplaced, late=9, early=4, before=3, lost=5),
        side("ac", {"topic": "times", "msgId": "early"}, late=12, early=4, before=5, extra=5,
             other=12).drop("queueId", "queueOffset"), by=ID, since=4, until=10)

    assert of_topics(found.figures, "left", "right", *WRONG) == {
        "bodies": (2, 2, 0, 0, 0, 1), "alike": (2, 2, 0, 0, 0, 0), "times": (3, 4, 1, 1, 1, 0)}
    assert [(one["kind"], one["msgId"]) for one in found.figures["findings"]] == [
        ("changed", "1"), ("duplicate", "early"), ("extra", "extra"), ("lost", "lost")]
    assert found.figures["unplaced"] == {"left": 2, "right": 0}


def test_an_origin_that_nobody_can_read_ends_no_comparison(spark: Any) -> None:
    from mqcore.spark.jobs.reconcile import ORIGIN, reconcile

    def origin(**said: str) -> dict[str, Any]:
        given = {"TOPIC": "t", "BROKER": "b", "QUEUE_ID": "0", "OFFSET": "0", "STORE_TIME": "5",
                 **said}
        return {"topic": "t", "queueOffset": 9, "properties": {
            f"MQCORE_ORIGIN_{name}": value for name, value in given.items()}}

    left = rows(spark, {"topic": "t", "properties": {}})
    hostile = [origin(**{name: value}) for name in ("QUEUE_ID", "OFFSET", "STORE_TIME")
               for value in ("zz", str(1 << 70), "")]
    found = reconcile(left, rows(
        spark, origin(), *hostile, {"topic": "t", "queueOffset": 3}), by=ORIGIN, until=10)

    assert (found.status, found.figures["right"]) == (0, 1)
    assert found.figures["unplaced"] == {"left": 0, "right": len(hostile) + 1}


def test_sides_that_cannot_be_compared_are_told(spark: Any) -> None:
    from mqcore.spark.jobs.reconcile import ID, reconcile

    plain = spark.range(1).selectExpr("'t' topic", "cast('x' AS binary) body")
    with pytest.raises(OptionError, match="the left side has no column brokerName"):
        reconcile(plain, plain)
    with pytest.raises(OptionError, match="fence: expected none with by=id"):
        reconcile(plain, plain, by=ID, fence={MessageQueue("t", "b", 0): 1})


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
