"""Brokers and clusters: who there is, how they are, settings, cleaning; as mqadmin says."""
from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mqcore.client import BrokerError, ConfigError, NoRouteError
from tests.client.admin.conftest import BROKER_NAME, CLUSTER_NAME, queue, store, unique
from tests.interop.mqadmin import fields, rows
from tests.support.waiting import wait_until


def test_clusters_and_their_brokers(admin, place):
    (cluster,) = admin.clusters()

    assert cluster.name == CLUSTER_NAME
    assert [(broker.broker_name, broker.addresses) for broker in cluster.brokers] == [
        (BROKER_NAME, {0: place.broker_addr})]


def test_a_broker_says_how_it_is(admin, place, topic):
    store(admin, topic, "counted")
    by_name, by_address = admin.broker_status(BROKER_NAME), admin.broker_status(place.broker_addr)

    assert by_name.address == by_address.address == place.broker_addr
    assert by_name.version.startswith("V4_9_")
    assert 0 < (datetime.now(UTC) - by_name.started).total_seconds() < 3_600
    assert by_name.put_today >= 1
    assert by_name.get_yesterday == by_name.put_yesterday == 0
    assert 0 < by_name.disk_ratio < 1
    assert by_name.values["commitLogMinOffset"] == "0"
    (of_cluster,) = admin.cluster_status(CLUSTER_NAME)
    assert (of_cluster.broker_name, of_cluster.broker_id) == (BROKER_NAME, 0)
    assert list(admin.cluster_status("nowhere")) == []


def test_the_status_is_mqadmins(admin, mqadmin):
    (status,) = admin.cluster_status()
    (row,) = rows(mqadmin.run("clusterList"), "#Cluster Name")

    assert row[:5] == [CLUSTER_NAME, status.broker_name, str(status.broker_id), status.address,
                       status.version]
    assert set(fields(mqadmin.run("brokerStatus", "-b", status.address))) == set(status.values)


def test_a_setting_is_changed_while_the_broker_runs(admin, mqadmin, place):
    assert admin.broker_config(BROKER_NAME)["autoCreateTopicEnable"] == "true"
    try:
        assert admin.update_broker_config({"autoCreateTopicEnable": False},
                                          broker=place.broker_addr) == (place.broker_addr,)
        assert admin.broker_config(BROKER_NAME)["autoCreateTopicEnable"] == "false"
        shown = fields(mqadmin.run("getBrokerConfig", "-b", place.broker_addr))
        assert shown["autoCreateTopicEnable"] == "false"
        assert set(shown) >= set(admin.broker_config(BROKER_NAME)) - {"brokerIP1"}
    finally:
        admin.update_broker_config({"autoCreateTopicEnable": True}, cluster=CLUSTER_NAME)


def test_a_setting_that_may_not_change_is_refused(admin, place):
    if place.kind == "stock":
        pytest.skip("the stock broker here is 4.9.7, which takes it")
    with pytest.raises(BrokerError) as raised:
        admin.update_broker_config({"brokerConfigPath": "x"})
    assert raised.value.code == 16


def test_cleaning(admin, topic):
    store(admin, topic, "stays")
    for clean in (admin.clean_expired_queues, admin.clean_unused_topics,
                  admin.delete_expired_log):
        assert clean() == (BROKER_NAME,)
        assert clean(cluster=CLUSTER_NAME) == (BROKER_NAME,)
    assert admin.topic_stats(topic).message_count == 1


def test_backlogs_of_a_broker_are_mqadmins(admin, mqadmin, place, topic):
    group = unique("Group")
    admin.create_group(group)
    store(admin, topic, "a", "b", "c")
    admin.set_offset(group, queue(topic), 1)

    (backlog,) = (each for each in admin.broker_lags(BROKER_NAME) if each.group == group)
    assert backlog.total == 2
    assert backlog.queues[0].queue == queue(topic)
    text = mqadmin.run("brokerConsumeStats", "-b", place.broker_addr)
    theirs = [row for row in rows(text, "#Topic") if row[1] == group]
    assert [[row[0], row[3], row[4], row[5]] for row in theirs] == [
        [each.queue.topic, str(each.queue.queue_id), str(each.broker_offset),
         str(each.consumer_offset)] for each in backlog.queues if each.lag]


def test_metadata_is_that_of_users(admin, topic):
    group = unique("Group")
    admin.create_group(group, retry_max_times=3)

    for found in (admin.metadata(), admin.metadata(broker=BROKER_NAME)):
        assert topic in {config.name for config in found.topics}
        assert "SCHEDULE_TOPIC_XXXX" not in {config.name for config in found.topics}
        assert (group, 3) in {(config.name, config.retry_max_times) for config in found.groups}
        assert "TOOLS_CONSUMER" not in {config.name for config in found.groups}


def test_a_broker_or_cluster_that_is_not_there(admin):
    with pytest.raises(NoRouteError, match="broker 'nobody'"):
        admin.broker_status("nobody")
    with pytest.raises(NoRouteError, match="cluster nowhere"):
        admin.clean_unused_topics(cluster="nowhere")
    with pytest.raises(ConfigError, match="cluster: expected either"):
        admin.clean_unused_topics(cluster=CLUSTER_NAME, broker=BROKER_NAME)


def test_counts_of_a_topic_and_group(admin, mqadmin, member, topic):
    group = unique("Group")
    assert admin.stats("TOPIC_PUT_NUMS", unique("None"), broker=BROKER_NAME) is None
    with member(group, topic):
        store(admin, topic, *"abc")

        def counted():
            (row,) = (row for row in admin.stats_all(topic) if row.group == group)
            return (row.in_day, row.out_day, row.lag) == (3, 3, 0) and row
        wait_until(counted, "three messages in the window of a minute")
    row = counted()
    assert 0 < row.in_tps < 3
    stats = admin.stats("TOPIC_PUT_NUMS", topic, broker=BROKER_NAME)
    assert stats.sum_of_day == 3
    (theirs,) = (line for line in rows(mqadmin.run("statsAll", "-t", topic), "#Topic")
                 if line[:2] == [topic, group])
    assert theirs[2] == "0"
    assert theirs[5:] == ["3", "3"]


def test_a_topic_that_nobody_uses_is_not_active(admin, topic):
    (row,) = admin.stats_all(topic)
    assert (row.topic, row.group, row.in_day) == (topic, "", 0)
    assert list(admin.stats_all(topic, active_only=True)) == []
