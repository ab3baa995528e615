"""Both sources read a range whole from brokers that answer little, late, wrong, or not at all."""
from __future__ import annotations

import itertools
import json

import pytest

pytest.importorskip("pyspark")

from tests.spark.fake_broker import FakeBroker, serving

pytestmark = pytest.mark.usefixtures("source")


def offsets(world, broker, begin, end, **options):
    """The offsets of the rows, in order."""
    with serving(broker):
        before, world.namesrv = world.namesrv, broker.address
        try:
            frame = world.read("t", columns="queueOffset,gapEnd,body",
                               startingOffsets=json.dumps({"t": {"b": {"0": begin}}}),
                               endingOffsets=json.dumps({"t": {"b": {"0": end}}}),
                               pullsInFlight=4, **options)
            return [(row["queueOffset"], row["gapEnd"]) for row in frame.collect()]
        finally:
            world.namesrv = before


def plain(numbers):
    return [(number, None) for number in numbers]


@pytest.mark.parametrize(("faults", "begin", "end"), [
    ({"offsets": range(300), "count_max": 7}, 3, 297),
    ({"offsets": range(3_000), "count_max": 1_000}, 0, 3_000),
    ({"offsets": range(200), "breaks_after": 11}, 0, 200),
    ({"offsets": range(50), "busy": 3}, 0, 50),
], ids=["few at a time", "many at a time", "connections that break", "busy"])
def test_every_offset_is_read_once_and_in_order(world, faults, begin, end):
    assert offsets(world, FakeBroker(**faults), begin, end) == plain(range(begin, end))


def test_requests_are_on_their_way_together_and_few_are_wasted(world):
    broker = FakeBroker(range(2_000), count_max=8)

    assert offsets(world, broker, 0, 2_000) == plain(range(2_000))
    assert broker.answers < 2_000 / 8 * 1.4
    assert broker.waiting_most > 1


def test_a_filter_leaves_no_gap_and_nothing_out(world):
    broker = FakeBroker(range(1_000), tag="t1")

    assert offsets(world, broker, 10, 900, subExpression="t1") == plain(
        number for number in range(10, 900) if number % 3 == 1)


@pytest.mark.parametrize(("faults", "begin", "end", "gaps"), [
    ({"offsets": range(100, 200), "first": 50}, 60, 180, (60, 100)),
    ({"offsets": [*range(50), *range(75, 100)]}, 0, 100, (50, 75)),
    ({"offsets": range(10), "end": 40}, 5, 40, (10, 40)),
], ids=["deleted", "a hole", "the end is lost"])
def test_what_is_not_there_is_an_error_or_a_row_that_says_so(world, faults, begin, end, gaps):
    with pytest.raises(Exception, match=f"offsets {gaps[0]} to .* of queue 0 of topic t on b"):
        offsets(world, FakeBroker(**faults), begin, end)

    rows = offsets(world, FakeBroker(**faults), begin, end, failOnDataLoss="false")
    missing = [(first, stop) for first, stop in rows if stop is not None]
    assert [first for first, stop in rows if stop is None] == [
        number for number in range(begin, end) if not gaps[0] <= number < gaps[1]]
    assert (missing[0][0], missing[-1][1]) == gaps
    assert all(one[1] == following[0] for one, following in itertools.pairwise(missing))


def test_a_broker_that_stays_busy_is_an_error_in_time(world):
    with pytest.raises(Exception, match="code 2: busy"):
        offsets(world, FakeBroker(range(50), busy=10**9), 0, 50, timeout="300ms")
