"""What tools ask about topics, groups, connections and queues (broker.md 10.2)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.wire import fastjson
from mqcore.wire.fastjson import ObjectKey
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench


def queue(topic: str, queue_id: int) -> ObjectKey:
    return ObjectKey.of(brokerName="broker-a", queueId=queue_id, topic=topic)


def body(answer: Any) -> Any:
    assert answer.code == 0, answer.remark
    return fastjson.loads(answer.body)


@pytest.fixture
def filled(bench: Bench) -> Bench:
    """Topic T with two queues: 0 has messages 2 to 9, stored a second apart, 1 has none."""
    bench.broker.core.topics.update(TopicConfig("T", 2, 2), NOW_MS)
    bench.store.queues["T", 0] = (2, 10)
    for offset in range(2, 10):
        bench.store.store_times["T", 0, offset] = NOW_MS - 10_000 + offset * 1000
    return bench


def test_the_bounds_of_every_write_queue_are_told(filled: Bench) -> None:
    assert body(filled.ask(202, {"topic": "T"}))["offsetTable"] == {
        queue("T", 0): {"minOffset": 2, "maxOffset": 10, "lastUpdateTimestamp": NOW_MS - 1000},
        queue("T", 1): {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0},
    }
    assert filled.ask(202, {"topic": "U"}).code == 17


def test_a_group_that_is_offline_is_shown_with_all_its_topics(filled: Bench) -> None:
    filled.broker.core.topics.update(TopicConfig("U", 1, 1), NOW_MS)
    filled.broker.commit_offset("G", "T", 0, 5)
    filled.broker.commit_offset("G", "U", 0, 1)
    filled.broker.commit_offset("G", "unknown", 0, 1)
    filled.broker.commit_offset("other", "T", 1, 1)

    found = body(filled.ask(208, {"consumerGroup": "G"}))
    assert found["offsetTable"] == {
        queue("T", 0): {
            "brokerOffset": 10, "consumerOffset": 5, "lastTimestamp": NOW_MS - 6000},
        queue("T", 1): {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0},
        queue("U", 0): {"brokerOffset": 0, "consumerOffset": 1, "lastTimestamp": 0},
    }
    one = body(filled.ask(208, {"consumerGroup": "G", "topic": "U"}))
    assert list(one["offsetTable"]) == [queue("U", 0)]


def test_a_group_that_is_online_is_shown_with_the_topics_that_it_subscribes(
    filled: Bench
) -> None:
    filled.broker.core.topics.update(TopicConfig("U", 1, 1), NOW_MS)
    filled.broker.commit_offset("G", "T", 0, 5)
    filled.broker.commit_offset("G", "U", 0, 1)
    filled.heartbeat("G", {"U": 1})

    found = body(filled.ask(208, {"consumerGroup": "G"}))
    assert list(found["offsetTable"]) == [queue("U", 0)]


def test_all_groups_are_shown_with_what_they_are_behind(filled: Bench) -> None:
    core = filled.broker.core
    core.groups.find_or_create("G", NOW_MS)
    filled.broker.commit_offset("G", "T", 0, 4)

    found = body(filled.ask(317, {"isOrder": "false"}))
    assert (found["brokerAddr"], found["totalDiff"]) == ("127.0.0.2:40911", 6)
    groups = {group: rows for entry in found["consumeStatsList"] for group, rows in entry.items()}
    assert set(groups) == {group.name for group in core.groups.all()}
    assert [set(row["offsetTable"]) for row in groups["G"]] == [{queue("T", 0), queue("T", 1)}]
    assert groups["TOOLS_CONSUMER"] == []

    ordered = body(filled.ask(317, {"isOrder": "true"}))
    assert ordered["totalDiff"] == 0
    core.topics.apply_order(["T"], NOW_MS)
    assert body(filled.ask(317, {"isOrder": "true"}))["totalDiff"] == 6


def test_the_times_of_a_groups_place_are_told(filled: Bench) -> None:
    filled.broker.commit_offset("G", "T", 0, 5)

    first, second = body(filled.ask(303, {"topic": "T", "group": "G"}))["consumeTimeSpanSet"]
    assert first["messageQueue"] == {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
    assert (first["minTimeStamp"], first["maxTimeStamp"], first["consumeTimeStamp"]) == (
        NOW_MS - 8000, NOW_MS - 1000, NOW_MS - 6000)
    assert first["delayTime"] == 5000
    assert len(first["minTimeStampStr"]) == len("2026-11-21#08:51:16:016")
    assert (second["maxTimeStamp"], second["delayTime"]) == (-1, 0)
    assert filled.ask(303, {"topic": "U", "group": "G"}).code == 17


def test_a_group_that_has_read_all_is_not_late(filled: Bench) -> None:
    filled.broker.commit_offset("G", "T", 0, 10)

    first, _ = body(filled.ask(303, {"topic": "T", "group": "G"}))["consumeTimeSpanSet"]
    assert (first["consumeTimeStamp"], first["delayTime"]) == (NOW_MS - 1000, 0)


def test_the_consumers_of_a_topic_are_those_online_and_those_with_offsets(
    filled: Bench
) -> None:
    filled.broker.commit_offset("offline", "T", 0, 5)
    filled.broker.commit_offset("elsewhere", "U", 0, 5)
    filled.heartbeat("online", {"T": 1})

    found = body(filled.ask(300, {"topic": "T"}))
    assert found == {"groupList": ["offline", "online"]}


def test_the_members_of_a_consumer_group_are_shown(bench: Bench) -> None:
    assert bench.ask(203, {"consumerGroup": "G"}).code == 206
    bench.heartbeat("G", {"T": 7}, connection=3, expression="A || B")

    found = body(bench.ask(203, {"consumerGroup": "G"}))
    assert found["connectionSet"] == [
        {"clientAddr": "10.0.0.3:4000", "clientId": "client-3", "language": "JAVA",
         "version": 409}]
    assert (found["consumeType"], found["messageModel"], found["consumeFromWhere"]) == (
        "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    subscription = found["subscriptionTable"]["T"]
    assert (subscription["subString"], subscription["tagsSet"], subscription["subVersion"]) == (
        "A || B", ["A", "B"], 7)


def test_a_producer_group_stays_known_when_its_last_member_disconnects(bench: Bench) -> None:
    assert bench.ask(204, {"producerGroup": "P"}).code == 1
    bench.ask(34, None, {"clientID": "c", "producerDataSet": [{"groupName": "P"}]}, connection=3)

    found = body(bench.ask(204, {"producerGroup": "P"}))
    assert [item["clientId"] for item in found["connectionSet"]] == ["c"]
    everybody = body(bench.ask(328))["data"]["P"]
    assert everybody == [{"clientId": "c", "language": "JAVA", "lastUpdateTimestamp": NOW_MS,
                          "remoteIP": "/10.0.0.3:4000", "version": 409}]

    bench.broker.connection_closed(3)
    assert body(bench.ask(204, {"producerGroup": "P"})) == {"connectionSet": []}
    assert body(bench.ask(328)) == {"data": {"P": []}}


def test_the_system_topics_are_listed(bench: Bench) -> None:
    names = body(bench.ask(305))["topicList"]

    assert {"TBW102", "SELF_TEST_TOPIC", "broker-a", "DefaultCluster",
            "DefaultCluster_REPLY_TOPIC"} <= set(names)


def test_delay_offsets_come_from_the_scheduler_and_before_that_from_its_file(
    bench: Bench
) -> None:
    assert bench.ask(45).body == b'{"offsetTable":{}}'
    folder: Path = bench.broker.core.settings.config_dir
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "delayOffset.json").write_text('{"offsetTable":{1:8,\n3:24}}')
    assert bench.ask(45).body == b'{"offsetTable":{1:8,3:24}}'
    bench.figures.delays = {1: 9, 2: 0}
    assert bench.ask(45).body == b'{"offsetTable":{1:9,2:0}}'


def test_rows_of_a_consume_queue_are_shown(filled: Bench) -> None:
    asked = {"topic": "T", "queueId": 0, "index": 8, "count": 3}

    found = body(filled.ask(321, asked))
    assert found == {"minQueueIndex": 2, "maxQueueIndex": 10, "queueData": [
        {"eval": False, "physicOffset": 800, "physicSize": 100, "tagsCode": 0},
        {"eval": False, "physicOffset": 900, "physicSize": 100, "tagsCode": 0}]}


def test_rows_outside_a_queue_are_not_there(filled: Bench) -> None:
    late = filled.ask(321, {"topic": "T", "queueId": 0, "index": 10, "count": 3})
    assert (late.code, late.body, late.remark) == (0, b"", "Index 10 of 0@T is not exist!")
    empty = filled.ask(321, {"topic": "T", "queueId": 1, "index": 0, "count": 3})
    assert (empty.code, empty.body) == (0, b"")
    assert filled.ask(321, {"topic": "T", "queueId": 2, "index": 0, "count": 3}).code == 1
    assert filled.ask(321, {"topic": "U", "queueId": 0, "index": 0, "count": 3}).code == 1


def test_the_sql_filter_of_a_group_is_shown_with_its_rows(filled: Bench) -> None:
    filled.ask(34, None, {"clientID": "c", "consumerDataSet": [{
        "groupName": "G", "messageModel": "CLUSTERING", "subscriptionDataSet": [
            {"topic": "T", "subString": "a > 5", "subVersion": 7, "expressionType": "SQL92"}]}]})
    found = body(filled.ask(321, {
        "topic": "T", "queueId": 0, "index": 9, "count": 1, "consumerGroup": "G"}))

    data = fastjson.loads(found["filterData"])
    assert (data["expression"], data["clientVersion"], data["dead"]) == ("a > 5", 7, False)


@pytest.mark.parametrize(("expression", "wanted"), [("*", True), ("A", False)])
def test_rows_say_whether_a_group_wants_them(
    filled: Bench, expression: str, wanted: bool
) -> None:
    asked = {"topic": "T", "queueId": 0, "index": 9, "count": 1, "consumerGroup": "G"}
    offline = body(filled.ask(321, asked))
    assert "subscriptionData" not in offline
    assert "G@T" in offline["filterData"]

    filled.heartbeat("G", {"T": 1}, expression=expression)
    found = body(filled.ask(321, asked))
    assert found["subscriptionData"]["subString"] == expression
    assert [row["eval"] for row in found["queueData"]] == [wanted]
