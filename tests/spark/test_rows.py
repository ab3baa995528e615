"""Rows become the messages of a sink; no session is needed for that."""
from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from mqcore.client.errors import ConfigError, MessageTooLarge
from mqcore.client.message import MessageQueue
from mqcore.spark.errors import SparkSourceError
from mqcore.spark.topics.rows import Grouping, messages
from mqcore.wire.records import decode_batch

pa = pytest.importorskip("pyarrow")

MAP = pa.map_(pa.string(), pa.string())
PREFIX = b"0123456789ABCDEF0123"
QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(2)]


def batch(**columns):
    types = {"body": pa.binary(), "keys": pa.list_(pa.string()), "properties": MAP,
             "queueId": pa.int32(), "delayTimeLevel": pa.int32(), "flag": pa.int32(),
             "deliverAt": pa.timestamp("us", tz="UTC")}
    return pa.record_batch(
        [pa.array(values, types.get(name, pa.string())) for name, values in columns.items()],
        names=list(columns))


def items(rows, count_max=100, size_max=1 << 20, number=0):
    found, at = [], 0
    while at < rows.count:
        body, at = rows.encode(at, count_max, size_max, PREFIX, number + at)
        found.append(decode_batch(body))
    return found


def sent(rows, **limits):
    return [item for part in items(rows, **limits) for item in part]


def named(one):
    return {name: name for name in one.schema.names}


def grouped(one, topic="t"):
    groups = Grouping(named(one), topic, lambda _: QUEUES).groups(one)
    return [(group.topic, group.queue, group.delay, group.batch["body"].to_pylist())
            for group in groups]


def test_a_row_becomes_a_message_with_all_that_it_says():
    one = batch(body=[b"one", b"two"], tags=["paid", None], keys=[["a", "b"], []],
                properties=[{"n": "1", "TAGS": "x", "UNIQ_KEY": "y", "KEYS": "z"},
                            {"TAGS": "new", "KEYS": "k", "empty": "", "DELAY": "3"}],
                flag=[7, None])

    first, second = sent(messages(one, named(one)), number=255)

    assert (first.body, first.flag) == (b"one", 7)
    assert first.properties == {
        "WAIT": "true", "UNIQ_KEY": "0123456789ABCDEF01230000000000FF", "TAGS": "paid",
        "KEYS": "a b", "n": "1"}
    assert (second.body, second.flag) == (b"two", 0)
    assert second.properties == {
        "WAIT": "true", "UNIQ_KEY": "0123456789ABCDEF0123000000000100"}


@pytest.mark.parametrize("given", [
    {}, {"tags": [None]}, {"keys": [None]}, {"keys": [[]]}, {"keys": [[None]]}, {"keys": [[""]]},
    {"keys": [[None, "a", None, "b"]]}])
def test_a_null_in_a_column_is_none_whatever_the_map_has(given):
    """The map of a frame from a topic still has the tags and keys that a query took away."""
    one = batch(body=[b"x"], properties=[{"TAGS": "old", "KEYS": "k", "n": "1"}], **given)
    (found,) = sent(messages(one, named(one)))
    assert found.properties.get("TAGS") == (None if "tags" in given else "old")
    keys = (given["keys"][0] or []) if "keys" in given else ["k"]
    assert found.properties.get("KEYS") == (" ".join(filter(None, keys)) or None)
    assert found.properties["n"] == "1"


def test_a_copy_keeps_all_its_properties_and_gets_none():
    said = [{"UNIQ_KEY": "theirs", "TAGS": "x", "KEYS": "a b", "DELAY": "3", "WAIT": "false"}, {},
            {"n": "1"}]
    one = batch(body=[b"one", b"two", b"three"], properties=said, flag=[7, 0, 1]).slice(0)

    rows = messages(one, named(one), verbatim=True)
    found = decode_batch(rows.encode(0, 3, 1 << 20, b"", 0)[0])

    assert [item.properties for item in found] == said
    assert [(item.body, item.flag) for item in found] == [(b"one", 7), (b"two", 0), (b"three", 1)]
    last = messages(one.slice(2), named(one), verbatim=True)
    assert decode_batch(last.encode(0, 9, 1 << 20, b"", 0)[0])[0].properties == {"n": "1"}


def test_keys_may_be_one_text():
    one = pa.record_batch([pa.array([b"x"]), pa.array(["a b"])], names=["body", "keys"])
    assert sent(messages(one, named(one)))[0].properties["KEYS"] == "a b"


def test_a_part_of_a_batch_is_encoded_as_the_whole():
    one = batch(body=[b"%d" % number for number in range(100)],
                tags=[None if number % 3 else f"t{number}" for number in range(100)],
                keys=[[f"k{number}"] * (number % 4) for number in range(100)],
                properties=[{"n": str(number)} if number % 5 else None for number in range(100)])
    whole = [item.properties | {"UNIQ_KEY": ""} for item in sent(messages(one, named(one)))]

    for cut in (one.slice(13, 50), pa.record_batch(one.take(pa.array(range(13, 63))))):
        part = sent(messages(cut, named(cut)))
        assert [item.body for item in part] == [b"%d" % number for number in range(13, 63)]
        assert [item.properties | {"UNIQ_KEY": ""} for item in part] == whole[13:63]


def test_requests_end_at_their_limits():
    rows = messages(batch(body=[b"x" * 100] * 10), {"body": "body"})

    assert [len(part) for part in items(rows, count_max=4)] == [4, 4, 2]
    assert [len(part) for part in items(rows, size_max=500)] == [2, 2, 2, 2, 2]
    assert [len(part) for part in items(rows, size_max=1)] == [1] * 10


@pytest.mark.parametrize(("one", "error"), [
    (batch(body=[None]), ConfigError), (batch(body=[b""]), ConfigError),
    (batch(body=[b"x"], properties=[{"a": "\x02"}]), ConfigError),
    (batch(body=[b"x"], properties=[{"": "v"}]), ConfigError),
    (batch(body=[b"x"], tags=["t" * 40_000]), MessageTooLarge)])
def test_what_brokers_would_not_take_is_refused(one, error):
    with pytest.raises(error):
        items(messages(one, named(one)))


def test_rows_without_a_queue_stay_together():
    assert grouped(batch(body=[b"1", b"2"])) == [("t", None, None, [b"1", b"2"])]


def test_rows_go_where_their_columns_say_in_their_order():
    one = batch(body=[b"1", b"2", b"3", b"4", b"5"], topic=["x", "y", "x", "y", "x"],
                delayTimeLevel=[0, None, 3, 0, 0])

    assert sorted((topic, queue, delay or (), bodies)
                  for topic, queue, delay, bodies in grouped(one, topic=None)) == [
        ("x", None, (), [b"1", b"5"]), ("x", None, ("DELAY", "3"), [b"3"]),
        ("y", None, (), [b"2", b"4"])]
    assert {topic for topic, _, _, _ in grouped(one)} == {"t"}


def test_a_sharding_key_means_one_queue_and_a_queue_may_be_named():
    keyed = grouped(batch(body=[b"1", b"2", b"3"], shardingKey=["k", "l", "k"]))
    of_body = {body: queue for _, queue, _, bodies in keyed for body in bodies}
    assert of_body[b"1"] == of_body[b"3"] is not None

    named_queue = batch(body=[b"1"], queueId=[1], brokerName=["b"])
    assert grouped(named_queue) == [("t", MessageQueue("t", "b", 1), None, [b"1"])]


def test_a_moment_of_delivery_is_the_brokers_property_in_milliseconds():
    """A message is not delivered before its time: microseconds are rounded up."""
    moments = [datetime(2030, 1, 1, tzinfo=UTC), None,
               datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=timezone(timedelta(hours=-5))),
               datetime(1960, 1, 1, tzinfo=UTC)]

    delays = {body: delay for _, _, delay, bodies in grouped(
        batch(body=[b"1", b"2", b"3", b"4"], deliverAt=moments)) for body in bodies}

    assert delays == {
        b"1": ("TIMER_DELIVER_MS", "1893456000000"), b"2": None,
        b"3": ("TIMER_DELIVER_MS", "1893474000001"), b"4": ("TIMER_DELIVER_MS", "0")}


@pytest.mark.parametrize(("columns", "said"), [
    ({"queueId": [1]}, "give brokerName"), ({"queueId": [9], "brokerName": ["a"]}, "is not there"),
    ({"delayTimeLevel": [19]}, "expected 0 to 18"),
    ({"delayTimeLevel": [3], "deliverAt": [datetime(2030, 1, 1, tzinfo=UTC)]}, "only one")])
def test_a_way_that_is_not_there_is_told(columns, said):
    with pytest.raises(SparkSourceError, match=said):
        grouped(batch(body=[b"1"], **columns))
