"""Offsets of streams and batches, as far as no broker is needed."""
from __future__ import annotations

import contextlib
import json

import pytest

from mqcore.client.errors import NoRouteError
from mqcore.client.message import MessageQueue
from mqcore.spark.columns import all_columns, picked_by_names
from mqcore.spark.errors import DataLoss, OptionError, SparkSourceError
from mqcore.spark.options import BATCH, ROCKETMQ, STREAM, WRITE, client_config, read_options
from tests.spark.fake_broker import FakeBroker, serving

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    ReadMinRows,
)

from mqcore.spark.topics import ends as ends_of
from mqcore.spark.topics.positions import (
    as_checkpoint,
    begins,
    from_checkpoint,
    parse_offsets,
)
from mqcore.spark.topics.ranges import OffsetRange
from mqcore.spark.topics.state import first_offsets, keep_first_offsets
from mqcore.spark.topics.stream import StreamReader, allotted
from mqcore.spark.topics.topic_read import RangePartition, TopicRead

A, B, C = (MessageQueue("t", "b", number) for number in range(3))
OTHER = MessageQueue("other", "b", 0)
SERVER = "127.0.0.1:1"


def reading(on=STREAM, columns=None, **options):
    given = {"nameserver": SERVER, "topic": "t", **options}
    return TopicRead(read_options(given, ROCKETMQ, on, "rocketmq"),
                   all_columns() if columns is None else picked_by_names(columns))


class Queues:
    """The ends of queues, as a test sets them."""

    def __init__(self, **now: int) -> None:
        self.now = dict(zip((A, B, C), now.values(), strict=False))
        self.first: dict[MessageQueue, int] = {}

    def latest(self):
        return dict(self.now)

    def begins(self, queues):
        return {queue: self.first.get(queue, 0) for queue in queues}


def stream(queues, **options):
    made = StreamReader(reading(**options))
    made._ends = queues
    return made


def latest(reader, begin, limit=None):
    return from_checkpoint(reader.latestOffset(
        as_checkpoint(begin), limit or reader.getDefaultReadLimit()))


def test_a_checkpoint_is_the_same_text_whatever_the_order():
    one = as_checkpoint({B: 2, A: 1, MessageQueue("a", "b", 10): 3, MessageQueue("a", "b", 9): 4})
    two = as_checkpoint({MessageQueue("a", "b", 9): 4, A: 1, MessageQueue("a", "b", 10): 3, B: 2})

    assert json.dumps(one) == json.dumps(two)
    assert json.dumps(one) == (
        '{"offsets": {"a": {"b": {"10": 3, "9": 4}}, "t": {"b": {"0": 1, "1": 2}}}, "v": 1}')
    assert parse_offsets("startingOffsets", json.dumps(one)) == from_checkpoint(one)


def test_a_checkpoint_of_a_later_version_is_refused():
    with pytest.raises(SparkSourceError, match="version 2"):
        from_checkpoint({"offsets": {}, "v": 2})


@pytest.mark.parametrize("text", ["soon", "[]", '{"t":1}', '{"t":{"b":{"x":1}}}',
                                  '{"t":{"b":{"0":-3}}}', '{"t":{"b":{"0":true}}}'])
def test_offsets_that_are_none_are_refused(text):
    with pytest.raises(OptionError, match="startingOffsets"):
        parse_offsets("startingOffsets", text)


class Group:
    """A cluster: each queue has offsets 5 to 9; what a group has committed, a test says."""

    def __init__(self, committed):
        self._committed = committed

    def committed(self, _group, _queues):
        return self._committed

    def begins(self, queues):
        return dict.fromkeys(queues, 5)

    def ends(self, queues):
        return dict.fromkeys(queues, 10)


@pytest.mark.parametrize(("committed", "default", "found"), [
    ({A: 7, B: 9}, "latest", {A: 7, B: 9, C: 5, OTHER: 10}),
    ({A: 7, B: 0}, "earliest", {A: 7, B: 0, C: 5, OTHER: 5}),
    ({}, "latest", {A: 10, B: 10, C: 10, OTHER: 10}),
    ({OTHER: 6}, "latest", {A: 10, B: 10, C: 10, OTHER: 6}),
])
def test_a_group_misses_nothing_of_a_queue_that_was_added(committed, default, found):
    options = reading(startingoffsets="group", group="g").options

    assert begins(options, Group(committed), [A, B, C, OTHER], default) == found


def test_a_batch_is_shared_out_by_backlog():
    assert allotted({A: 10, B: 30}, 100) == {A: 10, B: 30}
    assert allotted({A: 100, B: 300, C: 0}, 40) == {A: 10, B: 30, C: 0}
    assert allotted({A: 1, B: 1_000_000}, 10) == {A: 1, B: 9}
    assert allotted({A: 47, B: 53}, 60) == {A: 28, B: 32}
    assert sum(allotted({A: 3, B: 5, C: 7}, 2).values()) == 2


def test_limits_of_a_batch_are_kept_and_once_reads_all():
    reader = stream(Queues(a=100, b=300), maxoffsetspertrigger="40")

    assert latest(reader, {A: 0, B: 0}) == {A: 10, B: 30}
    assert latest(reader, {A: 0, B: 0}, ReadAllAvailable()) == {A: 100, B: 300}
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxRows)


def test_a_batch_waits_for_enough_and_not_for_ever():
    queues = Queues(a=9)
    reader = stream(queues, minoffsetspertrigger="10", maxtriggerdelay="1h")
    assert isinstance(reader.getDefaultReadLimit(), ReadMinRows)
    assert latest(reader, {A: 0}) == {A: 0}
    queues.now[A] = 10
    assert latest(reader, {A: 0}) == {A: 10}
    queues.now[A] = 11
    assert latest(reader, {A: 10}) == {A: 10}
    reader._batch_s -= 3_601
    assert latest(reader, {A: 10}) == {A: 11}


def test_a_run_that_ends_waits_for_nothing_and_reads_nothing_later():
    queues = Queues(a=9)
    reader = stream(queues, minoffsetspertrigger="10", maxtriggerdelay="1h")
    reader.prepareForTriggerAvailableNow()
    queues.now[A] = 50

    assert latest(reader, {A: 0}) == {A: 9}


def test_a_new_queue_gets_its_begin_first_and_its_messages_next():
    queues = Queues(a=10, b=20)
    queues.first[B] = 5
    reader = stream(queues)

    first = latest(reader, {A: 10})
    assert first == {A: 10, B: 5}
    assert latest(reader, first) == {A: 10, B: 20}


def test_a_queue_that_vanished_keeps_its_place():
    assert latest(stream(Queues(a=10)), {A: 3, B: 7}) == {A: 10, B: 7}


def test_a_queue_that_goes_back_is_a_loss():
    with pytest.raises(DataLoss, match="offsets 4 to 9 of queue 0 of topic t"):
        latest(stream(Queues(a=4)), {A: 10})


def test_a_broker_that_is_away_is_borne_with_for_a_time(monkeypatch):
    def away(_):
        raise NoRouteError("no route")

    reader = stream(Queues())
    ends = ends_of.Ends(reading(timeout="10s", pollinterval="1ms"))
    ends._known = {A: 5}
    monkeypatch.setattr(ends_of, "catalog_of", away)
    assert ends.latest() == {A: 5}
    assert ends._failing_since is not None
    ends._failing_since -= 11
    ends._asked_s = None
    with pytest.raises(SparkSourceError, match="reading t: no route"):
        ends.latest()
    del reader


def test_ends_are_asked_once_for_many_polls(monkeypatch):
    """Spark polls a hundred times a second; Apache's connector asks for each queue each time."""
    class Asked:
        count = 0

        def queues(self, _topic):
            return [A, B]

        def known_ends(self, queues):
            Asked.count += 1
            return dict.fromkeys(queues, 7), {}

    monkeypatch.setattr(ends_of, "catalog_of", lambda _: contextlib.nullcontext(Asked()))
    ends = ends_of.Ends(reading(pollinterval="1h"))

    assert [ends.latest() for _ in range(50)] == [{A: 7, B: 7}] * 50
    assert Asked.count == 1
    ends._asked_s -= 3_601
    ends.latest()
    assert Asked.count == 2


def test_first_offsets_are_written_once(tmp_path):
    folder = str(tmp_path / "state")

    assert first_offsets(folder) is None
    assert keep_first_offsets(folder, {A: 1}) == {A: 1}
    assert keep_first_offsets(folder, {A: 2}) == {A: 1}
    assert first_offsets(f"file://{folder}") == {A: 1}
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["initial-offsets.json"]
    with pytest.raises(OptionError, match="a folder that the driver can write"):
        keep_first_offsets("s3://bucket/x", {A: 1})


@pytest.mark.parametrize(("options", "on", "said"), [
    ({"startingOfsets": "x"}, BATCH, "did you mean startingOffsets?"),
    ({"minPartitions": "0"}, BATCH, "expected a whole number, 1 to"),
    ({"failOnDataLoss": "maybe"}, BATCH, "expected true or false"),
    ({"timeout": "soon"}, BATCH, "expected a time"),
    ({"bytesPerBatch": "0"}, BATCH, "expected bytes"),
    ({"startingTimestamp": "2026-01-31T12:00:00"}, BATCH,
     "startingTimestamp '2026-01-31T12:00:00': expected a zone, as in 2026-01-31T12:00:00Z"),
    ({"startingTimestamp": "2026-01-31"}, BATCH, "expected a zone, as in 2026-01-31T00:00:00Z"),
    ({"endingOffsets": "latest"}, STREAM, "has no meaning for a stream read"),
    ({"startingOffsets": "latest"}, WRITE, "has no meaning for a write"),
    ({"topics": "a", "subscribe": "b"}, BATCH, "are the same"),
])
def test_an_option_that_cannot_be_is_told(options, on, said):
    with pytest.raises(OptionError, match=said.replace("?", r"\?")):
        read_options(options, ROCKETMQ, on, "rocketmq")


def test_account_and_servers_are_checked(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(OptionError, match="expected both"):
        client_config(read_options({"rocketmq.accesskey": "a"}, ROCKETMQ, BATCH, "r"))
    with pytest.raises(OptionError, match="NAMESRV_ADDR"):
        client_config(read_options({}, ROCKETMQ, BATCH, "r"))


def test_a_gap_is_an_error_or_a_row(caplog):
    """Apache's connector fails before it looks whether it may go on."""
    broker = FakeBroker(range(100, 140))
    with serving(broker):
        part = RangePartition(OffsetRange(A, 90, 130), "t", broker.address)
        with pytest.raises(DataLoss, match="offsets 90 to 99 of queue 0 of topic t on b cannot be"):
            list(reading(BATCH).read(part))
        rows = [row for one in reading(
            BATCH, "queueOffset,gapEnd,body", failondataloss="false").read(part)
            for row in one.to_pylist()]

    assert rows[0] == {"queueOffset": 90, "gapEnd": 100, "body": None}
    assert [row["queueOffset"] for row in rows[1:]] == list(range(100, 130))
    assert "offsets 90 to 99" in caplog.text
