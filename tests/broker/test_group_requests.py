"""Groups are created, changed and deleted by request, at once (broker.md 9.5, 9.6)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.request import Answer
from mqcore.broker.tables import config_file
from mqcore.broker.tables.groups import GroupConfig
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

BODY = {
    "brokerId": 3, "consumeBroadcastEnable": False, "consumeEnable": False,
    "consumeFromMinEnable": False, "groupName": "G", "notifyConsumerIdsChangedEnable": False,
    "retryMaxTimes": 4, "retryQueueNums": 2, "whichBrokerWhenConsumeSlowly": 5,
}
CONFIG = GroupConfig(
    "G", consume_enable=False, consume_from_min_enable=False, consume_broadcast_enable=False,
    retry_queue_count=2, retry_times_max=4, broker_id=3, broker_id_when_slow=5,
    notify_consumers_enable=False)


def saved(bench: Bench) -> dict[str, Any]:
    table = config_file.load(bench.broker.core.settings.config_dir / "subscriptionGroup.json")
    assert table is not None
    groups: dict[str, Any] = table["subscriptionGroupTable"]
    return groups


def test_a_group_is_made_shown_and_saved_before_the_answer(bench: Bench) -> None:
    assert bench.ask(200, None, BODY).code == 0

    assert bench.tables.groups["G"] == CONFIG
    assert saved(bench)["G"] == BODY
    assert b'"G":{"brokerId":3' in bench.ask(201).body


def test_what_a_request_leaves_out_is_default_not_what_it_was(bench: Bench) -> None:
    bench.ask(200, None, BODY)
    bench.ask(200, None, {"groupName": "G", "retryQueueNums": "7", "consumeEnable": "true"})

    assert bench.tables.groups["G"] == GroupConfig("G", retry_queue_count=7)


@pytest.mark.parametrize(("change", "reason"), [
    ({"groupName": None}, "groupName is missing"),
    ({"groupName": " "}, "groupName is missing"),
    ({"groupName": "x" * 121}, "at most 120"),
    ({"groupName": "a/b"}, "the character '/'"),
    ({"retryQueueNums": 65_536}, "retryQueueNums is 65536: expected a whole number"),
    ({"retryMaxTimes": "many"}, "retryMaxTimes is 'many': expected a whole number"),
    ({"retryMaxTimes": [1]}, "retryMaxTimes is [1]"),
    ({"consumeEnable": "perhaps"}, "consumeEnable is 'perhaps': expected true or false"),
])
def test_a_config_that_cannot_be_used_changes_nothing(
    bench: Bench, change: dict[str, Any], reason: str
) -> None:
    refusal = bench.ask(200, None, BODY | change)

    assert (refusal.code, reason in refusal.remark) == (1, True)
    assert "G" not in bench.tables.groups


def test_a_disk_that_refuses_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(config_file, "save_bytes", full)
    assert "No space left" in bench.ask(200, None, BODY).remark


def test_a_deleted_group_is_gone_and_its_offsets_stay_unless_asked(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path))
    offsets = bench.broker.core.offsets
    bench.ask(200, None, BODY)
    for group in ("G", "x@G", "xG"):
        offsets.commit(group, "T", 0, 5)

    assert bench.ask(207, {"groupName": "G"}).code == 0
    assert "G" not in bench.tables.groups
    assert "G" not in saved(bench)
    assert offsets.committed("G", "T", 0) == 5
    assert bench.ask(207, {"groupName": "G", "removeOffset": "true"}).code == 0
    assert [offsets.committed(group, "T", 0) for group in ("G", "x@G", "xG")] == [None, 5, 5]
    again = make_bench(settings_in(tmp_path))
    assert again.broker.core.offsets.committed("G", "T", 0) is None


def test_offsets_of_a_deleted_group_are_out_of_their_file_before_the_answer(
        tmp_path: Path) -> None:
    """A process that is killed behind the answer saves nothing more."""
    bench = make_bench(settings_in(tmp_path))
    bench.ask(200, None, BODY)
    for group in ("G", "H"):
        bench.broker.core.offsets.commit(group, "T", 0, 5)
    bench.broker.core.offsets.persist()
    assert bench.ask(207, {"groupName": "G", "removeOffset": "true"}).code == 0

    killed = make_bench(settings_in(tmp_path)).broker.core.offsets
    assert [killed.committed(group, "T", 0) for group in ("G", "H")] == [None, 5]

    journal = tmp_path / "config" / "consumerOffset.journal"
    journal.unlink(missing_ok=True)
    journal.mkdir()
    answer = bench.ask(207, {"groupName": "H", "removeOffset": "true"})
    assert (answer.code, answer.remark[:29]) == (1, "the offsets cannot be saved: ")


def test_a_topic_that_is_made_again_begins_without_the_offsets_of_its_earlier_life(
        tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path), {("T", 0): 50})
    topic = {"topic": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
             "topicFilterType": "SINGLE_TAG"}
    bench.ask(17, topic)
    for name in ("T", "TT"):
        for group in ("G", "x@G"):
            bench.broker.core.offsets.commit(group, name, 0, 50)
    bench.broker.core.offsets.persist()
    bench.ask(215, {"topic": "T"})
    bench.ask(17, topic)

    for one in (bench, make_bench(settings_in(tmp_path))):         # also behind a kill
        offsets = one.broker.core.offsets
        assert [offsets.committed(group, name, 0) for name in ("T", "TT")
                for group in ("G", "x@G")] == [None, None, 50, 50]


def test_a_heartbeat_brings_a_deleted_group_back_with_defaults(bench: Bench) -> None:
    bench.ask(200, None, BODY)
    bench.ask(207, {"groupName": "G"})
    bench.heartbeat("G", {"T": 1})

    assert bench.tables.groups["G"] == GroupConfig("G")


@pytest.mark.parametrize(("model", "code"), [("CLUSTERING", 16), ("BROADCASTING", 16)])
def test_a_group_that_may_not_consume_is_refused_until_it_may(
    bench: Bench, model: str, code: int
) -> None:
    pull = {
        "consumerGroup": "G", "topic": "TBW102", "queueId": 0, "queueOffset": 0,
        "maxMsgNums": 1, "sysFlag": 0, "commitOffset": 0, "suspendTimeoutMillis": 0,
        "subVersion": 1}
    bench.heartbeat("G", {"TBW102": 1}, model=model)
    switch = "consumeEnable" if model == "CLUSTERING" else "consumeBroadcastEnable"
    bench.ask(200, None, {"groupName": "G", switch: False})
    assert bench.ask(11, pull).code == code

    bench.ask(200, None, {"groupName": "G"})
    assert not hasattr(bench.ask(11, pull), "code")          # it may run


def test_members_hear_of_changes_unless_their_group_or_the_broker_says_no(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path / "a"))
    bench.heartbeat("G", {"T": 1})
    assert bench.connections.told() == [(1, "G")]
    bench.ask(200, None, {"groupName": "G", "notifyConsumerIdsChangedEnable": False})
    bench.heartbeat("G", {"T": 1}, connection=2)
    assert bench.connections.told() == []

    silent = make_bench(settings_in(tmp_path / "b", "broker.notify_consumers_enable=false"))
    silent.heartbeat("G", {"T": 1})
    assert silent.connections.told() == []


@pytest.mark.parametrize(("retry_queues", "wanted"), [(3, 3), (0, 0), (-1, 0)])
def test_a_heartbeat_makes_the_retry_topic_with_the_groups_queues(
    bench: Bench, retry_queues: int, wanted: int
) -> None:
    bench.broker.core.groups.update(GroupConfig("G", retry_queue_count=retry_queues), NOW_MS)
    bench.heartbeat("G", {"T": 1})

    topic = bench.tables.topics["%RETRY%G"]
    assert (topic.read_queue_count, topic.write_queue_count) == (wanted, wanted)


def test_a_goodbye_makes_its_group_as_in_stock(bench: Bench) -> None:
    def answer(**groups: str) -> Answer:
        found = bench.ask(35, {"clientID": "c", **groups})
        assert isinstance(found, Answer)
        return found

    assert answer(producerGroup="P").code == 0
    assert answer(consumerGroup="").code == 0
    assert not {"P", ""} & {group.name for group in bench.broker.core.groups.all()}
    assert answer(consumerGroup="K").code == 0
    assert bench.broker.core.groups.has("K")
