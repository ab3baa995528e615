"""Pulls are refused in stock's order, moved when out of range, or may run (broker.md 6)."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.request import REDO
from mqcore.broker.requests.pull_rules import pull_asks
from mqcore.broker.tables.groups import GroupConfig
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

HEADER = {
    "consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
    "sysFlag": 4, "commitOffset": 7, "suspendTimeoutMillis": 15000, "subscription": "*",
    "subVersion": 0, "expressionType": "TAG",
}


@pytest.fixture
def topic(bench: Bench) -> Bench:
    """A broker with topic T, whose queue 0 holds offsets 10 to 49."""
    bench.broker.core.topics.update(TopicConfig("T", 2, 2), NOW_MS)
    bench.store.queues["T", 0] = (10, 50)
    return bench


def pull(bench: Bench, **ext: object) -> Any:
    return bench.ask(11, HEADER | {"queueOffset": 20} | ext)


def test_a_pull_within_the_rules_makes_its_group_and_may_run(topic: Bench) -> None:
    assert pull(topic) is REDO

    assert topic.tables.groups["G"] == GroupConfig("G")


@pytest.mark.parametrize(("ext", "code", "remark"), [
    ({"topic": "U"}, 17, "topic U does not exist"),
    ({"queueId": 2}, 1, "queue 2 of topic T: expected 0 to 1"),
    ({"queueId": -1}, 1, "queue -1 of topic T"),
    ({"subscription": "||"}, 23, "expected at least one tag"),
    ({"sysFlag": 0}, 24, "G has sent no heartbeat"),
    ({"queueOffset": "x"}, 1, "queueOffset is 'x'"),
    ({"maxMsgNums": "x"}, 1, "maxMsgNums is 'x'"),
    ({"consumerGroup": ""}, 26, "consumer group"),
])
def test_a_refused_pull_has_code_reason_and_an_empty_header(
    topic: Bench, ext: dict[str, object], code: int, remark: str
) -> None:
    refusal = pull(topic, **ext)

    assert (refusal.code, refusal.ext) == (code, {})
    assert remark in refusal.remark
    assert topic.appender.appended == []


def test_the_first_rule_that_says_no_decides(tmp_path: Path) -> None:
    bench = make_bench(settings_in(
        tmp_path / "a", "broker.permission=2", "broker.auto_create_group=false"
    ))
    assert pull(bench, topic="U").code == 16

    bench = make_bench(settings_in(tmp_path / "b", "broker.auto_create_group=false"))
    assert pull(bench, topic="U").code == 26
    bench.broker.core.groups.update(GroupConfig("G", consume_enable=False), NOW_MS)
    assert pull(bench, topic="U").code == 16
    bench.broker.core.groups.update(GroupConfig("G"), NOW_MS)
    assert pull(bench, topic="U").code == 17
    bench.broker.core.topics.update(TopicConfig("U", 1, 1, 2), NOW_MS)
    assert pull(bench, topic="U", queueId=9).code == 16
    bench.broker.core.topics.update(TopicConfig("U", 1, 1, 6), NOW_MS)
    assert pull(bench, topic="U", queueId=9).code == 1


def test_the_subscription_of_the_heartbeats_decides_without_one_in_the_pull(topic: Bench) -> None:
    topic.heartbeat("G", {"T": 5})

    assert pull(topic, sysFlag=0, subVersion=5) is REDO
    late = pull(topic, sysFlag=0, subVersion=6)
    assert (late.code, late.remark) == (25, "the consumer's subscription not latest")
    topic.heartbeat("G", {"U": 5})
    missing = pull(topic, sysFlag=0, subVersion=5)
    assert missing.code == 24
    assert "does not subscribe topic T" in missing.remark


def test_a_group_that_may_not_broadcast_is_refused(topic: Bench) -> None:
    topic.heartbeat("G", {"T": 5}, model="BROADCASTING")
    assert pull(topic, sysFlag=0) is REDO

    topic.broker.core.groups.update(GroupConfig("G", consume_broadcast_enable=False), NOW_MS)
    assert pull(topic, sysFlag=0).code == 16
    assert pull(topic, sysFlag=4) is REDO


@pytest.mark.parametrize(("offset", "status", "begin"), [
    (9, "OFFSET_TOO_SMALL", 10), (51, "OFFSET_OVERFLOW_BADLY", 50), (-1, "OFFSET_TOO_SMALL", 10),
])
def test_an_offset_out_of_range_is_moved_and_made_known(
    topic: Bench, offset: int, status: str, begin: int
) -> None:
    moved = pull(topic, queueOffset=offset)

    assert (moved.code, moved.remark, moved.ext) == (21, status, {
        "suggestWhichBrokerId": "0", "nextBeginOffset": str(begin), "minOffset": "10",
        "maxOffset": "50",
    })
    (name, queue_id, body, properties), = topic.appender.appended
    assert (name, queue_id, properties) == ("OFFSET_MOVED_EVENT", 0, {"KEYS": "G", "TAGS": "G"})
    assert json.loads(body) == {
        "consumerGroup": "G", "offsetRequest": offset, "offsetNew": begin,
        "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
    }


def test_who_was_just_elected_moves_nobody_back(topic: Bench) -> None:
    """The former leader may have shown more: the serving process lets the pull wait."""
    topic.queues.taking_over = True
    assert pull(topic, queueOffset=51) is REDO
    assert pull(topic, queueId=1, queueOffset=5) is REDO
    assert pull(topic, queueOffset=9).code == 21     # that was deleted

    topic.queues.taking_over = False
    assert pull(topic, queueOffset=51).code == 21


def test_the_event_of_a_group_with_separators_in_its_name_is_still_a_message(topic: Bench) -> None:
    topic.broker.core.groups.update(GroupConfig("a\x01b\x02"), 1)     # as a file may have it
    assert pull(topic, consumerGroup="a\x01b\x02", queueOffset=9, sysFlag=4).code == 21

    (_, _, body, properties), = topic.appender.appended
    assert properties == {"KEYS": "ab", "TAGS": "ab"}
    assert json.loads(body)["consumerGroup"] == "a\x01b\x02"


@pytest.mark.parametrize("offset", [10, 49, 50])
def test_an_offset_up_to_the_end_is_in_range(topic: Bench, offset: int) -> None:
    assert pull(topic, queueOffset=offset) is REDO


def test_an_empty_queue_knows_offset_0_only(topic: Bench) -> None:
    assert pull(topic, queueId=1, queueOffset=0) is REDO

    moved = pull(topic, queueId=1, queueOffset=5)
    assert (moved.code, moved.remark) == (21, "NO_MESSAGE_IN_QUEUE")
    assert moved.ext["nextBeginOffset"] == moved.ext["maxOffset"] == "0"


def test_a_moved_pull_commits_when_it_says_so_and_a_refused_one_never(topic: Bench) -> None:
    offsets = topic.broker.core.offsets
    pull(topic, queueOffset=99)
    pull(topic, queueOffset=99, sysFlag=5, topic="U")
    assert offsets.committed("G", "T", 0) is None

    pull(topic, queueOffset=99, sysFlag=5)
    assert offsets.committed("G", "T", 0) == 7


def test_the_fast_port_serves_no_pulls(topic: Bench) -> None:
    refusal = topic.ask(11, HEADER, fast_port=True)

    assert (refusal.code, refusal.remark) == (3, " request type 11 not supported")


@pytest.mark.parametrize(("group", "readable", "asks"), [
    (GroupConfig("G"), True, False), (GroupConfig("G"), False, True),
    (GroupConfig("G", consume_enable=False), True, True),
    (GroupConfig("G", consume_broadcast_enable=False), True, True),
])
def test_serving_processes_ask_about_restricted_groups_only(
    group: GroupConfig, readable: bool, asks: bool
) -> None:
    assert pull_asks(group, readable=readable) is asks
