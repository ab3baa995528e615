"""Batch reads of topics."""
from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from importlib import metadata

import pytest

from mqcore.client.message import MessageQueue
from mqcore.spark.columns import all_columns
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _both(source):
    """Each test runs on the source in Python and on the one in the JVM."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_topic_is_read_whole_with_every_column(world):
    topic = world.topic()
    world.send(topic, 3_000)

    frame = world.read(topic)
    rows = frame.where("tags = 't1'").orderBy("bornTimestamp").collect()

    assert world.numbers(frame) == list(range(3_000))
    assert frame.columns == list(all_columns().names)
    assert len(rows) == 1_000
    one = rows[0].asDict(recursive=True)
    number = int(one["body"].split(b":")[0])
    assert one["properties"]["n"] == str(number)
    assert (one["topic"], one["keys"], one["tags"]) == (topic, [f"k{number}"], "t1")
    assert one["msgId"] == one["properties"]["UNIQ_KEY"]
    assert one["storeHost"].startswith("127.0.0.1:")
    assert one["brokerName"] == world.broker_name
    spans = frame.groupBy("brokerName", "queueId").agg(
        {"queueOffset": "max", "*": "count"}).collect()
    assert len(spans) == 4
    assert all(row["max(queueOffset)"] + 1 == row["count(1)"] for row in spans)


def test_columns_may_be_chosen_by_a_schema_or_by_name(world):
    topic = world.topic(1)
    world.send(topic, 3)

    by_schema = world.read(topic, schema="queueOffset bigint, properties string")
    assert [json.loads(row["properties"])["n"] for row in by_schema.collect()] == ["0", "1", "2"]
    by_name = world.read(topic, columns="tags, queueOffset")
    assert [tuple(row) for row in by_name.collect()] == [("t0", 0), ("t1", 1), ("t2", 2)]
    assert world.read(topic, propertiesAs="json").schema["properties"].dataType.typeName() == (
        "string")


def test_rows_can_be_taken_over_to_pandas(world):
    """The extra `spark` installs all that this needs."""
    topic = world.topic(1)
    world.send(topic, 3)

    assert list(world.read(topic, columns="queueOffset").toPandas()["queueOffset"]) == [0, 1, 2]
    extra = [one for one in metadata.requires("mqcore") or () if 'extra == "spark"' in one]
    assert [one for one in extra if one.startswith("pandas")]


def test_a_filter_reaches_the_broker(world):
    """Apache's connector fails with the first offset that a filter leaves out."""
    topic = world.topic()
    world.send(topic, 900)

    by_tag = world.read(topic, subExpression="t0 || t2")
    none = world.read(topic, subExpression="nobody")

    assert world.numbers(by_tag) == [number for number in range(900) if number % 3 != 1]
    assert none.count() == 0


def test_a_filter_in_sql_reaches_the_broker(world):
    topic = world.topic()
    world.send(topic, 300)

    found = world.read(topic, subExpression="n between 100 and 149", subExpressionType="sql92")

    assert world.numbers(found) == list(range(100, 150))
    assert world.numbers(found.where("tags = 't1'")) == list(range(100, 150, 3))


def test_queries_of_one_frame_do_not_share_their_filters(world):
    """Spark 4.3 would let them, if a source in Python took any: rows would be missing."""
    topic = world.topic()
    world.send(topic, 400)
    frame = world.read(topic, columns="queueId", pushFilters=True)

    ones, zeros = (frame.where(f"queueId = {number}") for number in (1, 0))
    count = ones.count()

    assert frame.count() == 400
    assert 0 < count < 400
    assert ones.union(zeros).count() == count + zeros.count()


def test_offsets_may_be_given_by_queue_and_by_time(world):
    """Apache's connector knows no times."""
    topic = world.topic(2)
    world.send(topic, 100)
    first_ms = now_ms()
    wait_until(lambda: now_ms() > first_ms + 20, "a later millisecond")
    middle_ms = first_ms + 10
    world.send(topic, 100, begin=100)
    broker = world.broker_name
    begin = json.dumps({topic: {broker: {"0": 5, "1": -1}}})
    until = json.dumps({topic: {broker: {"0": 9}}})
    when = datetime.fromtimestamp(middle_ms / 1000, UTC).isoformat()

    some = world.read(topic, startingOffsets=begin, endingOffsets=until)
    assert sorted(tuple(row) for row in some.select("queueId", "queueOffset").collect()) == [
        (0, 5), (0, 6), (0, 7), (0, 8)]
    after = {"startingOffsetsByTimestampStrategy": "latest"}
    assert world.numbers(world.read(topic, startingTimestamp=when, **after)) == list(
        range(100, 200))
    assert world.numbers(world.read(topic, endingTimestamp=middle_ms)) == list(range(100))
    by_queue = json.dumps({topic: {broker: {"0": middle_ms, "1": middle_ms}}})
    assert world.numbers(world.read(topic, startingOffsetsByTimestamp=by_queue, **after)) == list(
        range(100, 200))
    late = world.read(topic, startingTimestamp="2100-01-01T00:00:00Z", **after)
    assert late.count() == 0


def test_a_read_may_begin_where_a_group_is(world):
    topic = world.topic(1)
    world.send(topic, 50)
    broker = world.broker_name
    world.admin.set_offset("readers", MessageQueue(topic, broker, 0), 30)

    frame = world.read(topic, startingOffsets="group", group="readers")

    assert world.numbers(frame) == list(range(30, 50))


def test_queues_are_split_into_more_tasks(world):
    """Apache's connector has one task for a queue, whatever its length."""
    topic = world.topic(2)
    world.send(topic, 1_000)

    many = world.read(topic, maxRecordsPerPartition=100)
    some = world.read(topic, minPartitions=5)

    assert many.rdd.getNumPartitions() >= 10
    assert some.rdd.getNumPartitions() >= 5
    assert world.numbers(many) == world.numbers(some) == list(range(1_000))


def test_several_topics_are_read_by_name_and_by_pattern(world):
    """Apache's connector reads one topic."""
    first, second = world.topic(1), world.topic(1)
    world.send(first, 10)
    world.send(second, 10, begin=10)

    assert world.numbers(world.read(subscribe=f"{first},{second}")) == list(range(20))
    assert world.numbers(world.read(subscribePattern=f"{first}|{second}")) == list(range(20))
    broker = world.broker_name
    assert world.numbers(world.read(assign=json.dumps({second: {broker: [0]}}))) == list(
        range(10, 20))


@pytest.mark.parametrize(("options", "said"), [
    ({"topik": "x"}, "option topik is unknown: did you mean topic?"),
    ({"topic": "nowhere"}, "topic nowhere has no route"),
    ({}, "expected exactly one of topic, subscribe, subscribePattern, assign"),
    ({"topic": "HERE", "startingOffsets": '{"HERE":{"elsewhere":{"0":1}}}'},
     "queue 0 of topic HERE on elsewhere is none that is read"),
    ({"topic": "HERE", "startingOffsets": "soon"}, "startingOffsets: expected a word or JSON"),
    ({"topic": "HERE", "startingTimestamp": "2100-01-01T00:00:00Z"},
     "has nothing that was stored at"),
    ({"topic": "HERE", "startingTimestamp": "2100-01-01"}, "expected a zone"),
    ({"topic": "HERE", "maxOffsetsPerTrigger": "5"}, "only for a stream read"),
    ({"topic": "HERE", "subExpressionType": "sql92", "subExpression": "a >"},
     "subExpression 'a >'"),
    ({"topic": "HERE", "columns": "bodi"}, "did you mean body?"),
])
def test_a_mistake_is_told_in_one_line(world, options, said):
    topic = world.topic(1)
    world.send(topic, 1)
    given = {name: value.replace("HERE", topic) for name, value in options.items()}

    with pytest.raises(Exception) as failed:
        world.read(**given).count()

    text = str(failed.value)
    assert said.replace("HERE", topic) in text
    assert "Traceback" not in text.replace("Traceback (most recent call last):\nmqcore", "")


def test_what_retention_deleted_is_an_error_or_a_row_that_says_so(world):
    """Apache's connector can do neither: an assertion fails before it looks."""
    topic = world.topic(1)
    world.send(topic, 20)
    broker = world.broker_name
    begin = json.dumps({topic: {broker: {"0": 100}}})

    with pytest.raises(Exception, match="the queue ends at 20"):
        world.read(topic, startingOffsets=begin).count()
    assert world.read(topic, startingOffsets=begin, failOnDataLoss="false").count() == 0
