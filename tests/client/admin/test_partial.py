"""A broker that is gone while its name server still tells of it: results say what is missing."""
from __future__ import annotations

import asyncio
import socket

import pytest

from mqcore.client import RemotingError
from mqcore.client.admin import Admin, AdminError
from mqcore.client.admin.link import AT_ONCE_MAX, some_at_once
from mqcore.client.network.registration import Registration
from mqcore.client.roles.blocking import LoopThread
from mqcore.wire.records import body_crc
from mqcore.wire.topics import DataVersion, TopicConfig, TopicTable, encode_registration
from tests.client.admin.conftest import BROKER_NAME, CLUSTER_NAME, queue, store, unique
from tests.support.waiting import wait_until

GONE = "admin-gone"


@pytest.fixture
def gone(place, admin, topic):
    """The address of a broker that is registered with the topic, and answers nothing."""
    with socket.socket() as taken:              # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        body = encode_registration(TopicTable(DataVersion(1, 1), {
            topic: TopicConfig(topic, 1, 1)}))
        identity = {"brokerName": GONE, "brokerAddr": address, "clusterName": CLUSTER_NAME,
                    "brokerId": "0"}
        registration = Registration()
        thread = LoopThread.shared()
        (result,) = thread.call(registration.register([place.namesrv_addr], {
            **identity, "haServerAddr": address, "compressed": "false",
            "bodyCrc32": str(body_crc(body))}, body))
        assert result.name_server == place.namesrv_addr
        try:
            yield address
        finally:
            thread.call(registration.unregister([place.namesrv_addr], identity))
            thread.call(registration.close())
            wait_until(lambda: len(admin.clusters()[0].brokers) == 1, "the broker forgotten")


def missing(found):
    return [(failure.name, failure.address) for failure in found.unreachable]


def test_reads_name_the_broker_that_is_missing(admin, topic, gone):
    group = unique("Group")
    store(admin, topic, "here", keys=["key"])
    admin.set_offset(group, queue(topic), 1)
    wait_until(lambda: admin.query(topic, "key"), "the key in the index")

    stats = admin.topic_stats(topic)
    assert stats.message_count == 1
    assert missing(stats) == [(GONE, gone)]
    assert isinstance(stats.unreachable[0].error, RemotingError)
    assert gone in str(stats.unreachable[0].error)
    lag = admin.lag(group)
    assert (lag.total, missing(lag)) == (0, [(GONE, gone)])
    for found in (admin.query(topic, "key"), admin.topic_groups(topic)):
        assert (len(found), missing(found)) == (1, [(GONE, gone)])
    assert missing(admin.cluster_status()) == [(GONE, gone)]
    assert [status.broker_name for status in admin.cluster_status()] == [BROKER_NAME]
    read = admin.read(topic)
    assert [message.body for message in read] == [b"here"]
    assert missing(read) == [(f"{GONE} queue 0", gone)]
    reset = admin.reset_offsets(group, topic, to="earliest", dry_run=True)
    assert missing(reset) == [(GONE, gone)]
    assert GONE not in {each.queue.broker_name for each in reset.queues}


def test_changes_fail_and_name_who_did_what(admin, topic, gone):
    group = unique("Group")
    with pytest.raises(AdminError, match=GONE) as raised:
        admin.create_group(group)
    error = raised.value
    assert error.done == (BROKER_NAME,)
    assert [(failure.name, failure.address) for failure in error.failures] == [(GONE, gone)]
    assert error.retryable
    assert str(error).startswith(f"creating group {group} failed at 1 of 2: {GONE} ({gone}): ")
    assert group in admin.groups()

    admin.set_offset(group, queue(topic), 0)
    store(admin, topic, "one")
    with pytest.raises(AdminError) as raised:
        admin.reset_offsets(group, topic, to="latest")
    assert raised.value.done == (BROKER_NAME,)
    assert admin.committed(group, queue(topic)) == 1


def test_one_broker_that_fails_alone_is_its_own_error(admin, gone):
    with pytest.raises(RemotingError) as raised:
        admin.broker_status(GONE)
    assert raised.value.broker == gone
    with pytest.raises(RemotingError):
        admin.create_topic(unique("Topic"), broker=gone)


def test_a_name_server_that_is_gone_is_named_and_the_others_have_the_change(admin, place):
    space = unique("space")
    with Admin(f"{place.namesrv_addr};127.0.0.1:1", connect_timeout=1.0) as both:
        with pytest.raises(AdminError) as raised:
            both.put_kv(space, "key", "value")
        assert raised.value.done == (place.namesrv_addr,)
        assert [failure.name for failure in raised.value.failures] == ["127.0.0.1:1"]
        assert both.kv(space, "key") == "value"
    admin.delete_kv(space, "key")


def test_some_are_done_at_once_in_order_and_no_more_than_the_limit():
    running = most = 0

    async def work(number):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (number % 3))
        running -= 1
        return number * 2

    assert asyncio.run(some_at_once(range(100), work)) == [number * 2 for number in range(100)]
    assert most == AT_ONCE_MAX
    assert asyncio.run(some_at_once([], work)) == []


def test_the_first_error_ends_the_others():
    ended = []

    async def work(number):
        try:
            if number == 3:
                raise ValueError("three")
            await asyncio.sleep(30)
        finally:
            ended.append(number)

    async def scenario():
        with pytest.raises(ValueError, match="three"):
            await some_at_once(range(AT_ONCE_MAX * 2), work)
        await asyncio.sleep(0)
    asyncio.run(scenario())
    assert sorted(ended) == list(range(AT_ONCE_MAX))
