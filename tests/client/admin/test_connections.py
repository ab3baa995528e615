"""Connected clients: members, producers, and what a member says of itself."""
from __future__ import annotations

import re

import pytest

from mqcore.client import BrokerError
from tests.client.admin.conftest import BROKER_NAME, queue, store, unique
from tests.support.waiting import wait_until


def test_a_group_without_members_has_none(admin):
    found = admin.members(unique("Nobody"))
    assert (found.members, found.consume_type, found.message_model) == ((), "", "")


def test_members_and_their_subscriptions(admin, member, topic):
    group = unique("Group")
    with member(group, topic) as consumer:
        found = admin.members(group)
        (client,) = found.members
        assert client.client_id == consumer.client_id
        assert re.fullmatch(r"127\.0\.0\.1:\d+|[\d.]+:\d+", client.address)
        assert (found.consume_type, found.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert found.consume_from == "CONSUME_FROM_FIRST_OFFSET"
        assert [each.topic for each in found.subscriptions] == [f"%RETRY%{group}", topic]
        assert admin.members(group, broker=BROKER_NAME) == found


def test_members_are_mqadmins(admin, mqadmin, member, topic):
    group = unique("Group")
    with member(group, topic):
        text = mqadmin.run("consumerConnection", "-g", group)
        (client,) = admin.members(group).members
        assert client.client_id in text
        assert client.address in text


@pytest.fixture
def java_member(admin, mqadmin, topic):
    """A group with a Java consumer of a topic with one message, and its client id."""
    group = unique("Group")
    store(admin, topic, "one")
    mqadmin.ask("consumer", group, topic)

    def consumed():
        mqadmin.ask("commit", group)
        return admin.committed(group, queue(topic)) == 1

    wait_until(consumed, "the message consumed")
    (client,) = admin.members(group).members
    yield group, client.client_id
    mqadmin.ask("stop", group)


def test_a_member_says_what_it_does(admin, java_member, topic):
    group, client_id = java_member
    info = admin.running_info(group, client_id, stack=True)

    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert {each.topic for each in info.subscriptions} == {topic, f"%RETRY%{group}"}
    held = {each.queue: each for each in info.queues}
    assert held[queue(topic, 0)].commit_offset == 1
    assert held[queue(topic, 0)].cached_count == 0
    assert held[queue(topic, 0)].last_pull is not None
    assert not held[queue(topic, 0)].dropped
    assert topic in {each.topic for each in info.topics}
    assert "TID:" in (info.stack or "")
    assert admin.running_info(group, client_id).stack is None


def test_a_member_of_ours_says_what_it_does(admin, member, topic):
    group = unique("Group")
    (sent,) = store(admin, topic, "one")
    with member(group, topic) as consumer:
        wait_until(lambda: admin.committed(group, queue(topic)) == 1, "the message consumed")
        info = admin.running_info(group, consumer.client_id, stack=True)
        assert {each.topic for each in info.subscriptions} >= {topic}
        assert {each.queue: each.commit_offset for each in info.queues}[queue(topic, 0)] == 1
        assert info.stack
        status = admin.group_status(group)
        assert status.owner(queue(topic, 1)) == consumer.client_id
        (offsets,) = admin.client_offsets(group, topic)
        assert dict(offsets.offsets)[queue(topic, 0)] == 1
        result = admin.consume_directly(group, consumer.client_id, sent.offset_message_id)
        assert result.result == "CR_SUCCESS"


def test_a_group_whose_members_agree_has_no_problems(admin, java_member, topic):
    group, client_id = java_member
    status = admin.group_status(group)

    assert [member.client_id for member in status.members] == [client_id]
    assert status.unreachable == ()
    assert [status.owner(queue(topic, number)) for number in (0, 1, 2)] == [
        client_id, client_id, None]
    # The queue for retries is nobody's until the next rebalance.
    assert [problem for problem in status.problems if "%RETRY%" not in problem] == []


def test_a_member_that_is_not_there(admin, java_member):
    with pytest.raises(BrokerError) as raised:
        admin.running_info(java_member[0], "nobody@1")
    assert raised.value.code == 1


def test_producers(admin, mqadmin, topic):
    group = unique("Producer")
    mqadmin.ask("producer", group)
    mqadmin.send(group, topic, 0, "key", "body")
    try:
        def known():
            return [each for each in admin.all_producers(BROKER_NAME) if each.group == group]

        wait_until(known, "the producer's heartbeat")
        (found,) = known()
        (client,) = admin.producers(group, topic)
        assert client == found.client
        assert client.language == "JAVA"
        assert found.last_heard is not None
        text = mqadmin.run("producerConnection", "-g", group, "-t", topic)
        assert client.client_id in text
        assert client.address in text
    finally:
        mqadmin.ask("stop", group)


def test_producers_of_a_group_that_is_not_there(admin, topic):
    with pytest.raises(BrokerError) as raised:
        admin.producers(unique("Nobody"), topic)
    assert raised.value.code == 1


def test_a_plan_needs_no_members(admin, topic):
    plan = admin.plan(topic, ["b", "a"])
    assert plan == (("b", (queue(topic, 1),)), ("a", (queue(topic, 0),)))
