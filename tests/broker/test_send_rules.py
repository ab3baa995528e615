"""A refused send has stock's code and a reason; every other one may run (broker.md 2)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.request import REDO, Redo
from mqcore.broker.requests.send_rules import send_asks
from mqcore.broker.tables.groups import GroupConfig
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

HEADER = {
    "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
    "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "",
}
SHORT = dict(zip(HEADER, "abcdefghi", strict=True)) | {
    "reconsumeTimes": "j", "unitMode": "k", "maxReconsumeTimes": "l", "batch": "m",
}


def send(bench: Bench, code: int = 10, *, version: int = 409, size: int = 0, **ext: object) -> Any:
    fields = HEADER | ext
    if code != 10:
        fields = {SHORT[name]: value for name, value in fields.items()}
    return bench.ask(code, fields, version=version, body_size=size)


@pytest.mark.parametrize("code", [10, 310, 320])
def test_a_message_for_an_unknown_topic_makes_it_and_may_run(bench: Bench, code: int) -> None:
    assert send(bench, code) is REDO

    assert bench.tables.topics["T"] == TopicConfig("T", 4, 4)
    assert bench.registrar.registered[-1][1] is True
    assert b'"T":{' in bench.registrar.registered[-1][0].body


def test_every_refusal_has_region_and_trace_switch(bench: Bench) -> None:
    refusal = send(bench, defaultTopic="nothing")

    assert refusal.code == 17
    assert refusal.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def test_a_burst_of_new_topics_is_registered_and_saved_once(bench: Bench) -> None:
    for number in range(20):
        send(bench, topic=f"T{number}")
    assert len(bench.registrar.registered) == 1

    bench.broker.tick(NOW_MS + 9)
    assert len(bench.registrar.registered) == 1
    bench.broker.tick(NOW_MS + 20)
    assert len(bench.registrar.registered) == 2
    assert {f"T{number}" for number in range(20)} <= set(bench.registrar.topics()[-1])
    bench.broker.tick(NOW_MS + 1_000)
    assert len(bench.registrar.registered) == 2


@pytest.mark.parametrize(("ext", "code", "remark"), [
    ({"topic": "a b"}, 1, "outside %|a-zA-Z0-9_-"),
    ({"topic": ""}, 1, "the topic is blank"),
    ({"topic": "x" * 128}, 1, "128 characters: expected at most 127"),
    ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "system topic SCHEDULE_TOPIC_XXXX"),
    ({"topic": "OFFSET_MOVED_EVENT"}, 16, "system topic"),
    ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "system topic"),
    ({"queueId": 4}, 1, "queue 4 of topic T: expected less than 4"),
    ({"queueId": "x"}, 1, "queueId is 'x': expected a whole number"),
    ({"queueId": 1 << 31}, 1, "queueId is '2147483648'"),
    ({"bornTimestamp": "now"}, 1, "bornTimestamp is 'now'"),
    ({"reconsumeTimes": "x"}, 1, "reconsumeTimes is 'x'"),
    ({"properties": "DELAY\x01soon\x02"}, 1, "DELAY is 'soon'"),
    ({"properties": "k\x01" + "v" * 32766}, 13, "32768 bytes: expected at most 32767"),
    ({"batch": "true", "properties": "DELAY\x011\x02"}, 13, "a batch can neither"),
    ({"batch": "true", "sysFlag": 4}, 13, "a batch can neither"),
])
def test_a_refused_send_has_code_and_reason(
    bench: Bench, ext: dict[str, object], code: int, remark: str
) -> None:
    refusal = send(bench, **ext)

    assert refusal.code == code
    assert remark in refusal.remark


@pytest.mark.parametrize("name", [
    "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
])
def test_a_missing_field_is_named(bench: Bench, name: str) -> None:
    fields = {key: value for key, value in HEADER.items() if key != name}
    refusal = bench.ask(10, fields)

    assert refusal.code == 1
    assert f"header field {name} is missing" in refusal.remark


@pytest.mark.parametrize("ext", [
    {"queueId": -1}, {"queueId": 3}, {"properties": "DELAY\x010\x02"},
    {"properties": "TRAN_MSG\x01True\x02"}, {"properties": "DELAY\x013\x02"},
    {"properties": "TRAN_MSG\x01no\x02"}, {"properties": "k\x01" + "v" * 32765},
    {"batch": "1", "properties": "DELAY\x010\x02"},
])
def test_what_is_within_the_rules_may_run(bench: Bench, ext: dict[str, object]) -> None:
    assert send(bench, **ext) is REDO


def test_the_largest_body_is_the_one_of_the_settings(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path, "store.message_size_max_bytes=1000"))

    assert send(bench, size=1000) is REDO
    refusal = send(bench, 310, size=1001)
    assert (refusal.code, refusal.remark) == (13, "the body has 1001 bytes: expected at most 1000")


def test_the_broker_can_refuse_all_messages_until_a_moment(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path, f"broker.accept_sends_from_ms={NOW_MS + 1}"))
    assert send(bench).code == 1

    bench.now_ms = NOW_MS + 1
    assert send(bench) is REDO


def test_transactions_can_be_refused_by_setting(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.reject_transaction_message=true"))
    refusal = send(bench, properties="TRAN_MSG\x01true\x02")

    assert refusal.code == 16
    assert "set to refuse" in refusal.remark


def test_a_broker_without_write_permission_refuses_order_topics_only(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.permission=4"))
    send(bench, topic="T")
    bench.now_ms += 1000                       # a gap between two files
    send(bench, topic="U")
    bench.broker.apply_order_table({"T"}, NOW_MS)

    assert send(bench, topic="T").code == 16
    assert send(bench, topic="U") is REDO


def retry(bench: Bench, times: int, **ext: object) -> Any:
    return send(bench, 310, topic="%RETRY%G", reconsumeTimes=times, **ext)


def test_a_retry_topic_is_made_even_without_auto_creation(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.auto_create_topic=false"))

    assert retry(bench, 0) is REDO
    assert bench.tables.topics["%RETRY%G"] == TopicConfig("%RETRY%G", 1, 1)
    assert send(bench, topic="T").code == 17


def test_a_message_retried_often_enough_goes_to_the_dead_letters(bench: Bench) -> None:
    assert retry(bench, 15) is REDO
    bench.now_ms += 1000                       # a gap between two files
    assert retry(bench, 16) == Redo("%DLQ%G", 0)
    assert bench.tables.topics["%DLQ%G"] == TopicConfig("%DLQ%G", 1, 1)


def test_the_clients_own_limit_counts_from_version_3_4_9_on(bench: Bench) -> None:
    assert retry(bench, 3, maxReconsumeTimes=3) == Redo("%DLQ%G", 0)
    assert retry(bench, 3, maxReconsumeTimes=3, version=121) == Redo("%DLQ%G", 0)
    assert retry(bench, 3, maxReconsumeTimes=3, version=120) is REDO


def test_a_batch_is_never_redirected(bench: Bench) -> None:
    assert retry(bench, 99, batch="true") is REDO


def test_a_retry_topic_needs_its_group(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.auto_create_group=false"))
    assert retry(bench, 0).code == 26

    bench.broker.core.groups.update(GroupConfig("G"), NOW_MS)
    assert retry(bench, 0) is REDO


def test_full_tables_refuse_an_unknown_topic(bench: Bench) -> None:
    bench.tables.topic_count_max = len(bench.tables.topics)

    assert send(bench).code == 17


@pytest.mark.parametrize(("topic", "writable", "asks"), [
    (TopicConfig("T"), True, False), (TopicConfig("T", order=True), True, False),
    (TopicConfig("T", order=True), False, True), (TopicConfig("%RETRY%G"), True, True),
    (TopicConfig("SELF_TEST_TOPIC"), True, True), (TopicConfig("TBW102"), True, False),
])
def test_serving_processes_ask_about_special_topics_only(
    topic: TopicConfig, writable: bool, asks: bool
) -> None:
    assert send_asks(topic, writable=writable) is asks
