"""Histograms in shared memory: the bucket of a time, sums and quantiles."""
from __future__ import annotations

from itertools import pairwise

import pytest

from mqcore.figures import LATENCIES
from mqcore.participants import SERVING, WRITER
from mqcore.shm.latencies import EDGES_US, Histogram, Latencies
from mqcore.shm.latency import LatencySlots
from mqcore.shm.segment import Segment
from tests.store.harness import new_segment
from tests.support.dice import dice as new_dice
from tests.support.dice import times

SEND, PULL = 0, 1


@pytest.fixture
def segment() -> Segment:
    return new_segment()


@pytest.mark.parametrize(("us", "bucket", "begins_us"), [
    (-1, 0, 0), (0, 0, 0), (3, 3, 3), (4, 4, 4), (7, 7, 7), (8, 8, 8), (9, 8, 8), (10, 9, 10),
    (63, 19, 56), (64, 20, 64), (1000, 35, 896), (1024, 36, 1024), (33_554_431, 95, 29_360_128),
    (33_554_432, 96, 33_554_432), (67_108_863, 99, 58_720_256), (1 << 40, 99, 58_720_256),
])
def test_a_time_is_in_the_bucket_that_begins_at_or_below_it(
    segment: Segment, us: int, bucket: int, begins_us: int
) -> None:
    LatencySlots(segment).add(WRITER.slot, 0, us, 3)
    total, counts = LatencySlots(segment).read(WRITER.slot, 0)
    assert counts[bucket] == sum(counts) == 3
    assert total == 3 * max(us, 0)
    assert EDGES_US[bucket] == begins_us


def test_buckets_are_a_quarter_wide_at_most() -> None:
    assert len(EDGES_US) == 100
    for begin, end in pairwise(EDGES_US[4:]):
        assert begin < end <= begin * 1.25


def test_every_time_is_where_its_bucket_says(segment: Segment) -> None:
    dice = new_dice()
    for _ in range(times(2000)):
        us = int(2 ** dice.uniform(0, 26)) - 1
        before = LatencySlots(segment).read(WRITER.slot, 0)[1]
        LatencySlots(segment).add(WRITER.slot, 0, us)
        after = LatencySlots(segment).read(WRITER.slot, 0)[1]
        (bucket,) = [at for at in range(100) if after[at] != before[at]]
        assert EDGES_US[bucket] <= us
        assert bucket == 99 or us < EDGES_US[bucket + 1]


def test_processes_and_kinds_have_places_of_their_own(segment: Segment) -> None:
    for index in range(segment.serving_count):
        LatencySlots(segment).add(SERVING.slot + index, SEND, 10, 1 + index)
    LatencySlots(segment).add(SERVING.slot, PULL, 20, 100)
    found = Latencies(segment)
    assert [one.count for one in found.each("send").values()] == [
        1 + index for index in range(segment.serving_count)]
    assert found.total("pull").count == 100
    assert found.total("flush").count == 0
    assert found.total("pull").sum_us == 2000
    with pytest.raises(ValueError, match="latency 3 of slot 17: expected 0 to 2"):
        LatencySlots(segment).read(WRITER.slot, 3)


def test_quantiles_are_ends_of_buckets() -> None:
    counts = [0] * 100
    counts[20], counts[36] = 99, 1               # 64 to 79 us, 1,024 to 1,279 us
    found = Histogram(0, counts)
    assert [found.quantile_us(share) for share in (0.5, 0.99, 0.991, 1.0)] == [80, 80, 1280, 1280]
    assert Histogram(0, [0] * 100).quantile_us(0.5) == 0
    assert (found.below(64), found.below(128), found.below(2048)) == (0, 99, 100)


def test_what_came_since_a_look_is_a_difference(segment: Segment) -> None:
    latencies = Latencies(segment)
    LatencySlots(segment).add(WRITER.slot, 0, 5, 2)
    before = latencies.total("flush")
    LatencySlots(segment).add(WRITER.slot, 0, 7)
    since = latencies.total("flush").since(before)
    assert (since.count, since.sum_us, since.counts[7]) == (1, 7, 1)


def test_names_are_given_once() -> None:
    assert len({latency.name for latency in LATENCIES}) == len(LATENCIES)
