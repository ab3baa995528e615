"""Which queues of a route are for sending and for reading; addresses; reserved properties."""
import pytest

from mqcore.client.config import split_addresses
from mqcore.client.errors import ClientError
from mqcore.client.message import Message
from mqcore.client.network.route import publish_queues, subscribe_queues
from mqcore.wire.topics import BrokerData, QueueData, TopicRoute

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
    with pytest.raises(ClientError, match="orderTopicConf"):
        publish_queues("T", TopicRoute((), (), "nonsense"))


def test_a_route_that_claims_too_many_queues_is_not_believed():
    with pytest.raises(ClientError, match="queues"):
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
