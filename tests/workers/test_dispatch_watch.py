"""When the writer stops taking messages because the dispatcher does not show them."""
from __future__ import annotations

import os

import pytest

from mqcore.shm.segment import Segment
from mqcore.workers.writer.dispatch_watch import CAUGHT_UP_BYTES, DispatchWatch

STALL_MS = 5000
BEHIND = 64 << 20


@pytest.fixture
def segment() -> Segment:
    return Segment.create(f"/mqcore-test-watch-{os.getpid()}", run_id=9, serving_count=1,
                          segment_size=1 << 30, message_bytes_max=4096, topics=64, groups=64,
                          subscriptions=64, queues=64, kind="memfd")


@pytest.fixture
def watch(segment: Segment) -> DispatchWatch:
    made = DispatchWatch(segment, STALL_MS, BEHIND)
    made.look(0)
    return made


def at(segment: Segment, published: int, dispatched: int) -> None:
    segment.publish_for_test(published)
    segment.set_dispatched(dispatched, 1)


def test_a_dispatcher_that_moves_may_lag(segment: Segment, watch: DispatchWatch) -> None:
    for second in range(1, 60):
        at(segment, second * 1000 + BEHIND, second * 1000)
        watch.look(second * 1000)
    assert not watch.refuses


def test_one_that_stands_still_for_long_stops_writes(
    segment: Segment, watch: DispatchWatch,
) -> None:
    at(segment, 1000, 500)
    for second in range(1, 6):
        watch.look(second * 1000)
        assert not watch.refuses
    watch.look(7000)
    assert watch.refuses
    assert segment.log_state()["unreadable"] == 1
    at(segment, 1000, 1000)
    watch.look(7100)
    assert segment.log_state()["unreadable"] == 0


def test_one_that_falls_too_far_behind_stops_writes_until_it_has_caught_up(
    segment: Segment, watch: DispatchWatch,
) -> None:
    at(segment, 2 * BEHIND, 10)
    watch.look(1000)
    assert watch.refuses
    at(segment, 2 * BEHIND, BEHIND + 10)
    watch.look(1100)
    assert watch.refuses
    at(segment, 2 * BEHIND, 2 * BEHIND - CAUGHT_UP_BYTES)
    watch.look(1200)
    assert not watch.refuses


def test_a_pause_of_the_writer_itself_blames_nobody(
    segment: Segment, watch: DispatchWatch,
) -> None:
    at(segment, 1000, 500)
    watch.look(1000)
    watch.look(100_000)
    assert not watch.refuses


def test_nothing_behind_is_no_standstill(segment: Segment, watch: DispatchWatch) -> None:
    at(segment, 1000, 1000)
    for second in range(1, 20):
        watch.look(second * 1000)
    assert not watch.refuses


def test_a_writer_that_comes_back_goes_on_with_what_its_predecessor_said(
    segment: Segment, watch: DispatchWatch,
) -> None:
    at(segment, 2 * BEHIND, 10)
    watch.look(1000)
    assert DispatchWatch(segment, STALL_MS, BEHIND).refuses
