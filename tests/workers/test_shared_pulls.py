"""What serving processes count of pulls, and what the coordinator makes of it (pull_counts.pxd)."""
from __future__ import annotations

import logging

import pytest

from mqcore.broker.ports import LastPull, PullAdvance
from mqcore.shm.pull_counts import PullCountPen, PullCountReader
from mqcore.shm.segment import Segment
from mqcore.shm.tables import TableWriter
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.workers.coordinator.shared_pulls import SharedPulls
from tests.store.harness import Run, new_segment

CAPACITY = 64                         # of the smallest table
GROUPS = 33                           # two queues each: two pairs more than it holds


@pytest.fixture
def segment(tmp_path_factory: pytest.TempPathFactory) -> Segment:
    """Two serving processes; queues 0 and 1 are those of topic T, groups 0 and 1 are G and H."""
    run = Run(tmp_path_factory.mktemp("store"))
    run.segment = new_segment(serving_count=2, segment_size=run.segment_size)
    probe = AppendProbe(run.segment)
    for queue_id in (0, 1):
        assert probe.send("T", queue_id, [b"body"], opaque=queue_id)
    run.writer("async", 0).run(1000)
    writer = TableWriter(run.segment)
    for group in ("G", "H"):
        writer.publish_group(group)
    return run.segment


def test_the_first_look_finds_everything_at_rest(segment: Segment) -> None:
    PullCountPen(segment, 0).add(0, 0, messages=5)
    pulls = SharedPulls(segment)

    assert list(pulls.advances()) == []
    assert list(pulls.advances()) == []


def test_pulls_are_told_by_queue_and_group(segment: Segment) -> None:
    pulls, pen = SharedPulls(segment), PullCountPen(segment, 0)
    list(pulls.advances())
    pen.add(0, 0, messages=5, size=500, took_ms=2)
    pen.add(0, 0, messages=1, size=100)
    pen.add(1, 1, messages=7, size=700, took_ms=1)

    assert list(pulls.advances()) == [
        PullAdvance("T", 0, "G", 2, 6, 600, 2), PullAdvance("T", 1, "H", 1, 7, 700, 1)]
    pen.add(0, 0, messages=2, size=9)
    assert list(pulls.advances()) == [PullAdvance("T", 0, "G", 1, 2, 9, 0)]


def test_what_several_serving_processes_handed_out_is_added_up(segment: Segment) -> None:
    pulls = SharedPulls(segment)
    list(pulls.advances())
    for serving in (0, 1):
        PullCountPen(segment, serving).add(0, 1, messages=4, size=10, took_ms=3)

    assert list(pulls.advances()) == [PullAdvance("T", 0, "H", 2, 8, 20, 6)]


def test_a_new_serving_process_goes_on_where_the_last_one_was(segment: Segment) -> None:   # Z1
    pulls = SharedPulls(segment)
    PullCountPen(segment, 0).add(0, 0, messages=1_000)
    list(pulls.advances())
    PullCountPen(segment, 0).add(0, 0, messages=3)

    assert [advance.messages for advance in list(pulls.advances())] == [3]
    assert len(PullCountReader(segment).rows(0)) == 9 * 8


def test_a_new_coordinator_does_not_count_what_was_before_it(segment: Segment) -> None:
    pen = PullCountPen(segment, 1)
    SharedPulls(segment).advances()
    pen.add(0, 0, messages=1_000_000)
    successor = SharedPulls(segment)
    successor.advances()
    pen.add(0, 0, messages=2)

    assert [advance.messages for advance in successor.advances()] == [2]


def test_the_newest_pull_of_all_serving_processes_counts(segment: Segment) -> None:
    PullCountPen(segment, 0).add(0, 0, messages=1, behind_bytes=900, behind_ms=9, at_ms=20)
    PullCountPen(segment, 1).add(0, 0, messages=1, behind_bytes=100, behind_ms=1, at_ms=10)
    PullCountPen(segment, 1).add(1, 0, messages=1, behind_bytes=300, behind_ms=3, at_ms=10)
    pulls = SharedPulls(segment)

    assert list(pulls.last()) == [
        LastPull("T", 0, "G", 900, 9, 20), LastPull("T", 1, "G", 300, 3, 10)]
    PullCountPen(segment, 1).add(0, 0, messages=1, behind_bytes=0, behind_ms=0, at_ms=21)
    assert list(pulls.last(0)) == [LastPull("T", 1, "G", 300, 3, 10)]


def test_a_full_table_takes_no_new_pairs_and_says_so_once(
    segment: Segment, caplog: pytest.LogCaptureFixture
) -> None:      # Z3
    writer = TableWriter(segment)
    for number in range(GROUPS):
        writer.publish_group(f"G{number}")
    pulls, pen = SharedPulls(segment), PullCountPen(segment, 0)
    list(pulls.advances())
    room = [pen.add(queue, group, messages=1) for group in range(GROUPS) for queue in (0, 1)]
    assert room == [True] * CAPACITY + [False] * 2
    assert pen.add(0, 0, messages=1)

    reader = PullCountReader(segment)
    assert (reader.missed(0), reader.missed(1)) == (2, 0)
    with caplog.at_level(logging.WARNING):
        assert len(list(pulls.advances())) == CAPACITY
        list(pulls.advances())
    assert caplog.text.count("processes.subscription_count_max") == 1
