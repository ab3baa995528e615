"""
What mqadmin and an admin client asked of a stock 4.9.8 broker, asked of ours in the same state.

The state is what the recorded answer says: bounds of queues, offsets, members, times. Bodies are
compared decoded, since lists and maps may come in any order.
"""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.ports import ConsumeQueueEntry
from mqcore.broker.requests.config import LIVE, shown
from mqcore.broker.settings.load import load
from mqcore.broker.settings.stock_conf import CONVERTED, RENAMED
from mqcore.broker.tables.clients import Client
from mqcore.broker.tables.groups import GroupConfig
from mqcore.broker.tables.statistics import Count
from mqcore.broker.tables.subscriptions import ConsumerEntry, parse_subscription_data
from mqcore.turns import finished
from mqcore.wire import fastjson
from mqcore.wire.codes import LanguageCode
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in, text_of
from tests.broker.test_recorded import ask, assert_same, fields, frame, recorded

QUEUES = 8


def body(exchange: dict[str, Any]) -> Any:
    """The recorded answer's body; None when it has none."""
    raw = frame(exchange["response"]).body
    return fastjson.loads(raw) if raw else None


def assert_alike(exchange: dict[str, Any], outcome: Any, ours: Any = None) -> None:
    """Header and decoded body; ours: the body to compare, as far as it was cut to be compared."""
    assert_same(exchange, outcome, body=False)
    theirs = body(exchange)
    found = ours if ours is not None else (
        fastjson.loads(outcome.body) if outcome.body else None)
    assert in_order(found) == in_order(theirs)


def in_order(value: Any) -> Any:
    """Lists sorted by their text: stock writes sets in any order."""
    if isinstance(value, dict):
        return {key: in_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((in_order(item) for item in value), key=str)
    return value


def have_topic(bench: Bench, name: str, queues: int) -> None:
    bench.broker.core.topics.update(TopicConfig(name, queues, queues), NOW_MS)


@pytest.mark.parametrize("exchange", recorded("broker-admin", 202))
def test_bounds_of_a_topics_queues_are_told_alike(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    table = body(exchange)["offsetTable"]
    have_topic(bench, fields(exchange["request"])["topic"], len(table))
    for queue, row in table.items():
        topic, queue_id = dict(queue)["topic"], dict(queue)["queueId"]
        high = row["maxOffset"]
        bench.store.queues[topic, queue_id] = (row["minOffset"], high)
        bench.store.store_times[topic, queue_id, high - 1] = row["lastUpdateTimestamp"]

    assert_alike(exchange, ask(bench, exchange))


def have_progress(bench: Bench, group: str, table: dict[Any, dict[str, int]]) -> None:
    """Topics, queues and offsets of a recorded offsetTable."""
    topics = {dict(queue)["topic"] for queue in table}
    for topic in topics:
        have_topic(bench, topic, sum(dict(queue)["topic"] == topic for queue in table))
    for queue, row in table.items():
        place = row["consumerOffset"]
        topic, queue_id = dict(queue)["topic"], dict(queue)["queueId"]
        bench.store.queues[topic, queue_id] = (0, row["brokerOffset"])
        bench.store.store_times[topic, queue_id, place - 1] = row["lastTimestamp"]
        bench.broker.commit_offset(group, topic, queue_id, place)


@pytest.mark.parametrize("exchange", recorded("broker-admin", 208))
def test_the_progress_of_a_group_is_told_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    stats = body(exchange)
    group = fields(exchange["request"])["consumerGroup"]
    have_progress(bench, group, stats["offsetTable"])
    if stats["consumeTps"]:
        topic = dict(next(iter(stats["offsetTable"])))["topic"]
        key = f"{topic}@{group}"
        consumed = {("GROUP_GET_NUMS", key): Count(int(stats["consumeTps"] * 10), 1)}
        bench.broker.core.statistics.sample(NOW_MS + 10_000, "C", consumed, (0, 0))

    assert_alike(exchange, ask(bench, exchange))


@pytest.mark.parametrize("exchange", recorded("broker-admin", 317))
def test_the_progress_of_all_groups_is_told_alike(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    wanted = body(exchange)
    for entry in wanted["consumeStatsList"]:
        for group, parts in entry.items():
            bench.broker.core.groups._entries[group] = GroupConfig(group)
            for part in parts:
                have_progress(bench, group, part["offsetTable"])
    outcome = ask(bench, exchange)
    ours = fastjson.loads(text_of(outcome))
    for side in (ours, wanted):
        for entry in side["consumeStatsList"]:
            for parts in entry.values():
                for part in parts:
                    part.pop("consumeTps")

    assert_same(exchange, outcome, body=False)
    assert in_order(ours) == in_order(wanted)


def have_members(bench: Bench, group: str, connections: list[dict[str, Any]]) -> list[Client]:
    return [
        Client(number + 1, item["clientId"], LanguageCode[item["language"]], item["version"],
               item.get("clientAddr") or item["remoteIP"].lstrip("/"),
               item.get("lastUpdateTimestamp", 0))
        for number, item in enumerate(connections)
    ]


@pytest.mark.parametrize("exchange", recorded("broker-admin", 203))
def test_members_of_consumer_groups_are_shown_alike(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    wanted = body(exchange)
    group = fields(exchange["request"])["consumerGroup"]
    if wanted is not None:
        entry = ConsumerEntry(
            group, wanted["consumeType"], wanted["messageModel"], wanted["consumeFromWhere"],
            False, {topic: parse_subscription_data(data)
                    for topic, data in wanted["subscriptionTable"].items()})
        for client in have_members(bench, group, wanted["connectionSet"]):
            finished(bench.broker.core.clients.register_consumer(entry, client))

    assert_alike(exchange, ask(bench, exchange))


@pytest.mark.parametrize("exchange", recorded("broker-admin", 204))
def test_members_of_producer_groups_are_shown_alike(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    wanted = body(exchange)
    group = fields(exchange["request"])["producerGroup"]
    if wanted is not None:
        for client in have_members(bench, group, wanted["connectionSet"]):
            bench.broker.core.clients.register_producer(group, client)

    assert_alike(exchange, ask(bench, exchange))


@pytest.mark.parametrize("exchange", recorded("broker-admin", 328))
def test_all_producers_are_shown_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    for group, connections in body(exchange)["data"].items():
        for client in have_members(bench, group, connections):
            bench.broker.core.clients.register_producer(group, client)

    assert_alike(exchange, ask(bench, exchange))


@pytest.mark.parametrize("exchange", recorded("broker-admin", 300))
def test_the_groups_of_a_topic_are_listed_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    for group in body(exchange)["groupList"]:
        bench.broker.commit_offset(group, fields(exchange["request"])["topic"], 0, 1)

    assert_alike(exchange, ask(bench, exchange))


@pytest.mark.parametrize("exchange", recorded("broker-admin", 303))
def test_the_times_of_a_groups_place_are_told_alike(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    asked, spans = fields(exchange["request"]), body(exchange)["consumeTimeSpanSet"]
    have_topic(bench, asked["topic"], len(spans))
    for span in spans:
        queue_id = span["messageQueue"]["queueId"]
        times = {0: span["minTimeStamp"], 4: span["consumeTimeStamp"], 9: span["maxTimeStamp"]}
        place = 5 if span["delayTime"] else 10
        bench.store.queues[asked["topic"], queue_id] = (0, 10)
        for offset, time_ms in times.items():
            bench.store.store_times[asked["topic"], queue_id, offset] = time_ms
        bench.store.store_times[asked["topic"], queue_id, 5] = NOW_MS - span["delayTime"]
        bench.broker.commit_offset(asked["group"], asked["topic"], queue_id, place)
    outcome = ask(bench, exchange)
    ours = fastjson.loads(outcome.body)
    for side in (ours["consumeTimeSpanSet"], spans):
        for span in side:
            for name in ("minTimeStampStr", "maxTimeStampStr", "consumeTimeStampStr"):
                assert len(span.pop(name)) == len("2026-11-21#08:51:16:016")

    assert_same(exchange, outcome, body=False)
    assert in_order(ours["consumeTimeSpanSet"]) == in_order(spans)


@pytest.mark.parametrize("exchange", recorded("query", 321))
def test_rows_of_a_queue_are_shown_alike(
    bench: Bench, exchange: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, wanted = fields(exchange["request"]), body(exchange)
    have_topic(bench, asked["topic"], QUEUES)
    low, high = (wanted["minQueueIndex"], wanted["maxQueueIndex"]) if wanted else (0, 10)
    if int(asked["queueId"]) < QUEUES:
        bench.store.queues[asked["topic"], int(asked["queueId"])] = (low, high)
    rows = wanted["queueData"] if wanted else []
    first = int(asked["index"])
    entries = {
        first + number: ConsumeQueueEntry(row["physicOffset"], row["physicSize"], row["tagsCode"])
        for number, row in enumerate(rows)}
    monkeypatch.setattr(bench.store, "entry", lambda _, __, offset: entries.get(offset))

    assert_alike(exchange, ask(bench, exchange))


@pytest.mark.parametrize("exchange", recorded("broker-admin", 315))
def test_statistics_are_told_alike(bench: Bench, exchange: dict[str, Any]) -> None:
    asked, wanted = fields(exchange["request"]), body(exchange)
    if wanted is not None:
        minute = wanted["statsMinute"]
        statistics = bench.broker.core.statistics
        for seconds in range(10, 70, 10):
            count = minute["sum"] if seconds == 10 else 0
            statistics.sample(
                NOW_MS + seconds * 1000, "C",
                {(asked["statsName"], asked["statsKey"]): Count(count, count)}, (0, 0))
    outcome = ask(bench, exchange)

    assert_same(exchange, outcome, body=False)
    assert (fastjson.loads(outcome.body) if outcome.body else None) == wanted


@pytest.mark.parametrize("exchange", recorded("route", 305))
def test_the_system_topics_are_the_same(tmp_path: Path, exchange: dict[str, Any]) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.trace_topic_enable=true"))

    assert_alike(exchange, ask(bench, exchange))


@pytest.mark.parametrize("exchange", recorded("slave-sync", 45))
def test_delay_offsets_are_handed_to_slaves_alike(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    bench.figures.delays = {int(level): offset
                            for level, offset in body(exchange)["offsetTable"].items()}

    assert_same(exchange, ask(bench, exchange))


@pytest.mark.parametrize("exchange", recorded("broker-admin", 25))
def test_settings_are_changed_alike_or_refused_by_name(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    key = frame(exchange["request"]).body.decode().partition("=")[0]
    outcome = ask(bench, exchange)

    assert frame(exchange["response"]).code == outcome.code
    if key == "deleteWhen":
        assert_same(exchange, outcome)
    else:
        assert (outcome.code, key in outcome.remark) == (16, True)


@pytest.mark.parametrize("exchange", recorded("broker-admin", 26))
def test_settings_are_shown_as_stock_shows_them(
    tmp_path: Path, exchange: dict[str, Any]
) -> None:
    lines = frame(exchange["response"]).body.decode().splitlines()
    theirs = dict(line.split("=", 1) for line in lines)
    known = {**RENAMED, **{key: target for key, (target, _) in CONVERTED.items()}}
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key}={theirs[key]}\n" for key in known if key in theirs))
    settings = load(file, {}, [f"store.path={tmp_path / 'store'}"])
    bench = make_bench(settings)
    outcome = ask(bench, exchange)
    ours = dict(line.split("=", 1) for line in outcome.body.decode().splitlines())

    assert set(outcome.ext) == set(fields(exchange["response"])) == {"version"}
    same = {key for key in known if key in theirs and key in ours} - {"storePathRootDir"}
    assert len(same) >= 40
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    assert {known.get(key, key) for key in shown(settings)} >= LIVE


@pytest.mark.parametrize("exchange", recorded("broker-admin", 28))
def test_the_runtime_figures_that_tools_read_have_their_recorded_form(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    theirs = body(exchange)["table"]
    outcome = ask(bench, exchange)
    ours = fastjson.loads(outcome.body)["table"]

    assert_same(exchange, outcome, body=False)
    from_store = {name for name in ours if name.startswith("commitLogDiskRatio_")}
    assert set(ours) - from_store <= set(theirs) | {"brokerActive"}           # of 5.x
    for name in ("brokerVersionDesc", "brokerVersion", "sendThreadPoolQueueSize",
                 "pullThreadPoolQueueHeadWaitTimeMills",
                 "startAcceptSendRequestTimeStamp"):
        assert ours[name] == theirs[name], name


ACCOUNT = ("AccessKey", "Signature", "OnsChannel")      # C++'s tool and member say theirs


@pytest.mark.parametrize("exchange", recorded("to-client", 307, 309))
def test_questions_to_consumers_are_passed_on_alike(
    bench: Bench, exchange: dict[str, Any]
) -> None:
    asked, wanted = fields(exchange["request"]), frame(exchange["response"])
    bench.store.records.update(
        {int(asked["msgId"][16:], 16): b"the record"} if "msgId" in asked else {})
    if asked["clientId"] != "nobody":
        bench.heartbeat(asked["consumerGroup"], {"T": 1}, client_id=asked["clientId"],
                        connection=5)
        bench.connections.sent.clear()
    outcome = ask(bench, exchange)
    if asked["clientId"] == "nobody":
        assert_same(exchange, outcome)
        return
    assert outcome is None
    (connection, question), = bench.connections.sent
    bench.connections.sent.clear()
    assert connection == 5
    recorded_fields = {name: value for name, value in asked.items() if name not in ACCOUNT} | (
        {"brokerName": "broker-a"} if exchange["code"] == 309 else {})
    assert (question.code, question.ext) == (exchange["code"], recorded_fields)
    bench.broker.core.calls.answered(5, replace(wanted, opaque=question.opaque))
    (_, found), = bench.connections.sent
    assert found == replace(wanted, ext=wanted.ext and {
        name: value for name, value in wanted.ext.items() if name not in ACCOUNT})
