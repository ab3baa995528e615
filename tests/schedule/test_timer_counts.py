"""Messages that wait for a time of delivery, by topic and hour, in shared memory."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.shm.delays import timer_cleared, timer_figures
from mqcore.shm.tables import TableWriter
from tests.schedule.desk import Desk, now_ms

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path, segment_size=1 << 20)
    tables = TableWriter(desk.run.segment)
    for topic in ("Orders", "Bills", "Aa", "BB"):
        tables.publish_topic(topic, read_queues=1, write_queues=1, perm=6)
    return desk


def shown(desk: Desk, at: int) -> dict[str, Any]:
    return timer_figures(desk.run.segment, at)


def test_messages_are_counted_by_topic_and_hour_until_they_are_delivered(desk: Desk) -> None:
    hour = now_ms() // HOUR_MS * HOUR_MS + HOUR_MS
    for ahead, topic in ((10, "Orders"), (20, "Bills"), (HOUR_MS + 10, "Orders"), (10, "Bills"),
                         (3 * DAY_MS, "Bills")):
        desk.at_time(hour + ahead, b"x", topic=topic, unique="0A")
    desk.recall(hour + HOUR_MS + 10, "0A")                   # it is no message that waits
    desk.turn(hour - 1_000)
    expected = {"pending": 5, "counted": True, "topics": {"Orders": 2, "Bills": 3}, "others": 0,
                "hours": {hour // 1000: 3, (hour + HOUR_MS) // 1000: 1}, "later": 1}
    assert shown(desk, hour).items() >= expected.items()
    desk.scheduler = desk.new_scheduler()                    # and by a process that comes later
    desk.turn(hour - 1_000)
    assert shown(desk, hour).items() >= expected.items()
    desk.settle(hour + 15)
    assert shown(desk, hour)["topics"] == {"Orders": 1, "Bills": 2}
    assert shown(desk, hour)["hours"] == {hour // 1000: 1, (hour + HOUR_MS) // 1000: 1}
    desk.settle(hour + 2 * HOUR_MS)
    assert shown(desk, hour)["topics"] == {"Bills": 1}
    for _ in range(3):                                       # stored again, then delivered
        desk.settle(hour + 4 * DAY_MS)
    assert shown(desk, hour).items() >= {
        "pending": 0, "topics": {}, "hours": {}, "later": 0, "others": 0}.items()


def test_topics_of_one_hash_share_a_row_and_deleted_ones_have_a_name(desk: Desk) -> None:
    at = now_ms()
    for topic in ("Aa", "BB", "Never"):
        desk.at_time(at + HOUR_MS, b"x", topic=topic)
    desk.turn(at)
    assert shown(desk, at)["topics"] == {"Aa or BB": 2, "a deleted topic (047ada6c)": 1}


def test_more_topics_than_there_are_rows_are_counted_together(tmp_path: Path) -> None:
    desk = Desk(tmp_path, segment_size=1 << 20, queues=2_048)
    TableWriter(desk.run.segment).publish_topic("Orders", read_queues=1, write_queues=1, perm=6)
    at = now_ms()
    soon, topics = at + 5_000, 1_300
    for number in range(topics):
        desk.at_time(soon if number % 2 else at + HOUR_MS, b"x", topic=f"T{number:04d}")
        if number % 50 == 0:
            desk.turn(at)
    desk.turn(at)
    first = shown(desk, at)
    rows = len(first["topics"])
    assert first["pending"] == topics
    assert 900 <= rows <= 1_024
    assert first["others"] == topics - rows
    desk.settle(soon)
    assert shown(desk, at)["pending"] == topics // 2
    desk.settle(at + 2 * HOUR_MS)
    assert shown(desk, at).items() >= {"pending": 0, "others": 0, "topics": {}}.items()
    desk.at_time(at + 3 * HOUR_MS, b"x", topic="Orders")     # rows are free again
    desk.turn(at + 2 * HOUR_MS)
    assert shown(desk, at)["topics"] == {"Orders": 1}


def test_a_recall_is_cleared_when_what_was_handed_over_before_has_its_result(desk: Desk) -> None:
    due_ms = (now_ms() // 1000 + 3) * 1000 + 10
    desk.at_time(due_ms, b"goes", unique="0A")
    desk.turn(due_ms - 2_000)
    assert timer_cleared(desk.run.segment) == 1
    desk.recall(due_ms, "0B")
    desk.turn(due_ms)                                        # the recall is read, 0A handed over
    assert timer_cleared(desk.run.segment) == 1
    desk.store()
    desk.turn(due_ms)
    assert timer_cleared(desk.run.segment) == 2
    assert desk.bodies() == [b"goes"]
