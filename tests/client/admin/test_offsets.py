"""Offsets: looked up by time, committed, copied, and reset with and without members."""
from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from mqcore.client import BrokerError, ClientError, NoRouteError
from tests.client.admin.conftest import BROKER_NAME, queue, store, unique
from tests.support.waiting import wait_until


@pytest.fixture
def filled(admin, topic):
    """A topic with five messages in its first queue, two in its second."""
    store(admin, topic, *"abcde")
    store(admin, topic, "x", "y", queue_id=1)
    return topic


def after(reset):
    return [each.after for each in reset.queues]


def test_offsets_of_a_queue(admin, filled):
    first = queue(filled)
    assert (admin.min_offset(first), admin.max_offset(first)) == (0, 5)
    assert admin.offset_at(first, "1h ago") == 0
    assert admin.offset_at(first, datetime.now(UTC) + timedelta(hours=1)) == 4
    age = datetime.now(UTC) - admin.earliest_store_time(first)
    assert -1 < age.total_seconds() < 60


def test_a_committed_offset_is_read_back(admin, topic):
    group = unique("Group")
    for offset in (7, 3):
        admin.set_offset(group, queue(topic, 1), offset)
        assert admin.committed(group, queue(topic, 1)) == offset
    (entry,) = (entry for entry in admin.all_offsets(BROKER_NAME) if entry.group == group)
    assert (entry.queue, entry.offset) == (queue(topic, 1), 3)


def test_delay_levels_have_offsets(admin):
    assert all(level >= 1 and offset >= 0
               for level, offset in admin.delay_offsets(BROKER_NAME).items())


def test_a_dry_run_changes_nothing_and_says_what_would_be(admin, filled):
    group = unique("Group")
    admin.set_offset(group, queue(filled, 0), 5)

    reset = admin.reset_offsets(group, filled, to="earliest", dry_run=True)
    assert [(each.queue, each.before, each.after) for each in reset.queues] == [
        (queue(filled, 0), 5, 0), (queue(filled, 1), reset.queues[1].before, 0)]
    assert (reset.online, reset.dry_run, reset.unreachable) == (False, True, ())
    assert admin.committed(group, queue(filled, 0)) == 5


@pytest.mark.parametrize(("to", "expected"), [
    ("earliest", [0, 0]), ("latest", [5, 2]), ("1h ago", [0, 0]), (3, [3, 2]), (0, [0, 0]),
    (100, [5, 2]), (datetime(2020, 1, 1, tzinfo=UTC), [0, 0]), ("2020-01-01T00:00:00Z", [0, 0]),
])
def test_a_group_that_is_offline_is_reset_by_its_broker(admin, filled, to, expected):
    group = unique("Group")
    for queue_id in (0, 1):
        admin.set_offset(group, queue(filled, queue_id), 1)

    planned = admin.reset_offsets(group, filled, to=to, dry_run=True)
    done = admin.reset_offsets(group, filled, to=to)
    assert after(planned) == after(done) == expected
    assert (done.online, done.dry_run) == (False, False)
    assert [admin.committed(group, queue(filled, number)) for number in (0, 1)] == expected


def test_without_force_offsets_only_go_back(admin, filled):
    group = unique("Group")
    for queue_id in (0, 1):
        admin.set_offset(group, queue(filled, queue_id), 1)

    assert after(admin.reset_offsets(group, filled, to="latest", force=False)) == [1, 1]
    assert after(admin.reset_offsets(group, filled, to="earliest", force=False)) == [0, 0]


def test_a_group_without_offsets_gets_some(admin, filled):
    group = unique("Group")

    assert after(admin.reset_offsets(group, filled, to="latest")) == [5, 2]
    assert admin.committed(group, queue(filled)) == 5


@pytest.mark.slow
def test_members_are_told_of_a_reset(admin, mqadmin, filled):
    group = unique("Group")
    mqadmin.ask("consumer", group, filled)
    try:
        def consumed():
            mqadmin.ask("commit", group)
            return [admin.committed(group, queue(filled, number)) for number in (0, 1)] == [5, 2]

        wait_until(consumed, "all messages consumed")
        planned = admin.reset_offsets(group, filled, to="earliest", dry_run=True)
        assert planned.online
        assert after(planned) == [0, 0]
        with pytest.raises(ClientError, match="is online"):
            admin.reset_offsets(group, filled, to=3)

        done = admin.reset_offsets(group, filled, to="1h ago")
        assert (done.online, after(done)) == (True, [0, 0])
        assert [each.before for each in done.queues] == [5, 2]
        (member,) = admin.client_offsets(group, filled)
        assert {place for place, _ in member.offsets} <= {queue(filled, 0), queue(filled, 1)}
    finally:
        mqadmin.ask("stop", group)


def test_mqadmin_resets_to_the_same_offsets(admin, mqadmin, filled):
    ours, theirs = unique("Ours"), unique("Theirs")
    for group in (ours, theirs):
        admin.create_topic(f"%RETRY%{group}", queues=1)
        for queue_id in (0, 1):
            admin.set_offset(group, queue(filled, queue_id), 1)
    at_ms = time.time_ns() // 1_000_000 - 1_800_000

    admin.reset_offsets(ours, filled, to=datetime.fromtimestamp(at_ms / 1000, UTC))
    mqadmin.run("resetOffsetByTime", "-g", theirs, "-t", filled, "-s", at_ms)
    committed = [[admin.committed(group, queue(filled, number)) for number in (0, 1)]
                 for group in (ours, theirs)]
    assert committed[0] == committed[1] == [0, 0]


def test_offsets_are_copied_where_there_are_some(admin, topic):
    source, target = unique("Source"), unique("Target")
    admin.set_offset(source, queue(topic, 0), 4)
    admin.set_offset(source, queue(topic, 1), 2)
    admin.set_offset(target, queue(topic, 1), 9)

    copied = admin.clone_offsets(source, target, topic)
    assert [(each.queue, each.after) for each in copied] == [
        (queue(topic, 0), 4), (queue(topic, 1), 2)]
    assert copied[1].before == 9
    assert [admin.committed(target, queue(topic, number)) for number in (0, 1)] == [4, 2]


def test_the_smallest_offset_of_all_groups(admin, topic):
    groups = [unique("Low"), unique("High")]
    for group, offset in zip(groups, (2, 6), strict=True):
        admin.set_offset(group, queue(topic, 0), offset)

    assert admin.correction_offsets(topic, groups[1], broker=BROKER_NAME)[0] == 2


def test_a_reset_of_a_topic_that_is_not_there(admin):
    with pytest.raises(NoRouteError, match="no name server knows"):
        admin.reset_offsets(unique("Group"), unique("None"), to="latest")


def test_members_that_are_not_there_have_no_offsets(admin, topic):
    with pytest.raises(BrokerError):
        admin.client_offsets(unique("Nobody"), topic)
