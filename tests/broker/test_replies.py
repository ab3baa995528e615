"""A reply goes to the client that waits for it, its sender hears how it went (broker.md 2.6)."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.ports import AppendStatus
from mqcore.wire.command import Command, response
from mqcore.wire.properties import decode_properties
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

TOPIC = "DefaultCluster_REPLY_TOPIC"
REQUESTER, REPLIER = 5, 6
SHORT = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d",
    "queueId": "e", "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i",
    "reconsumeTimes": "j", "unitMode": "k",
}
STORED_ID = "7F00000200009FCF0000000000000400"          # 127.0.0.2:40911, position 1024
COMMON = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def beat(bench: Bench, *groups: str, connection: int = REQUESTER, client: str = "asker") -> None:
    bench.ask(34, None, {"clientID": client, "producerDataSet": [
        {"groupName": group} for group in groups]}, connection=connection)


def reply(
    bench: Bench, code: int = 324, properties: str = "REPLY_TO_CLIENT\x01asker\x02TTL\x013",
    **changes: object,
) -> Any:
    fields: Mapping[str, object] = {
        "producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 1, "bornTimestamp": 9, "flag": 2,
        "properties": properties, "reconsumeTimes": 0, "unitMode": "false"} | changes
    if code == 325:
        fields = {SHORT[name]: value for name, value in fields.items()}
    return bench.ask(code, fields, b"the reply", connection=REPLIER)


def pushed(bench: Bench) -> tuple[int, Command]:
    (connection, command), = [each for each in bench.connections.sent if each[1].code == 326]
    return connection, command


def answers(bench: Bench) -> list[Command]:
    return [command for connection, command in bench.connections.sent if connection == REPLIER]


@pytest.mark.parametrize("code", [324, 325])
def test_a_reply_is_pushed_to_its_requester_whole(bench: Bench, code: int) -> None:
    beat(bench, "G")
    assert reply(bench, code) is None

    connection, command = pushed(bench)
    ext = dict(command.ext or {})
    properties = decode_properties(ext.pop("properties") or "")
    assert (connection, command.body, command.flag) == (REQUESTER, b"the reply", 0)
    assert properties == {
        "PUSH_REPLY_TIME": str(NOW_MS), "REPLY_TO_CLIENT": "asker", "TTL": "3"}
    assert ext == {
        "bornHost": "10.0.0.6:4000", "storeHost": "127.0.0.2:40911", "storeTimestamp": str(NOW_MS),
        "producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "1", "bornTimestamp": "9",
        "flag": "2", "reconsumeTimes": "0", "unitMode": "false"}
    assert answers(bench) == []


def test_the_replier_is_answered_when_the_client_took_it_and_it_is_stored(bench: Bench) -> None:
    beat(bench, "G")
    reply(bench)
    _, command = pushed(bench)
    assert bench.appender.appended == []

    bench.broker.handle_response(REQUESTER, response(command, 0))
    assert bench.appender.appended == [
        (TOPIC, 0, b"the reply", {"REPLY_TO_CLIENT": "asker", "TTL": "3"})]
    assert bench.appender.details == [{
        "born_ms": 9, "flag": 2, "sys_flag": 1, "reconsume_times": 0,
        "born_host": ("10.0.0.6", 4000), "store_host": None, "waits": True}]
    assert answers(bench) == []
    bench.appender.finish(queue_offset=3, position=1024)
    (answer,) = answers(bench)
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext == COMMON | {"msgId": STORED_ID, "queueId": "0", "queueOffset": "3"}


def test_a_reply_that_is_not_stored_is_pushed_all_the_same(bench: Bench) -> None:
    beat(bench, "G")
    reply(bench)
    bench.broker.handle_response(REQUESTER, response(pushed(bench)[1], 0))
    bench.appender.finish(AppendStatus.SERVICE_NOT_AVAILABLE)

    (answer,) = answers(bench)
    assert (answer.code, answer.ext) == (
        0, COMMON | {"msgId": "0", "queueId": "0", "queueOffset": "0"})


def test_replies_are_not_stored_where_the_setting_says_so(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.store_reply_messages=false"))
    beat(bench, "G")
    reply(bench)
    bench.broker.handle_response(REQUESTER, response(pushed(bench)[1], 0))

    (answer,) = answers(bench)
    assert (answer.code, bench.appender.appended) == (0, [])


@pytest.mark.parametrize(("properties", "reason"), [
    ("TTL\x013", "property REPLY_TO_CLIENT is missing"),
    ("REPLY_TO_CLIENT\x01nobody", "channel of <nobody> not found"),
])
def test_a_reply_to_nobody_is_stored_and_refused(
    bench: Bench, properties: str, reason: str
) -> None:
    reply(bench, properties=properties)
    bench.appender.finish(position=1024)

    (answer,) = answers(bench)
    assert (answer.code, reason in (answer.remark or "")) == (1, True)
    assert answer.ext == COMMON | {"msgId": STORED_ID, "queueId": "0", "queueOffset": "0"}


def test_a_client_that_refuses_stays_silent_or_goes_is_told_to_the_replier(bench: Bench) -> None:
    beat(bench, "G")
    reply(bench)
    bench.broker.handle_response(REQUESTER, response(pushed(bench)[1], 1, "no such request"))
    reply(bench)
    bench.broker.tick(NOW_MS + 10_000)
    reply(bench)
    bench.broker.connection_closed(REQUESTER)
    bench.appender.finish()

    assert [answer.code for answer in answers(bench)] == [1, 1, 1]
    remarks = [answer.remark or "" for answer in answers(bench)]
    for wanted, remark in zip(("no such request", "in time", "was closed"), remarks, strict=True):
        assert wanted in remark


def test_a_requester_is_found_at_its_newest_connection_until_it_leaves(bench: Bench) -> None:
    producers = bench.broker.core.clients
    beat(bench, "G", "H", connection=1)
    beat(bench, "G", connection=2)
    assert producers.producer_connection("asker") == 2

    bench.broker.connection_closed(1)
    assert producers.producer_connection("asker") == 2
    beat(bench, "G", "H", connection=2)
    leave = {"clientID": "asker", "producerGroup": "G"}
    bench.ask(35, leave, connection=2)
    assert producers.producer_connection("asker") == 2
    bench.ask(35, leave | {"producerGroup": "H"}, connection=2)
    assert producers.producer_connection("asker") is None


def test_a_reply_undergoes_the_checks_of_a_send(bench: Bench) -> None:
    assert reply(bench, topic="SCHEDULE_TOPIC_XXXX").code == 16
    assert reply(bench, queueId=1).code == 1
    assert reply(bench, properties="DELAY\x01soon").code == 1
    assert "sysFlag" in reply(bench, sysFlag="x").remark
    refusal = reply(bench, topic="unknown", defaultTopic="none")
    assert (refusal.code, refusal.ext) == (17, COMMON)
