"""QUERY_MESSAGE and the requests that remove things, as the rules decide (broker.md 9.6, 10.1)."""
from __future__ import annotations

from typing import Any

import pytest

from mqcore.broker.request import Request
from mqcore.wire.codes import FRAME_LENGTH_MAX
from mqcore.wire.command import Command, decode, encode
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench
from tests.broker.test_recorded import ask, assert_same, fields, frame, recorded

EVER = str((1 << 63) - 1)


def query(bench: Bench, **changes: object) -> Any:
    return bench.ask(12, {"topic": "T", "key": "k", "maxNum": 10, "beginTimestamp": 0,
                          "endTimestamp": EVER, **changes})


def record_in(bench: Bench, position: int, content: bytes) -> None:
    bench.store.records[position] = content


def records_of(body: bytes) -> list[bytes]:
    found = []
    while body:
        size = int.from_bytes(body[:4], "big")
        found.append(body[:size])
        body = body[size:]
    return found


@pytest.mark.parametrize("exchange", recorded("query", 12))
def test_recorded_queries_are_answered_alike(
    bench: Bench, exchange: dict[str, Any],
) -> None:
    asked, wanted = fields(exchange["request"]), frame(exchange["response"])
    entries = []
    for content in records_of(wanted.body):
        position = int.from_bytes(content[28:36], "big")
        bench.store.records[position] = content
        entries.append((int(asked["beginTimestamp"]) + 1, position))
    known = fields(exchange["response"])
    bench.store.index[asked["topic"], asked["key"]] = (
        int(known["indexLastUpdateTimestamp"]), int(known["indexLastUpdatePhyoffset"]), entries)

    assert_same(exchange, ask(bench, exchange))


def test_records_come_oldest_first_and_only_those_that_are_left(
    bench: Bench,
) -> None:
    bench.store.index["T", "k"] = (9, 900, [(1, 100), (2, 200), (3, 300)])
    record_in(bench, 300, b"third")
    record_in(bench, 200, b"second")

    outcome = query(bench)
    assert (outcome.code, outcome.body) == (0, b"secondthird")
    assert outcome.ext == {"indexLastUpdateTimestamp": "9", "indexLastUpdatePhyoffset": "900"}


@pytest.mark.parametrize(("changes", "count"), [
    ({}, 10), ({"maxNum": 3}, 3), ({"maxNum": 100}, 64), ({"maxNum": 0}, 0), ({"maxNum": -1}, 0),
    ({"_UNIQUE_KEY_QUERY": "true"}, 32), ({"_UNIQUE_KEY_QUERY": "TRUE", "maxNum": 1}, 32),
])
def test_a_query_returns_the_newest_up_to_its_limit(
    bench: Bench, changes: dict[str, object], count: int,
) -> None:
    bench.store.index["T", "k"] = (9, 900, [(n, n) for n in range(1, 100)])
    for n in range(1, 100):
        record_in(bench, n, b"%d," % n)

    outcome = query(bench, **changes)
    assert outcome.body == b"".join(b"%d," % n for n in range(100 - count, 100))
    assert outcome.code == (0 if count else 22)


def test_a_query_goes_further_back_three_times_when_no_record_can_be_read(
    bench: Bench,
) -> None:
    bench.store.index["T", "k"] = (9, 900, [(n, n) for n in range(1, 100)])
    for n in range(1, 99 - 2 * 9):
        record_in(bench, n, b"%d," % n)
    assert query(bench).body.endswith(b"80,")              # the third round: 81 to 72

    for n in range(72, 81):
        del bench.store.records[n]
    assert query(bench).code == 22


def test_an_answer_holds_as_many_records_as_a_frame_carries(bench: Bench) -> None:
    bench.store.index["T", "k"] = (9, 900, [(n, n) for n in range(1, 6)])
    for n in range(1, 6):
        record_in(bench, n, b"%d" % n * (4 << 20))

    outcome = query(bench)
    assert outcome.body == b"".join(b"%d" % n * (4 << 20) for n in range(1, 4))
    assert len(outcome.body) < FRAME_LENGTH_MAX


@pytest.mark.parametrize("field", ["topic", "key", "maxNum", "beginTimestamp", "endTimestamp"])
def test_a_query_without_a_field_is_told_which(bench: Bench, field: str) -> None:
    ext = {"topic": "T", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
    del ext[field]
    outcome = bench.ask(12, ext)

    assert outcome.code == 1
    assert f"header field {field} is missing" in outcome.remark


# -- removing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("exchange", recorded("broker-admin", 215, 306, 316, 329))
def test_recorded_removals_are_answered_alike(
    bench: Bench, exchange: dict[str, Any],
) -> None:
    topic = fields(exchange["request"]).get("topic", "")
    if topic.startswith("dt_"):
        bench.broker.core.topics.update(TopicConfig(topic, 4, 4), NOW_MS)
        bench.queues.queues[topic, 0] = 5
    outcome = ask(bench, exchange)
    if outcome is not None:
        assert_same(exchange, outcome)
        return
    bench.queues.finish()
    (_, answer), = bench.connections.sent
    assert answer == frame(exchange["response"])


def test_deleting_a_topic_removes_its_queues_and_no_others(bench: Bench) -> None:
    bench.broker.core.topics.update(TopicConfig("T", 4, 4), NOW_MS)
    bench.queues.queues = {("T", 0): 5, ("T", 1): 6, ("orphan", 0): 1, ("U", 0): 1}

    assert bench.ask(215, {"topic": "T"}) is None
    assert bench.queues.removed == [("T", 0), ("T", 1)]
    assert "T" not in bench.tables.topics
    assert bench.connections.sent == []
    bench.queues.finish()
    (connection, answer), = bench.connections.sent
    assert (connection, answer.code, answer.opaque) == (1, 0, 7)
    assert bench.registrar.registered == []


def test_deleting_a_topic_that_takes_long_is_told_so(bench: Bench) -> None:
    bench.queues.queues = {("T", 0): 5}
    assert bench.ask(215, {"topic": "T"}) is None
    bench.queues.finish("not removed yet")

    (_, answer), = bench.connections.sent
    assert (answer.code, answer.remark) == (1, "1 queues are not removed yet")


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "", "a b"])
def test_a_system_topic_or_an_illegal_name_is_not_deleted(
    bench: Bench, topic: str,
) -> None:
    bench.queues.queues = {(topic, 0): 5}

    assert bench.ask(215, {"topic": topic}).code == 1
    assert bench.queues.removed == []


def test_unused_topics_are_those_without_config_but_for_the_stores_own(
    bench: Bench,
) -> None:
    bench.broker.core.topics.update(TopicConfig("T", 4, 4), NOW_MS)
    bench.queues.queues = {
        (topic, 0): 1 for topic in
        ("T", "orphan", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%LMQ%light")}

    assert bench.ask(316) is None
    assert bench.queues.removed == [("orphan", 0)]


def test_expired_queues_are_those_whose_last_record_lies_below_the_log(
    bench: Bench,
) -> None:
    record_in(bench, 1000, b"first of the log")            # entry n of a queue lies at n * 100
    bench.store.queues = {("ends below", 0): (0, 10), ("reaches in", 0): (0, 11),
                          ("SCHEDULE_TOPIC_XXXX", 3): (0, 5)}
    bench.queues.queues = {queue: end for queue, (_, end) in bench.store.queues.items()}

    assert bench.ask(306) is None
    assert bench.queues.removed == [("ends below", 0)]


def test_expired_files_are_deleted_on_demand(bench: Bench) -> None:
    assert bench.ask(329).code == 0
    assert bench.queues.deletions == 1


def test_a_one_way_removal_is_not_answered(bench: Bench) -> None:
    bench.queues.queues = {("T", 0): 5}
    raw = encode(Command(215, flag=2, opaque=9, ext={"topic": "T"}))
    assert bench.broker.handle(Request(1, "10.0.0.1:1", decode(raw[4:]), NOW_MS)) is None
    bench.queues.finish()
    assert bench.connections.sent == []
