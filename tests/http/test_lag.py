"""How far groups are behind, in messages and in time, from the files and the store."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.http.lag import Row, UnreadTimes
from mqcore.http.look import Look
from tests.http.test_metrics import filled, write_offsets

NOW_MS = 1_000_000


class Stored:
    """Times of a queue's messages: by queue, the first offset and the times from there on."""

    def __init__(self, queues: dict[int, tuple[int, list[int]]]) -> None:
        self.queues = queues
        self.reads = 0

    def store_time(self, _topic: str, queue_id: int, offset: int) -> int:
        self.reads += 1
        first, times = self.queues[queue_id]
        return times[offset - first] if 0 <= offset - first < len(times) else -1

    def queue_range(self, _topic: str, queue_id: int) -> tuple[int, int] | None:
        first, times = self.queues[queue_id]
        return first, first + len(times)


def row(group: str, *queues: tuple[int, int]) -> Row:
    """queues: number, which is the id too, and offset."""
    return Row((group, "T"), [(number, number, offset) for number, offset in queues])


def test_the_age_is_that_of_the_oldest_message_of_all_queues() -> None:
    stored = Stored({0: (0, [NOW_MS - 100, NOW_MS - 50]), 1: (0, [NOW_MS - 700])})
    found = UnreadTimes(stored).ages(
        [row("all", (0, 0), (1, 0)), row("one", (0, 1), (1, 1)), row("done", (0, 2), (1, 1))],
        [2, 1], NOW_MS)
    assert found == {("all", "T"): 700, ("one", "T"): 50, ("done", "T"): 0}


def test_where_messages_were_deleted_the_first_that_is_left_counts() -> None:
    stored = Stored({0: (5, [NOW_MS - 30]), 1: (9, [])})
    assert UnreadTimes(stored).ages([row("a", (0, 2)), row("b", (1, 3))], [6, 9], NOW_MS) == {
        ("a", "T"): 30, ("b", "T"): 0}


def test_a_message_is_read_once_until_the_group_has_committed_more() -> None:
    stored = Stored({0: (0, [NOW_MS - 10, NOW_MS - 5])})
    times = UnreadTimes(stored)
    for _ in range(3):
        assert times.ages([row("a", (0, 0))], [2], NOW_MS) == {("a", "T"): 10}
    assert stored.reads == 1
    assert times.ages([row("a", (0, 1))], [2], NOW_MS + 1) == {("a", "T"): 6}
    assert stored.reads == 2


def test_what_no_scrape_has_time_for_is_left_out_and_comes_next() -> None:
    """A slow disk: the time of the first scrape is over after 16 reads, as soon as it looks."""
    stored = Stored({number: (0, [NOW_MS - number]) for number in range(40)})
    times = UnreadTimes(stored, clock=lambda: stored.reads / 1000)
    rows = [row(f"g{number}", (number, 0)) for number in range(40)]
    counts = [len(times.ages(rows, [1] * 40, NOW_MS)) for _ in range(3)]
    assert counts == [16, 32, 40]
    assert stored.reads == 40


def test_lag_is_in_messages_and_milliseconds_of_pairs_with_a_series(tmp_path: Path) -> None:
    watcher = filled(["T"], 2, store=tmp_path, metrics_groups_max=1)
    watcher.unread.times = Stored({0: (0, [0]), 1: (0, [0, 0])})
    write_offsets(watcher, {"T@first": {0: 0, 1: 1, 7: 3}, "T@second": {0: 0},
                            "gone@first": {0: 0}})
    look = Look(watcher)
    assert look.lag == {("first", "T"): 2, ("_other", "_other"): 1}
    assert list(look.lag_ms) == [("first", "T")]
    assert look.lag_ms["first", "T"] == pytest.approx(watcher.segment.store_time_ms(), abs=60_000)
