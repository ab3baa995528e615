"""A range is read whole, whatever a broker makes of the pulls; what is not there is said."""
from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from mqcore.client.config import ClientConfig
from mqcore.client.errors import RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.spark.topics import link
from mqcore.spark.topics.idle import Idle
from mqcore.spark.topics.ranges import Missing, OffsetRange, RangeReader
from mqcore.spark.topics.stream import BUNDLE_OFFSETS, StreamReader
from mqcore.spark.topics.topic_read import GroupedPartition, RangePartition, grouped, split
from mqcore.wire.records import decode_records
from mqcore.wire.tags import parse_subscription
from tests.spark.fake_broker import FakeBroker, serving

QUEUE = MessageQueue("t", "b", 0)


@pytest.fixture(autouse=True)
def _no_kept_links(monkeypatch):
    monkeypatch.setattr(link, "_kept", Idle(link.Link.close))


def read(broker: FakeBroker, begin: int, end: int, *, tags: str = "*", in_flight: int = 4,
         timeout: float = 5.0) -> tuple[list[int], list[tuple[int, int]]]:
    """The offsets that were read, and those that are missing."""
    offsets, missing = [], []
    with serving(broker):
        for piece in RangeReader(
                ClientConfig(namesrv="127.0.0.1:1"), lambda: broker.address,
                OffsetRange(QUEUE, begin, end), "t", parse_subscription("t", tags), group="g",
                in_flight=in_flight, timeout=timeout):
            if isinstance(piece, Missing):
                missing.append((piece.begin, piece.end))
            else:
                offsets += [one.queue_offset for one in decode_records(piece.records)]
    return offsets, missing


@pytest.mark.parametrize("count_max", [1, 7, 8, 32, 1000])
@pytest.mark.parametrize("in_flight", [1, 4, 16])
def test_every_offset_is_read_once_and_in_order(count_max, in_flight):
    broker = FakeBroker(range(1_000), count_max=count_max)

    assert read(broker, 3, 997, in_flight=in_flight) == (list(range(3, 997)), [])
    assert broker.connections == 1


def test_requests_are_on_their_way_together_and_few_are_wasted():
    """Apache's connector waits for 32 messages before it asks for the next."""
    broker = FakeBroker(range(4_000), count_max=8)

    assert read(broker, 0, 4_000, in_flight=16) == (list(range(4_000)), [])
    assert broker.waiting_most > 4
    assert broker.answers < 4_000 / 8 * 1.3


def test_answers_of_any_size_are_soon_asked_for():
    broker = FakeBroker(range(10_000), count_max=1_000)

    assert read(broker, 0, 10_000, in_flight=4) == (list(range(10_000)), [])
    assert broker.answers < 40


def test_a_connection_that_breaks_costs_nothing_but_time():
    broker = FakeBroker(range(600), breaks_after=11)

    assert read(broker, 0, 600) == (list(range(600)), [])
    assert broker.connections > 5


def test_a_busy_broker_is_asked_again():
    assert read(FakeBroker(range(50), busy=3), 0, 50) == (list(range(50)), [])


def test_a_broker_that_stays_away_is_an_error_in_time():
    with pytest.raises(RocketMQError):
        read(FakeBroker(range(50), busy=10**9), 0, 50, timeout=0.3)


def test_what_retention_deleted_is_missing():
    offsets, missing = read(FakeBroker(range(100, 200)), 60, 180)

    assert offsets == list(range(100, 180))
    assert (missing[0][0], missing[-1][1]) == (60, 100)


def test_a_hole_is_missing():
    offsets, missing = read(FakeBroker([*range(50), *range(75, 100)]), 0, 100)

    assert offsets == [*range(50), *range(75, 100)]
    assert sum(end - begin for begin, end in missing) == 25
    assert (missing[0][0], missing[-1][1]) == (50, 75)


def test_a_queue_that_ends_before_the_range_is_missing():
    offsets, missing = read(FakeBroker(range(10)), 5, 100)

    assert offsets[:5] == list(range(5, 10))
    assert (missing[0][0], missing[-1][1]) == (10, 100)


@pytest.mark.parametrize("in_flight", [1, 8])
def test_a_filter_leaves_no_gap_and_nothing_out(in_flight):
    broker = FakeBroker(range(3_000), tag="t1")

    offsets, missing = read(broker, 10, 2_900, tags="t1", in_flight=in_flight)

    assert (offsets, missing) == ([one for one in range(10, 2_900) if one % 3 == 1], [])


def test_a_filter_that_nothing_matches_reads_nothing():
    assert read(FakeBroker(range(500), tag="none"), 0, 500, tags="none") == ([], [])


@pytest.mark.parametrize(("tasks_min", "records_max", "sizes"), [
    (None, None, [100, 900]), (4, None, [100, 225, 225, 225, 225]), (None, 400, [100, 300] * 1),
    (1, None, [100, 900]), (20, 30, None)])
def test_ranges_are_split_evenly(tasks_min, records_max, sizes):
    whole = [OffsetRange(QUEUE, 0, 100), OffsetRange(QUEUE, 100, 100), OffsetRange(QUEUE, 50, 950)]

    found = split(whole, tasks_min, records_max)

    assert sum(one.end - one.begin for one in found) == 1_000
    assert len(found) >= (tasks_min or 1)
    assert max(one.end - one.begin for one in found) <= (records_max or 1_000)
    if sizes is not None:
        assert sorted({one.end - one.begin for one in found}) == sorted(set(sizes))


class Planned(StreamReader):
    """A stream whose next batch has these ranges; only its planning is asked."""

    def __init__(self, sizes: list[int], **options: int) -> None:
        self._reading = type("Reading", (), {"options": {
            "minPartitions": None, "maxRecordsPerPartition": None, **options}})()
        self.parts = [RangePartition(
            OffsetRange(MessageQueue("t", "b", number), 5, 5 + size), "t", "")
                      for number, size in enumerate(sizes)]

    def _parts(self, start, end):
        return self.parts

    def tasks(self) -> list[list[int]]:
        """The sizes of the ranges that each task reads."""
        return [[each.size for each in (one.parts if isinstance(one, GroupedPartition) else [one])]
                for one in self.partitions({}, {})]


@pytest.mark.parametrize(("sizes", "options", "tasks"), [
    ([10] * 8, {}, [[10] * 8]), ([], {}, []), ([5_000], {}, [[5_000]]),
    ([10, 5_000, 10, 20], {}, [[10], [5_000], [10, 20]]),
    ([1_000, 1_000, 48, 1], {}, [[1_000, 1_000, 48], [1]]),
    ([10] * 5, {"maxRecordsPerPartition": 25}, [[10, 10], [10, 10], [10]]),
    ([10] * 3, {"minPartitions": 2}, [[10], [10], [10]]),
])
def test_small_ranges_of_a_batch_share_a_task(sizes, options, tasks):
    assert BUNDLE_OFFSETS == 2_048
    assert Planned(sizes, **options).tasks() == tasks


def test_bundles_have_every_slice_once_and_in_order():
    parts = Planned([3, 1, 4, 1, 5, 9, 2, 6]).parts

    found = list(grouped(parts, lambda size, more: size + more <= 9))

    assert [one for bundle in found for one in bundle.parts] == parts
    assert [sum(one.size for one in bundle.parts) for bundle in found] == [9, 5, 9, 8]
