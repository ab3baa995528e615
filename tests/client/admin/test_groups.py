"""Groups: made, changed, deleted, and how far they are; as mqadmin says."""
from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mqcore.client import BrokerError
from mqcore.client.admin import GroupConfig
from tests.client.admin.conftest import BROKER_NAME, CLUSTER_NAME, queue, store, unique
from tests.interop.mqadmin import rows
from tests.support.waiting import wait_until


def test_a_group_is_made_changed_and_deleted(admin):
    group = unique("Group")
    admin.create_group(group, consume_enable=False, retry_queue_count=2, retry_max_times=5,
                       consume_broadcast_enable=False)

    (found,) = admin.group_config(group)
    assert (found.broker_name, found.config) == (BROKER_NAME, GroupConfig(
        group, consume_enable=False, retry_queue_count=2, retry_max_times=5,
        consume_broadcast_enable=False))
    assert group in admin.groups()

    (changed,) = admin.update_group(group, consume_enable=True, retry_max_times=7)
    assert changed.config == GroupConfig(
        group, retry_queue_count=2, retry_max_times=7, consume_broadcast_enable=False)
    assert changed.config in admin.group_configs(BROKER_NAME)

    assert admin.delete_group(group, remove_offsets=True) == (BROKER_NAME,)
    assert list(admin.group_config(group)) == []
    assert group not in admin.groups()


def test_a_group_that_nobody_has_is_not_changed(admin):
    with pytest.raises(BrokerError, match="no broker has group") as raised:
        admin.update_group(unique("None"), retry_max_times=1)
    assert raised.value.code == 26


def test_the_groups_of_tools_are_hidden_unless_asked_for(admin):
    assert "TOOLS_CONSUMER" not in admin.groups()
    assert "TOOLS_CONSUMER" in admin.groups(user_only=False)


def test_a_group_looks_the_same_to_mqadmin(admin, mqadmin):
    ours, theirs = unique("Ours"), unique("Theirs")
    admin.create_group(ours, consume_enable=False, retry_queue_count=2, retry_max_times=5)
    mqadmin.run("updateSubGroup", "-c", CLUSTER_NAME, "-g", theirs, "-s", "false", "-q", 2,
                "-r", 5, "-m", "true", "-d", "true", "-i", 0, "-w", 1, "-a", "true")

    shown = [mqadmin.run("getConsumerConfig", "-g", name).replace(name, "GROUP")
             for name in (ours, theirs)]
    assert shown[0] == shown[1]
    assert "GROUP" in shown[0]


def test_offsets_stay_unless_they_are_removed(admin, topic):
    group = unique("Group")
    admin.create_group(group)
    admin.set_offset(group, queue(topic), 3)

    admin.delete_group(group)
    assert admin.committed(group, queue(topic)) == 3
    admin.create_group(group)
    admin.delete_group(group, remove_offsets=True)
    assert group not in {entry.group for entry in admin.all_offsets(BROKER_NAME)}


def test_lag_is_what_is_not_consumed_also_of_a_group_that_was_never_online(admin, topic):
    group = unique("Group")
    assert admin.lag(group).queues == ()
    store(admin, topic, *"abcde")
    store(admin, topic, "x", queue_id=1)
    admin.set_offset(group, queue(topic, 0), 2)
    admin.set_offset(group, queue(topic, 1), 1)

    lag = admin.lag(group)
    assert [(each.queue, each.broker_offset, each.consumer_offset, each.lag)
            for each in lag.queues] == [(queue(topic, 0), 5, 2, 3), (queue(topic, 1), 1, 1, 0)]
    assert (lag.total, lag.unreachable) == (3, ())
    age = datetime.now(UTC) - lag.queues[0].last_consumed
    assert -1 < age.total_seconds() < 60
    assert admin.lag(group, topic) == lag
    assert group in {each.group for each in admin.broker_lags(BROKER_NAME) if each.total == 3} or (
        group not in admin.groups())


def test_lag_of_a_member_is_mqadmins(admin, mqadmin, member, topic):
    group = unique("Group")
    store(admin, topic, "a", "b", "c")
    with member(group, topic):
        wait_until(lambda: admin.committed(group, queue(topic)) == 3, "all consumed")
        table = rows(mqadmin.run("consumerProgress", "-g", group), "#Topic")
        theirs = {(row[0], int(row[2])): int(row[3]) for row in table}
        ours = {(each.queue.topic, each.queue.queue_id): each.broker_offset
                for each in admin.lag(group).queues}
        assert theirs.items() <= ours.items() or ours.items() <= theirs.items()
        assert ours[topic, 0] == 3
        assert group in {lag.group for lag in admin.lags()}


def test_times_say_how_far_behind_a_group_is(admin, topic):
    group = unique("Group")
    store(admin, topic, "a", "b", "c")
    admin.set_offset(group, queue(topic, 0), 1)

    spans = {span.queue: span for span in admin.consume_time_spans(group, topic)}
    span = spans[queue(topic, 0)]
    assert span.first == span.consumed <= span.last
    assert 0 <= span.behind < 60
    empty = spans[queue(topic, 1)]
    assert empty.behind == 0
