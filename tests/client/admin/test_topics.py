"""Topics: made, changed, looked at, deleted; what mqadmin says of them is the same."""
from __future__ import annotations

import pytest

from mqcore.client import BrokerError, NoRouteError
from tests.client.admin.conftest import BROKER_NAME, CLUSTER_NAME, queue, store, unique
from tests.interop.mqadmin import rows


def test_a_topic_is_known_when_it_is_made_and_gone_when_it_is_deleted(admin):
    name = unique("Made")
    assert admin.create_topic(name, read_queues=3, write_queues=2) == (BROKER_NAME,)

    (found,) = admin.topic_route(name).queues
    assert (found.broker_name, found.read_queue_count, found.write_queue_count, found.perm) == (
        BROKER_NAME, 3, 2, 6)
    assert name in admin.topics()
    assert name in admin.topics(CLUSTER_NAME)
    assert admin.topics("nowhere") == ()
    assert admin.topic_clusters(name) == (CLUSTER_NAME,)

    assert admin.delete_topic(name, cluster=CLUSTER_NAME) == (BROKER_NAME,)
    assert name not in admin.topics()
    with pytest.raises(NoRouteError, match=name) as raised:
        admin.topic_route(name)
    assert (raised.value.code, raised.value.topic) == (17, name)


@pytest.mark.parametrize("where", ["address", "name"])
def test_a_topic_is_made_at_a_broker_by_its_address_or_name(admin, place, where):
    name = unique("At")
    broker = place.broker_addr if where == "address" else BROKER_NAME

    assert admin.create_topic(name, queues=1, broker=broker) == (BROKER_NAME,)
    assert admin.topic_route(name).queues[0].write_queue_count == 1


def test_a_change_keeps_what_is_not_given(admin):
    name = unique("Kept")
    admin.create_topic(name, read_queues=3, write_queues=2, perm=4, unit=True)

    (changed,) = admin.update_topic(name, perm=6)
    assert (changed.read_queue_count, changed.write_queue_count, changed.perm) == (3, 2, 6)
    assert changed.sys_flag == 1
    (known,) = (config for config in admin.topic_configs(BROKER_NAME) if config.name == name)
    assert known == changed
    assert name in admin.unit_topics()
    assert name not in admin.unit_topics("unit-sub")


def test_a_topic_that_nobody_has_is_not_changed(admin):
    with pytest.raises(NoRouteError, match="no broker has topic"):
        admin.update_topic(unique("None"), perm=6)
    with pytest.raises(BrokerError) as raised:
        admin.update_topic(unique("None"), perm=6, broker=BROKER_NAME)
    assert raised.value.code == 17


def test_a_topic_of_the_brokers_own_is_refused_by_the_broker(admin):
    with pytest.raises(BrokerError, match="SCHEDULE_TOPIC_XXXX") as raised:
        admin.create_topic("SCHEDULE_TOPIC_XXXX")
    assert raised.value.code == 1
    assert raised.value.broker


def test_the_brokers_own_topics_are_not_the_users(admin, topic):
    systems = admin.system_topics()
    assert {"SCHEDULE_TOPIC_XXXX", "TBW102", BROKER_NAME, CLUSTER_NAME} <= set(systems)

    users = admin.topics(user_only=True)
    assert topic in users
    assert not set(users) & set(systems)
    assert not any(name.startswith("%") for name in users)


def test_positions_are_what_was_sent(admin, topic):
    assert admin.topic_stats(topic).message_count == 0
    assert [stats.last_update for stats in admin.topic_stats(topic).queues] == [None, None]

    store(admin, topic, "one")
    stats = admin.topic_stats(topic)
    assert stats.unreachable == ()
    assert [(at.queue, at.min_offset, at.max_offset) for at in stats.queues] == [
        (queue(topic, 0), 0, 1), (queue(topic, 1), 0, 0)]
    assert stats.queues[0].last_update.tzinfo is not None


def test_positions_are_mqadmins(admin, mqadmin, topic):
    store(admin, topic, "x", "y", "z", queue_id=1)

    table = rows(mqadmin.run("topicStatus", "-t", topic), "#Broker Name")
    ours = [[at.queue.broker_name, str(at.queue.queue_id), str(at.min_offset), str(at.max_offset)]
            for at in admin.topic_stats(topic).queues]
    assert sorted(row[:4] for row in table) == ours
    shown = mqadmin.run("topicList").split()
    assert set(admin.topics()) == set(shown)
    assert mqadmin.run("topicClusterList", "-t", topic).split() == list(
        admin.topic_clusters(topic))


def test_a_topic_that_mqadmin_made_looks_like_one_of_ours(admin, mqadmin):
    ours, theirs = unique("Ours"), unique("Theirs")
    admin.create_topic(ours, read_queues=3, write_queues=2, perm=4)
    mqadmin.run("updateTopic", "-c", CLUSTER_NAME, "-t", theirs, "-r", 3, "-w", 2, "-p", 4)

    configs = {config.name: config for config in admin.topic_configs(BROKER_NAME)}
    made = [(configs[name].read_queue_count, configs[name].write_queue_count, configs[name].perm,
             configs[name].filter_type, configs[name].sys_flag, configs[name].order)
            for name in (ours, theirs)]
    assert made[0] == made[1]


def test_an_ordered_topic_has_an_order_configuration(admin, mqadmin):
    name = unique("Ordered")
    admin.create_topic(name, queues=2, order=True)
    assert admin.order(name) == f"{BROKER_NAME}:2"
    assert f"{BROKER_NAME}:2" in mqadmin.run("updateOrderConf", "-t", name, "-m", "get")

    admin.set_order(name, f"{BROKER_NAME}:1;other:3")
    admin.create_topic(name, queues=4, order=True)
    assert admin.order(name) == f"{BROKER_NAME}:4;other:3"
    admin.delete_order(name)
    assert admin.order(name) is None


def test_groups_that_consume_a_topic_are_found(admin, topic):
    group = unique("Group")
    assert list(admin.topic_groups(topic)) == []
    admin.set_offset(group, queue(topic), 0)

    assert list(admin.topic_groups(topic)) == [group]


def test_shares_of_members_are_mqadmins(admin, mqadmin):
    name = unique("Shared")
    admin.create_topic(name, queues=5)
    plan = admin.plan(name, ["a", "b"])

    assert [(member, [queue.queue_id for queue in queues]) for member, queues in plan] == [
        ("a", [0, 1, 2]), ("b", [3, 4])]
    text = mqadmin.run("allocateMQ", "-t", name, "-i", "a,b")
    assert text.index('"a"') < text.index('"b"')
    assert text[text.index('"b"'):].count("queueId") == 2
