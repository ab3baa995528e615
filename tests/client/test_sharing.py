"""How queues are shared and offsets follow: allocation, process queues, route queues."""
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.client.config import split_addresses
from mqcore.client.core.allocate import allocate_averagely
from mqcore.client.core.process_queue import ProcessQueue
from mqcore.client.message import Message, MessageQueue, ReceivedMessage
from mqcore.client.route import publish_queues, subscribe_queues
from mqcore.wire.topics import BodyError, BrokerData, QueueData, TopicRoute

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(100)]


def message(offset, body=b"x"):
    return ReceivedMessage(
        "T", body, "m", "o", QUEUES[0], offset, 0, {}, 0, 0, 0, 0, ("", 0), 0, ("", 0), 0
    )


@pytest.mark.parametrize(("queue_count", "member_count", "shares"), [
    (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
    (4, 6, [[0], [1], [2], [3], [], []]),
    (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
    (1, 1, [[0]]),
])
def test_shares_are_those_of_the_java_client(queue_count, member_count, shares):
    members = [f"10.0.0.{n}@1" for n in range(member_count)]
    computed = [allocate_averagely(m, QUEUES[:queue_count], members) for m in members]

    assert [[queue.queue_id for queue in share] for share in computed] == shares


@given(st.integers(0, 60), st.integers(1, 20), st.randoms())
def test_every_queue_has_exactly_one_owner(queue_count, member_count, shuffler):
    members = [f"{n}@x" for n in range(member_count)]
    shuffled = QUEUES[:queue_count]
    shuffler.shuffle(shuffled)
    owned = [allocate_averagely(member, shuffled, members) for member in members]

    assert sorted(chain.from_iterable(owned)) == QUEUES[:queue_count]
    assert max(map(len, owned)) - min(map(len, owned)) <= 1


def test_a_member_that_is_not_listed_gets_nothing():
    assert allocate_averagely("me", QUEUES, ["other"]) == []


def test_the_commit_offset_waits_for_the_oldest_message():
    queue = ProcessQueue(1001)
    batch = [message(offset) for offset in range(1001, 1011)]
    queue.put(batch, 1011)

    queue.done(batch[1:])
    assert (queue.commit_offset, queue.message_count, queue.has_progress) == (1001, 1, False)
    queue.done(batch[:1])
    assert (queue.commit_offset, queue.message_count, queue.byte_count) == (1011, 0, 0)


def test_offsets_without_a_wanted_message_are_committed():
    queue = ProcessQueue(5)
    queue.put([], 42)

    assert queue.commit_offset == 42


@given(st.lists(st.integers(0, 39), unique=True))
def test_the_commit_offset_is_the_smallest_unfinished_one(finished):
    queue = ProcessQueue(0)
    messages = [message(offset) for offset in range(40)]
    queue.put(messages, 40)
    for offset in finished:
        queue.done([messages[offset]])

    assert queue.commit_offset == min(set(range(40)) - set(finished), default=40)


ROUTE = TopicRoute(
    (QueueData("b", 2, 1, 6), QueueData("a", 1, 2, 6), QueueData("w", 1, 1, 2),
     QueueData("slave-only", 1, 1, 6)),
    (BrokerData("C", "a", {0: "1:1"}), BrokerData("C", "b", {0: "2:1"}),
     BrokerData("C", "w", {0: "3:1"}), BrokerData("C", "slave-only", {1: "4:1"})),
)


def test_publishing_needs_write_permission_and_a_master():
    assert [(q.broker_name, q.queue_id) for q in publish_queues("T", ROUTE)] == [
        ("a", 0), ("a", 1), ("b", 0), ("w", 0)
    ]


def test_reading_needs_read_permission():
    assert [(q.broker_name, q.queue_id) for q in subscribe_queues("T", ROUTE)] == [
        ("a", 0), ("b", 0), ("b", 1), ("slave-only", 0)
    ]


def test_an_order_configuration_names_the_queues():
    ordered = TopicRoute(ROUTE.queues, ROUTE.brokers, "b:1;a:2")

    assert [(q.broker_name, q.queue_id) for q in publish_queues("T", ordered)] == [
        ("b", 0), ("a", 0), ("a", 1)
    ]
    with pytest.raises(BodyError, match="orderTopicConf"):
        publish_queues("T", TopicRoute((), (), "nonsense"))


def test_a_route_that_claims_too_many_queues_is_not_believed():
    with pytest.raises(BodyError, match="queues"):
        subscribe_queues("T", TopicRoute((QueueData("a", 2**31, 1, 6),), ()))


@pytest.mark.parametrize("bad", ["localhost", "h:x", ":1", "h:70000"])
def test_a_bad_address_is_named(bad):
    with pytest.raises(ValueError, match="expected host:port"):
        split_addresses(f"10.0.0.1:9876;{bad}")


@pytest.mark.parametrize(("name", "value"), [("KEYS", "x"), ("UNIQ_KEY", "x"), (" ", "x"),
                                             ("a", "")])
def test_a_reserved_or_blank_property_is_refused(name, value):
    with pytest.raises(ValueError, match="property"):
        Message("T", "b", properties={name: value})
