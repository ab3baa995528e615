"""Topics: built-in ones, creation, validation, deletion, order flags, file (broker.md 9)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_file import ConfigFileError
from mqcore.broker.tables.topics import TopicTable, name_trouble
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench, FakeTables, make_bench, settings_in


def table(tmp_path: Path, *overrides: str, tables: FakeTables | None = None) -> TopicTable:
    tables = tables or FakeTables()
    topics = TopicTable(
        settings_in(tmp_path, *overrides).broker, tmp_path / "topics.json", tables.publish_topic,
        tables.remove_topic,
    )
    topics.load(NOW_MS)
    return topics


def shape(topics: TopicTable) -> dict[str, tuple[int, int]]:
    return {topic.name: (topic.write_queue_count, topic.perm) for topic in topics.all()}


def test_a_new_broker_has_the_built_in_topics(tmp_path: Path) -> None:
    assert shape(table(tmp_path)) == {
        "SELF_TEST_TOPIC": (1, 6), "TBW102": (8, 7), "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7), "broker-a": (1, 7), "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6), "DefaultCluster_REPLY_TOPIC": (1, 6),
    }


def test_switches_change_the_built_in_topics(tmp_path: Path) -> None:
    found = shape(table(
        tmp_path, "broker.auto_create_topic=false", "broker.cluster_topic_enable=false",
        "broker.broker_topic_enable=false", "broker.trace_topic_enable=true",
    ))

    assert "TBW102" not in found
    assert found["DefaultCluster"] == (16, 1)
    assert found["broker-a"] == (1, 1)
    assert found["RMQ_SYS_TRACE_TOPIC"] == (1, 6)


@pytest.mark.parametrize(("wish", "queues"), [(4, 4), (8, 8), (100, 8), (0, 0), (-3, 0)])
def test_a_topic_made_by_a_send_has_as_many_queues_as_wished_up_to_the_template(
    tmp_path: Path, wish: int, queues: int
) -> None:
    topic = table(tmp_path).create_from_template("T", "TBW102", wish, False, NOW_MS)

    assert topic == TopicConfig("T", queues, queues, 6)


def test_a_topic_is_only_made_from_a_template_that_may_be_inherited(tmp_path: Path) -> None:
    topics = table(tmp_path)

    assert topics.create_from_template("T", "nothing", 4, False, NOW_MS) is None
    assert topics.create_from_template("T", "BenchmarkTest", 4, False, NOW_MS) is None
    assert topics.version.counter == 0


def test_without_auto_creation_other_templates_still_work(tmp_path: Path) -> None:   # broker.md 9.2
    topics = table(tmp_path, "broker.auto_create_topic=false")
    topics.update(TopicConfig("TBW102", 8, 8, 7), NOW_MS)

    assert topics.create_from_template("T", "TBW102", 4, False, NOW_MS) is None
    assert topics.create_from_template("T", "broker-a", 4, False, NOW_MS) == TopicConfig("T", 1, 1)


def test_unit_mode_sets_the_flag_that_fits_the_topic(tmp_path: Path) -> None:
    topics = table(tmp_path)

    plain = topics.create_from_template("T", "TBW102", 4, True, NOW_MS)
    retry = topics.create_from_template("%RETRY%G", "TBW102", 4, True, NOW_MS)
    assert (plain and plain.sys_flag, retry and retry.sys_flag) == (1, 2)


def test_each_change_raises_the_version_and_reaches_the_shared_table(tmp_path: Path) -> None:
    tables = FakeTables()
    topics = table(tmp_path, tables=tables)
    topics.update(TopicConfig("T", 2, 3, 4), NOW_MS + 1)
    assert tables.topics["T"] == TopicConfig("T", 2, 3, 4)
    assert (topics.version.counter, topics.version.timestamp) == (1, NOW_MS + 1)

    assert topics.delete("T", NOW_MS + 2)
    assert "T" not in tables.topics
    assert topics.version.counter == 2
    assert not topics.delete("T", NOW_MS + 3)
    assert topics.version.counter == 2


def test_a_full_shared_table_refuses_a_new_topic_and_keeps_the_others(tmp_path: Path) -> None:
    tables = FakeTables(topic_count_max=8)
    topics = table(tmp_path, tables=tables)

    assert topics.create_on_demand("%RETRY%G", 1, NOW_MS) is None
    assert topics.get("%RETRY%G") is None
    assert topics.version.counter == 0


def test_order_flags_follow_the_name_server(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.update(TopicConfig("T"), NOW_MS)
    topics.apply_order({"T", "elsewhere"}, NOW_MS)
    assert [topic.name for topic in topics.all() if topic.order] == ["T"]
    assert topics.version.counter == 2

    topics.apply_order({"T"}, NOW_MS)
    assert topics.version.counter == 2
    topics.apply_order((), NOW_MS)
    assert not any(topic.order for topic in topics.all())


def test_topics_survive_a_restart_and_win_over_built_in_ones(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.update(TopicConfig("T", 3, 5, 6, "MULTI_TAG", 1), NOW_MS)
    topics.update(TopicConfig("BenchmarkTest", 7, 7), NOW_MS)
    topics.persist()

    again = table(tmp_path)
    assert again.get("T") == TopicConfig("T", 3, 5, 6, "MULTI_TAG", 1)
    assert again.get("BenchmarkTest") == TopicConfig("BenchmarkTest", 7, 7)
    assert again.version == topics.version


def test_a_topic_of_the_file_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    config_file.save(tmp_path / "topics.json", {
        "topicConfigTable": {"x" * 128: {"perm": 6}, "y" * 127: {"perm": 6}},
    })
    topics = table(tmp_path)

    assert topics.get("x" * 128) is None
    assert topics.get("y" * 127) == TopicConfig("y" * 127)


def test_a_file_with_nonsense_in_a_field_is_named(tmp_path: Path) -> None:
    config_file.save(tmp_path / "topics.json", {"topicConfigTable": {"T": {"perm": "much"}}})

    with pytest.raises(ConfigFileError, match=r"topics\.json: entry 'T': .*perm"):
        table(tmp_path)


@pytest.mark.parametrize("name", ["", "  ", "a b", "a.b", "ü", "x" * 128, "a\n"])
def test_a_name_outside_the_rules_is_refused(name: str) -> None:
    assert name_trouble(name) is not None


@pytest.mark.parametrize("name", ["a", "%RETRY%g-1_|", "x" * 127])
def test_a_name_inside_the_rules_is_accepted(name: str) -> None:
    assert name_trouble(name) is None


@pytest.mark.parametrize(("name", "system"), [
    ("TBW102", True), ("broker-a", True), ("DefaultCluster", True), ("rmq_sys_x", True),
    ("DefaultCluster_REPLY_TOPIC", True), ("RMQ_SYS_TRANS_OP_HALF_TOPIC", True),
    ("RMQ_SYS_x", False), ("T", False), ("%RETRY%g", False),
])
def test_system_topics_are_known_by_name(tmp_path: Path, name: str, system: bool) -> None:
    assert table(tmp_path).is_system(name) is system


def create(bench: Bench, topic: str, **other: object) -> Any:
    return bench.ask(17, {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 2,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "true", **other,
    })


def test_a_created_topic_is_saved_registered_and_answered_when_name_servers_know(
    bench: Bench, tmp_path: Path
) -> None:
    assert create(bench, "T") is None
    assert bench.connections.sent == []
    assert bench.broker.core.topics.get("T") == TopicConfig("T", 3, 2, 6)
    registration, one_way = bench.registrar.registered[0]
    assert not one_way
    assert b'"T":{' in registration.body
    assert make_bench(settings_in(tmp_path / "store")).broker.core.topics.get("T") is not None

    bench.registrar.finish()
    (connection, command), = bench.connections.sent
    assert (connection, command.code, command.opaque, command.is_response) == (1, 0, 7, True)


@pytest.mark.parametrize(("topic", "other", "remark"), [
    ("a b", {}, "outside %|a-zA-Z0-9_-"),
    ("SELF_TEST_TOPIC", {}, "The topic[SELF_TEST_TOPIC] is conflict with system topic."),
    ("T", {"topicFilterType": "X"}, "topicFilterType: expected SINGLE_TAG or MULTI_TAG"),
    ("T", {"readQueueNums": -1}, "readQueueNums is -1: expected 0 to 65535"),
    ("T", {"perm": 16}, "perm is 16: expected 0 to 15"),
    ("T", {"writeQueueNums": "x"}, "writeQueueNums is 'x': expected a whole number"),
])
def test_a_bad_topic_is_refused_with_the_reason(
    bench: Bench, topic: str, other: dict[str, object], remark: str
) -> None:
    answer = create(bench, topic, **other)

    assert answer.code == 1
    assert remark in answer.remark
    assert bench.registrar.registered == []


def test_a_large_table_registers_the_changed_topic_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqcore.broker.requests.topic_change.FULL_REGISTRATION_TOPICS_MAX", 5)
    create(bench, "T")

    assert bench.registrar.topics() == [["T"]]
