"""A group's offset on the new cluster is never beyond what it has not consumed."""
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from mqcore.client.message import MessageQueue
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.jobs.migrate.clusters import paired
from mqcore.spark.jobs.migrate.table import MigrationTable, QueueMap, Segment

QUEUE = MessageQueue("t", "old", 3)


def made(stored: list[int | None]) -> QueueMap:
    """The map of a new queue that holds these old offsets; None: a message that is no copy."""
    found = QueueMap(read_to=len(stored))
    for target, offset in enumerate(stored):
        if offset is None:
            found.foreign = target if found.foreign is None else found.foreign
        else:
            found.add([Segment(offset, offset + 1, target)])
    return found


@given(st.lists(st.one_of(st.none(), st.integers(0, 12)), max_size=20), st.integers(0, 14))
def test_no_message_that_was_not_consumed_is_skipped(stored: list[int | None], offset: int) -> None:
    place = made(stored).translate(offset)

    assert 0 <= place <= len(stored)
    assert all(one is not None and one < offset for one in stored[:place])


@given(st.integers(0, 50), st.lists(st.integers(1, 30), max_size=5), st.integers(0, 200))
def test_nothing_is_consumed_twice_where_all_are_copies_in_order(
        first: int, gaps: list[int], offset: int) -> None:
    stored, at = [], first
    for gap in [0, *gaps]:
        at += gap
        stored += range(at, at + 10)
        at += 10
    found = made(list(stored))

    assert found.duplicates == 0
    assert found.translate(offset) == sum(one < offset for one in stored)


def test_what_is_there_twice_is_counted() -> None:
    found = made([*range(10), *range(6, 12)])

    assert (found.duplicates, found.end, found.translate(8)) == (4, 12, 8)


def test_a_queue_without_messages_begins_at_its_begin() -> None:
    assert QueueMap().translate(100) == 0


def test_the_table_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    table = MigrationTable({"old": "new"}, {QUEUE: made([5, 6, None, 8])})
    table.queues[QUEUE].expired = 2
    table.save(tmp_path / "state")

    assert MigrationTable.load(tmp_path / "state") == table
    assert MigrationTable.load(tmp_path / "none") == MigrationTable()
    assert table.target(QUEUE) == MessageQueue("t", "new", 3)
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["offsets.json"]
    (tmp_path / "state" / "offsets.json").write_text('{"v": 2}')
    with pytest.raises(SparkSourceError, match="no table of offsets of version 1"):
        MigrationTable.load(tmp_path / "state")


def test_brokers_are_paired_by_name_or_as_one_says() -> None:
    assert paired(["a"], ["x"], {}) == {"a": "x"}
    assert paired(["a", "b"], ["a", "b", "c"], {}) == {"a": "a", "b": "b"}
    assert paired(["a", "b"], ["x", "b"], {"a": "x"}) == {"a": "x", "b": "b"}
    two_to_one = ["a", "b"], ["x"], {"a": "x", "b": "x"}
    for old, new, given_ in ((["a", "b"], ["x", "y"], {}), two_to_one, (["a"], ["x"], {"a": "y"})):
        with pytest.raises(OptionError, match="--broker"):
            paired(old, new, given_)
