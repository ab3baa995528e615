"""
Requests that unmodified clients sent to a stock 4.9.8 broker get the answers that it gave.

Each recorded request meets a broker in the state that its recorded answer implies (queue bounds,
members, offsets, files); answers are compared field by field after decoding both frames.
"""
from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.request import REDO, Answer, Request, answer_frame
from mqcore.broker.tables import config_file
from mqcore.wire import fastjson
from mqcore.wire.codes import RETRY_PREFIX
from mqcore.wire.command import Codec, Command, decode
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in, text_of

WIRE = Path(__file__).parents[1] / "golden" / "wire"
STATE_BODIES = {21: "topics.json", 43: "consumerOffset.json", 201: "subscriptionGroup.json"}


def recorded(file: str, *codes: int) -> list[Any]:
    """The exchanges of a recording that a client began, one test parameter each."""
    found = []
    with gzip.open(WIRE / f"{file}.jsonl.gz", "rt") as lines:
        for number, line in enumerate(lines):
            exchange = json.loads(line)
            begun_by_client = exchange["request"]["direction"].endswith("-> broker")
            if begun_by_client and exchange["code"] in codes:
                found.append(pytest.param(exchange, id=f"{file}-{number}-{exchange['code']}"))
    return found


def frame(side: dict[str, Any]) -> Command:
    return decode(bytes.fromhex(side["frame_hex"])[4:])


def ask(bench: Bench, exchange: dict[str, Any]) -> Any:
    command = frame(exchange["request"])
    return bench.broker.handle(Request(
        1, "10.0.0.1:4000", command, NOW_MS, fast_port=exchange["port"].startswith("fast"),
        body_size=len(command.body),
    ))


def fields(side: dict[str, Any]) -> dict[str, str]:
    return {key: value or "" for key, value in (frame(side).ext or {}).items()}


def assert_same(exchange: dict[str, Any], outcome: Any, *, body: bool = True) -> None:
    """The answer's frame decodes to what stock's frame decodes to."""
    command = frame(exchange["request"])
    if exchange["response"] is None:
        assert isinstance(outcome, Answer)
        assert outcome.code == 0
        return
    wanted = frame(exchange["response"])
    raw = answer_frame(Request(1, "", command, NOW_MS), outcome)
    assert raw is not None
    found = decode(raw[4:])
    if Codec.ROCKETMQ in (wanted.codec, command.codec):      # cannot tell no fields from none
        found.ext, wanted.ext = found.ext or {}, wanted.ext or {}
        found.codec = wanted.codec
    if not body:
        found.body = wanted.body
    assert found == wanted


@pytest.mark.parametrize("exchange", recorded("consumer", 34, 35, 42))
def test_heartbeats_and_leaving_are_answered_alike(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    assert_same(exchange, ask(bench, exchange))


@pytest.mark.parametrize("exchange", recorded("consumer", 34))
def test_a_recorded_heartbeat_registers_what_it_names(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    body = fastjson.loads(frame(exchange["request"]).body)
    ask(bench, exchange)

    clients = bench.broker.core.clients
    for entry in body.get("producerDataSet") or []:
        assert clients.producers[entry["groupName"]][1].client_id == body["clientID"]
    for entry in body.get("consumerDataSet") or []:
        group = clients.consumers[entry["groupName"]]
        assert group.members[1].client_id == body["clientID"]
        assert set(group.subscriptions) == {
            item["topic"] for item in entry.get("subscriptionDataSet") or []
        }
        assert group.message_model in ("CLUSTERING", "BROADCASTING")
        assert group.consume_type is not None
        assert group.from_where is not None


@pytest.mark.parametrize("exchange", recorded("consumer", 38))
def test_members_are_listed_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    wanted = frame(exchange["response"])
    ids = fastjson.loads(wanted.body)["consumerIdList"] if wanted.body else []
    for number, client_id in enumerate(ids):
        group = fields(exchange["request"])["consumerGroup"]
        bench.heartbeat(group, {"T": 1}, connection=number + 2, client_id=client_id)
    outcome = ask(bench, exchange)

    assert_same(exchange, outcome, body=False)
    if ids:
        assert sorted(fastjson.loads(outcome.body)["consumerIdList"]) == sorted(ids)


@pytest.mark.parametrize("exchange", recorded("consumer", 41))
def test_queues_are_locked_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    body = fastjson.loads(frame(exchange["request"]).body)
    granted = fastjson.loads(frame(exchange["response"]).body)["lockOKMQSet"]
    held = [queue for queue in body["mqSet"] if queue not in granted]
    bench.ask(41, None, {**body, "clientId": "another", "mqSet": held}, connection=2)
    outcome = ask(bench, exchange)

    assert_same(exchange, outcome, body=False)
    found = fastjson.loads(outcome.body)["lockOKMQSet"]
    assert sorted(found, key=str) == sorted(
        ({key: queue[key] for key in sorted(queue)} for queue in granted), key=str
    )


@pytest.mark.parametrize("exchange", recorded("consumer", 46))
def test_expressions_are_checked_alike(tmp_path: Path, exchange: dict[str, Any]) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.property_filter_enable=true"))
    outcome = ask(bench, exchange)

    wanted = frame(exchange["response"])
    assert outcome.code == wanted.code
    if wanted.code == 0:
        assert_same(exchange, outcome)


@pytest.mark.parametrize("exchange", recorded("offsets", 14, 15, 29, 30, 31, 32))
def test_offsets_are_answered_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    asked = fields(exchange["request"])
    topic, queue_id = asked["topic"], int(asked["queueId"])
    wanted = fields(exchange["response"]) if exchange["response"] else {}
    if "timestamp" in wanted:
        bench.store.queues[topic, queue_id] = (0, 1)
        bench.store.store_times[topic, queue_id, 0] = int(wanted["timestamp"])
    elif exchange["code"] == 14 and wanted["offset"] != "0":
        bench.broker.commit_offset(asked["consumerGroup"], topic, queue_id, int(wanted["offset"]))
    elif exchange["code"] == 29:
        key = (topic, queue_id, int(asked["timestamp"]))
        bench.store.by_time[key] = int(wanted["offset"])
    elif exchange["code"] in (30, 31):
        bound = int(wanted["offset"])
        bench.store.queues[topic, queue_id] = (bound, bound)

    assert_same(exchange, ask(bench, exchange))
    if exchange["code"] == 15:
        committed = bench.broker.core.offsets.committed(asked["consumerGroup"], topic, queue_id)
        assert committed == int(asked["commitOffset"])


@pytest.mark.parametrize("exchange", recorded("query", 33))
def test_a_message_is_viewed_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    wanted = frame(exchange["response"])
    if wanted.code == 0:
        bench.store.records[int(fields(exchange["request"])["offset"])] = wanted.body

    assert_same(exchange, ask(bench, exchange))


@pytest.mark.parametrize("exchange", recorded("slave-sync", *STATE_BODIES))
def test_a_stock_table_is_loaded_and_handed_to_slaves_alike(
    tmp_path: Path, exchange: dict[str, Any]
) -> None:
    table = fastjson.loads(frame(exchange["response"]).body)
    settings = settings_in(tmp_path, "broker.trace_topic_enable=true")
    config_file.save(settings.config_dir / STATE_BODIES[exchange["code"]], table)
    outcome = ask(make_bench(settings), exchange)

    assert_same(exchange, outcome, body=False)
    assert fastjson.loads(text_of(outcome)) == table


@pytest.mark.parametrize("exchange", recorded("broker-admin", 17))
def test_topics_are_created_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    outcome = ask(bench, exchange)
    if outcome is not None:
        assert_same(exchange, outcome)
        return
    bench.registrar.finish()
    (_, found), = bench.connections.sent
    assert found == frame(exchange["response"])
    asked = fields(exchange["request"])
    topic = bench.tables.topics[asked["topic"]]
    assert (topic.read_queue_count, topic.write_queue_count) == (
        int(asked["readQueueNums"]), int(asked["writeQueueNums"])
    )


@pytest.mark.parametrize("exchange", recorded("pull", 361))
def test_a_pull_of_later_releases_is_served_as_a_pull(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    found = ask(bench, exchange)

    assert found == bench.ask(11, frame(exchange["request"]).ext)
    assert frame(exchange["response"]).code == 3          # tests/wire_live/differences


@pytest.mark.parametrize("exchange", recorded("send", 10, 310, 320))
def test_recorded_sends_may_run(bench: Bench, exchange: dict[str, Any]) -> None:
    asked = fields(exchange["request"])
    topic = asked.get("topic") or asked["b"]
    queue_id = int(asked.get("queueId") or asked["e"])
    if queue_id >= 4:
        bench.broker.core.topics.update(TopicConfig(topic, queue_id + 1, queue_id + 1), NOW_MS)

    assert exchange["response"] is None or exchange["response"]["header"]["code"] == 0
    assert ask(bench, exchange) is REDO
    assert topic in bench.tables.topics
    assert not topic.startswith(RETRY_PREFIX) or topic[7:] in bench.tables.groups


@pytest.mark.parametrize("exchange", recorded("pull", 11))
def test_recorded_pulls_are_refused_or_moved_alike_and_may_run_otherwise(
    tmp_path: Path, exchange: dict[str, Any]
) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.property_filter_enable=true"))
    asked = fields(exchange["request"])
    topic, queue_id = asked["topic"], int(asked["queueId"])
    code, bounds = 0, {}
    if exchange["response"] is not None:
        code = exchange["response"]["header"]["code"]
        bounds = fields(exchange["response"])
    bench.broker.core.topics.update(TopicConfig(topic, queue_id + 1, queue_id + 1), NOW_MS)
    begin = int(asked["queueOffset"])
    bench.store.queues[topic, queue_id] = (
        int(bounds.get("minOffset", 0)), int(bounds.get("maxOffset", begin))
    )
    if not int(asked["sysFlag"]) & 4:
        older = 1 if code == 25 else 0
        bench.ask(34, None, {"clientID": "c", "consumerDataSet": [{
            "groupName": asked["consumerGroup"], "messageModel": "CLUSTERING",
            "subscriptionDataSet": [{
                "topic": topic,
                "subString": "a > 1" if asked.get("expressionType") == "SQL92" else "*",
                "expressionType": asked.get("expressionType"),
                "subVersion": int(asked["subVersion"]) - older,
            }],
        }]})
    outcome = ask(bench, exchange)

    if code in (21, 25):
        assert_same(exchange, outcome)
    else:
        assert code in (0, 19, 20)
        assert outcome is REDO
