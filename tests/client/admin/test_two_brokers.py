"""A cluster of two: the place's broker, and one of ours beside it."""
from __future__ import annotations

import pytest

from mqcore.client import MessageQueue
from tests.client.admin.conftest import BROKER_NAME, CLUSTER_NAME, unique
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until

SECOND = "admin-b"
BOTH = (BROKER_NAME, SECOND)


@pytest.fixture(scope="module")
def second(place, admin, tmp_path_factory):
    """The address of the second broker."""
    settings = {"broker.name": SECOND, "broker.cluster": CLUSTER_NAME}
    with mqcore_up(tmp_path_factory.mktemp("second"), settings,
                   namesrv_addr=place.namesrv_addr) as broker:
        wait_until(lambda: len(admin.clusters()[0].brokers) == 2, "two brokers registered")
        yield broker.broker_addr
    wait_until(lambda: len(admin.clusters()[0].brokers) == 1, "one broker registered")


@pytest.fixture
def wide(admin, second):
    """A topic with one queue at each broker, with two messages in each; their queues."""
    name = unique("Wide")
    assert admin.create_topic(name, queues=1) == BOTH
    queues = [MessageQueue(name, broker, 0) for broker in BOTH]
    for number in range(4):
        admin.send(name, f"body {number}", keys=["key"], queue=queues[number % 2])
    wait_until(lambda: admin.topic_stats(name).message_count == 4, "four messages")
    return name


def test_what_both_have_is_one_result(admin, wide):
    stats = admin.topic_stats(wide)
    assert [(at.queue.broker_name, at.max_offset) for at in stats.queues] == [
        (BROKER_NAME, 2), (SECOND, 2)]
    wait_until(lambda: len(admin.query(wide, "key")) == 4, "four messages in the indexes")
    bodies = [f"body {number}".encode() for number in range(4)]
    assert [message.body for message in admin.query(wide, "key")] == bodies
    assert [message.body for message in admin.read(wide)] == bodies
    assert [message.body for message in admin.read(wide, broker_name=SECOND)] == bodies[1::2]
    assert {status.broker_name for status in admin.cluster_status()} == set(BOTH)
    message = admin.read(wide, broker_name=SECOND)[0]
    assert admin.message(message.offset_message_id).queue == MessageQueue(wide, SECOND, 0)
    same = admin.message(message.message_id, topic=wide)
    assert same.offset_message_id == message.offset_message_id


def test_a_change_is_made_at_both(admin, wide):
    assert [config.write_queue_count for config in admin.update_topic(wide, write_queues=3)] == [
        3, 3]
    (only,) = admin.update_topic(wide, read_queues=2, broker=SECOND)
    assert only.read_queue_count == 2
    assert {queue.broker_name: queue.read_queue_count
            for queue in admin.topic_route(wide).queues} == {BROKER_NAME: 1, SECOND: 2}

    group = unique("Group")
    assert admin.create_group(group, retry_max_times=3) == BOTH
    admin.update_group(group, retry_max_times=4, broker=SECOND)
    assert {found.broker_name: found.config.retry_max_times
            for found in admin.group_config(group)} == {BROKER_NAME: 3, SECOND: 4}
    assert admin.delete_group(group) == BOTH
    assert admin.delete_topic(wide) == BOTH
    assert wide not in admin.topics()


def test_offsets_are_reset_and_counted_at_both(admin, wide):
    group = unique("Group")
    reset = admin.reset_offsets(group, wide, to="latest")
    assert [(each.queue.broker_name, each.after) for each in reset.queues] == [
        (BROKER_NAME, 2), (SECOND, 2)]
    assert admin.lag(group).total == 0

    admin.reset_offsets(group, wide, to=1)
    lag = admin.lag(group)
    assert [each.lag for each in lag.queues] == [1, 1]
    other = unique("Other")
    assert [each.after for each in admin.clone_offsets(group, other, wide)] == [1, 1]
    assert admin.lag(other).queues == lag.queues


def test_sends_go_to_the_queues_of_both_in_turn(admin, wide):
    times = admin.send_times(wide, count=4)
    assert sorted(each.queue.broker_name for each in times) == sorted(BOTH * 2)
    assert {each.queue.broker_name
            for each in admin.send_times(wide, count=2, broker_name=SECOND)} == {SECOND}
