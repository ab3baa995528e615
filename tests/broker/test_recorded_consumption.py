"""
Recorded requests about groups, retries and replies get the answers that a stock 4.9.8 broker gave.

As tests/broker/test_recorded.py has it, for CONSUMER_SEND_MSG_BACK, replies and what follows them.
"""
from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from mqcore.wire import fastjson
from mqcore.wire.command import Command, response
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.properties import decode_properties
from mqcore.wire.records import Record, encode_record
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench
from tests.broker.test_recorded import WIRE, ask, assert_same, fields, frame, recorded

MEMBER = 2


@pytest.mark.parametrize("exchange", recorded("send", 324, 325))
def test_replies_are_pushed_and_answered_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    asked = fields(exchange["request"])
    properties = decode_properties(asked.get("properties") or asked["i"])
    pushed_alike = next((
        found for found in recorded_to_clients(326)
        if decode_properties(fields(found["request"])["properties"])["CORRELATION_ID"]
        == properties["CORRELATION_ID"]), None)
    wanted = frame(exchange["response"]) if exchange["response"] else None
    if wanted is None or wanted.code == 0:
        bench.ask(34, None, {"clientID": properties["REPLY_TO_CLIENT"],
                             "producerDataSet": [{"groupName": "G"}]}, connection=2)
    assert ask(bench, exchange) is None
    if wanted is None or wanted.code == 0:
        (connection, push), = bench.connections.sent
        assert connection == 2
        if pushed_alike is not None:
            assert_pushed_alike(pushed_alike, push)
        bench.connections.sent.clear()
        bench.broker.handle_response(2, response(push, 0))
    if wanted is None:
        return                             # the recording ends before its answer
    ext = wanted.ext or {}
    position = parse_offset_message_id(ext["msgId"] or "")[2]
    bench.appender.finish(queue_offset=int(ext["queueOffset"] or 0), position=position)
    (_, found), = bench.connections.sent
    assert found == wanted


def recorded_to_clients(code: int) -> list[dict[str, Any]]:
    """The exchanges of a code that the broker began."""
    with gzip.open(WIRE / "to-client.jsonl.gz", "rt") as lines:
        found = [json.loads(line) for line in lines]
    return [exchange for exchange in found
            if exchange["code"] == code and exchange["request"]["direction"].startswith("broker")]


def assert_pushed_alike(exchange: dict[str, Any], push: Command) -> None:
    """All but times and the address of the sender, which differ from run to run."""
    wanted = frame(exchange["request"])
    assert (push.code, push.flag, push.body, push.codec) == (
        wanted.code, wanted.flag, wanted.body, wanted.codec)
    found, stock = dict(push.ext or {}), dict(wanted.ext or {})
    assert set(found) == set(stock)
    for name in ("storeTimestamp", "bornHost"):
        assert found.pop(name)
        assert stock.pop(name)
    texts = [decode_properties(side.pop("properties") or "") for side in (found, stock)]
    for text in texts:
        assert int(text.pop("PUSH_REPLY_TIME")) > 0
    assert texts[0] == texts[1]
    assert found == stock


@pytest.mark.parametrize("exchange", recorded("consumer", 36))
def test_messages_are_taken_back_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    asked = fields(exchange["request"])
    bench.store.records[int(asked["offset"])] = encode_record(Record(
        topic="T", queue_id=0, queue_offset=0, physical_offset=int(asked["offset"]), flag=0,
        sys_flag=0, body_crc=0, born_timestamp_ms=1, born_host=("10.0.0.1", 1),
        store_timestamp_ms=2, store_host=("10.0.0.2", 2), reconsume_times=0,
        prepared_transaction_offset=0, body=b"x", properties={}, size=0))
    assert ask(bench, exchange) is None
    bench.appender.finish()

    (_, found), = bench.connections.sent
    wanted = frame(exchange["response"])
    wanted.ext = wanted.ext or found.ext           # a binary header cannot tell none from empty
    assert found == wanted
    (_, _, _, properties), = bench.appender.appended
    assert (properties["DELAY"], properties["REAL_TOPIC"]) == ("3", "%RETRY%" + asked["group"])


@pytest.mark.parametrize("exchange", recorded("broker-admin", 200, 207))
def test_groups_are_made_and_deleted_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    if exchange["code"] == 207:
        bench.ask(200, None, {"groupName": fields(exchange["request"])["groupName"]})
    assert_same(exchange, ask(bench, exchange))

    assert ("made_by_api" in bench.tables.groups) == (exchange["code"] == 200)


@pytest.mark.parametrize("exchange", recorded("broker-admin", 222))
def test_offsets_are_reset_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    asked, wanted = fields(exchange["request"]), frame(exchange["response"])
    topic, group = asked["topic"], asked["group"]
    bench.broker.core.topics.update(TopicConfig(topic, 2, 2), NOW_MS)
    if wanted.code != 1:
        for queue_id in range(2):
            bench.broker.commit_offset(group, topic, queue_id, 2)
    if wanted.code == 0:
        bench.heartbeat(group, {topic: 1}, connection=MEMBER)
        bench.connections.sent.clear()
    outcome = ask(bench, exchange)

    assert_same(exchange, outcome, body=False)
    if wanted.code != 0:
        assert bench.connections.sent == []
        return
    assert fastjson.loads(outcome.body) == fastjson.loads(wanted.body)
    (_, push), = bench.connections.sent
    stock = next(frame(found["request"]) for found in recorded_to_clients(220)
                 if fields(found["request"])["group"] == group)
    assert (push.code, push.flag, push.ext) == (stock.code, stock.flag, stock.ext)
    tables = [fastjson.loads(side.body)["offsetTable"] for side in (push, stock)]
    assert type(tables[0]) is type(tables[1])
    assert sorted(tables[0], key=str) == sorted(tables[1], key=str)


@pytest.mark.parametrize("exchange", recorded("broker-admin", 223))
def test_offsets_in_consumers_memory_are_collected_alike(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    asked = fields(exchange["request"])
    wanted = fastjson.loads(frame(exchange["response"]).body)
    (client_id,) = wanted["consumerTable"]
    bench.heartbeat(asked["group"], {asked["topic"]: 1}, connection=MEMBER, client_id=client_id)
    bench.connections.sent.clear()
    assert ask(bench, exchange) is None
    (_, question), = bench.connections.sent
    (told,) = recorded_to_clients(221)
    stock, answer = frame(told["request"]), frame(told["response"])
    assert (question.code, question.flag, question.ext) == (stock.code, stock.flag, stock.ext)
    bench.connections.sent.clear()
    answer.opaque = question.opaque
    bench.broker.handle_response(MEMBER, answer)

    (_, found), = bench.connections.sent
    assert fastjson.loads(found.body) == wanted
    found.body = frame(exchange["response"]).body
    assert found == frame(exchange["response"])


@pytest.mark.parametrize("exchange", recorded("broker-admin", 308, 314))
def test_offsets_are_compared_and_cloned_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    asked = fields(exchange["request"])
    group = asked.get("compareGroup") or asked["srcGroup"]
    offsets = {0: 1, 1: 2, 2: 1, 3: 1}
    bench.broker.core.topics.update(TopicConfig(asked["topic"], 4, 4), NOW_MS)
    for queue_id, offset in offsets.items():
        bench.broker.commit_offset(group, asked["topic"], queue_id, offset)

    assert_same(exchange, ask(bench, exchange))
    if exchange["code"] == 314:
        assert bench.broker.core.offsets.of_queues(asked["destGroup"], asked["topic"]) == offsets


def test_members_are_told_of_changes_as_stock_tells_them(bench: Bench) -> None:
    with gzip.open(WIRE / "consumer.jsonl.gz", "rt") as lines:
        notices = [exchange for exchange in map(json.loads, lines) if exchange["code"] == 40]
    assert notices
    for number, exchange in enumerate(notices):
        stock = frame(exchange["request"])
        group = (stock.ext or {})["consumerGroup"] or ""
        bench.connections.sent.clear()
        bench.heartbeat(group, {"T": 1}, connection=10 + number)
        (_, notice), = [each for each in bench.connections.sent if each[0] == 10 + number]
        notice.opaque = stock.opaque
        assert notice == stock
