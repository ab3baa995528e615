"""What a newer broker wrote into the tables and we do not know goes back into the files."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.tables import config_file
from mqcore.wire.topics import TopicConfig
from mqcore.workers.scheduling.scheduler import DelayOffsets
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

TOPICS = {
    "dataVersion": {"counter": 7, "stateVersion": 3, "timestamp": 17},
    "mappingTable": {"a": [1, {"b": None}]},
    "topicConfigTable": {
        "Old": {"attributes": {"+message.type": "DELAY"}, "order": False, "perm": 6,
                "readQueueNums": 4, "topicFilterType": "SINGLE_TAG", "topicName": "Old",
                "topicSysFlag": 0, "writeQueueNums": 4},
        "x" * 140: {"attributes": {}, "order": False, "perm": 6, "readQueueNums": 1,
                    "topicFilterType": "SINGLE_TAG", "topicName": "x" * 140, "topicSysFlag": 0,
                    "writeQueueNums": 1},
    },
}
GROUPS = {
    "dataVersion": {"counter": 7, "stateVersion": 3, "timestamp": 17},
    "forbiddenTable": {"G": {"T": 1}},
    "subscriptionGroupTable": {"G": {
        "attributes": {}, "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True,
        "consumeFromMinEnable": True, "consumeMessageOrderly": True, "consumeTimeoutMinute": 15,
        "groupName": "G", "groupRetryPolicy": {"type": "CUSTOMIZED"}, "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }},
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    settings = settings_in(tmp_path)
    settings.config_dir.mkdir(parents=True)
    for name, content in (("topics", TOPICS), ("subscriptionGroup", GROUPS)):
        (settings.config_dir / f"{name}.json").write_text(json.dumps(content))
    return make_bench(settings)


def stored(bench: Bench, name: str) -> dict[str, Any]:
    found = config_file.load(bench.broker.core.settings.config_dir / f"{name}.json")
    assert found is not None
    return found


def test_another_topic_leaves_all_that_was_there(bench: Bench) -> None:
    bench.broker.core.topics.update(TopicConfig("New", 1, 1), NOW_MS)
    bench.broker.close()
    found = stored(bench, "topics")

    table = found["topicConfigTable"]
    assert {name: table[name] for name in TOPICS["topicConfigTable"]} == TOPICS["topicConfigTable"]
    assert found["mappingTable"] == {"a": [1, {}]}    # without null, as in stock
    assert found["dataVersion"] == {"counter": 8, "stateVersion": 3, "timestamp": NOW_MS}
    assert list(table["Old"]) == sorted(table["Old"])


def test_a_changed_topic_keeps_them_and_one_made_anew_does_not(bench: Bench) -> None:
    change = {"topic": "Old", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
              "topicFilterType": "SINGLE_TAG"}
    bench.ask(17, change)
    changed = stored(bench, "topics")["topicConfigTable"]["Old"]
    assert (changed["readQueueNums"], changed["attributes"]) == (2, {"+message.type": "DELAY"})

    bench.ask(215, {"topic": "Old"})
    assert "Old" not in stored(bench, "topics")["topicConfigTable"]
    bench.ask(17, change)
    assert "attributes" not in stored(bench, "topics")["topicConfigTable"]["Old"]


def test_a_changed_group_keeps_them(bench: Bench) -> None:
    body = json.dumps({"groupName": "G", "retryMaxTimes": 3}).encode()
    assert bench.ask(200, body=body).code == 0
    found = stored(bench, "subscriptionGroup")

    assert found["subscriptionGroupTable"]["G"] == {
        **GROUPS["subscriptionGroupTable"]["G"], "retryMaxTimes": 3}
    assert found["forbiddenTable"] == {"G": {"T": 1}}


@pytest.mark.parametrize(("name", "content"), [
    ("topics", '{"topicConfigTable":{"T":{"readQueueNums":1e18}}}'),
    ("topics", '{"topicConfigTable":{"T":{"perm":-99999999999}}}'),
    ("consumerFilter", '{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bloomFilterData":'
     '{"bitNum":112,"bitPos":[1,2,3]},"bornTime":1e30,"clientVersion":1,"expression":"a > 5",'
     '"expressionType":"SQL92","topic":"T"}}}}}'),
])
def test_a_number_that_no_table_has_room_for_is_refused(
    tmp_path: Path, name: str, content: str
) -> None:
    settings = settings_in(tmp_path)
    settings.config_dir.mkdir(parents=True)
    (settings.config_dir / f"{name}.json").write_text(content)

    with pytest.raises(config_file.ConfigFileError, match=f"{name}.json: entry .* expected"):
        make_bench(settings)


def test_slaves_and_tools_are_told_them(bench: Bench) -> None:
    """A broker of 4.9.8 has none to tell; a slave of ours would lose what its master knows."""
    assert b'"attributes"' in bench.ask(21).body
    assert b'"consumeMessageOrderly"' in bench.ask(201).body


def test_filters_and_delay_offsets_keep_them_too(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    bench = make_bench(settings)
    bench.broker.core.settings.config_dir.mkdir(parents=True, exist_ok=True)
    filters = bench.broker.core.filters
    filters._path.write_text(json.dumps({"zone": 1, "filterDataByTopic": {"T": {
        "topic": "T", "groupFilterData": {"G": {
            "bloomFilterData": {"bitNum": 112, "bitPos": list(
                filters._bloom.subscription_positions("G", "T"))},
            "bornTime": 1, "clientVersion": 1, "consumerGroup": "G", "deadTime": 0,
            "expression": "a > 5", "expressionType": "SQL92", "topic": "T", "more": [7]}}}}}))
    filters.load(NOW_MS)
    filters.persist()
    found = config_file.load(filters._path)
    assert found is not None
    assert found["zone"] == 1
    assert found["filterDataByTopic"]["T"]["groupFilterData"]["G"]["more"] == [7]

    path = tmp_path / "delayOffset.json"
    path.write_text('{"dataVersion":{"counter":1},"offsetTable":{3:5}}')
    delays = DelayOffsets(path)
    offsets, _, _ = delays.load()
    delays.save(type("Known", (), {"offsets": offsets, "timer": (0, 0)})(), exact=True)
    assert path.read_text() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1\n\t},\n\t"offsetTable":{3:5\n\t}\n}')


@pytest.mark.parametrize("name", ["topics", "subscriptionGroup", "consumerOffset",
                                  "consumerFilter"])
@pytest.mark.parametrize("content", [
    b'{"dataVersion":{"counter":"many"}}', b'{"dataVersion":{"counter":1e300}}', b"[]", b"{\xff",
    b'{"topicConfigTable":{"T":{"readQueueNums":1e18}}}', b'{"topicConfigTable":[7]}',
    b'{"subscriptionGroupTable":{"G":{"retryMaxTimes":1e400}}}', b'{"offsetTable":{"T@G":[]}}',
    b'{"topicConfigTable":{"T":7}}', b'{"topicConfigTable":{"T":{"perm":-99999999999}}}',
    b'{"subscriptionGroupTable":{"G":{"retryQueueNums":99999999999999999999}}}',
    b'{"filterDataByTopic":{"T":{"groupFilterData":{"G":{}}}}}', b'{"a":' * 2_000,
    b'{"x":' + b"[" * 500 + b"]" * 500 + b"}", b'{"offsetTable":{"T@G":{0:1e400}}}',
    b'{"subscriptionGroupTable":{"G":7}}', b'{"filterDataByTopic":{"T":{"groupFilterData":'
    b'{"G":{"bloomFilterData":7,"topic":1}}}}}', b"\x00" * 64,
])
def test_a_broken_table_is_refused_in_one_line_or_can_be_written_again(
    tmp_path: Path, name: str, content: bytes
) -> None:
    settings = settings_in(tmp_path)
    settings.config_dir.mkdir(parents=True)
    (settings.config_dir / f"{name}.json").write_bytes(content)
    trouble = None
    try:
        bench = make_bench(settings)
    except config_file.ConfigFileError as error:
        trouble = str(error)
    if trouble is not None:
        assert f"{name}.json" in trouble
        assert "\n" not in trouble
        return
    for table in (bench.broker.core.topics, bench.broker.core.groups, bench.broker.core.offsets):
        table.persist()
    make_bench(settings)


def test_the_text_of_a_table_is_that_of_its_object(bench: Bench) -> None:
    """It is joined of entries that were made before; 4.9.8's form, whatever changed."""
    topics = bench.broker.core.topics
    for turn in range(3):
        for number in range(5):
            topics.update(TopicConfig(f"T{number}", number + turn, 1, order=turn == 2), NOW_MS)
        topics.delete(f"T{turn}", NOW_MS)
        topics.persist()
        text = (bench.broker.core.settings.config_dir / "topics.json").read_text()
        assert text == config_file.pretty(stored(bench, "topics"))
        assert {name: entry for name, entry in stored(bench, "topics")["topicConfigTable"].items()
                if name in topics.system_names()} == {
            topic.name: topic.as_json() for topic in topics.all()
            if topic.name in topics.system_names()}
