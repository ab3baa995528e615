"""A group may be there before its topic: the first message finds it."""
from __future__ import annotations

from mqcore.client import Consumer, Message, Producer
from mqcore.testing import MemoryBroker

SOON_S = 15.0           # a member looks for topics each 2 s; heartbeats alone come each 30 s


def test_a_consumer_gets_the_first_message_of_a_topic_that_is_made_later():
    with MemoryBroker() as broker, \
            Consumer("early", "late", namesrv=broker.namesrv, start="earliest") as consumer, \
            Producer("p", namesrv=broker.namesrv) as producer:
        assert consumer.receive(timeout=0.1) == []
        producer.send(Message("late", "first"))

        (message,) = consumer.receive(timeout=SOON_S)

    assert message.text() == "first"
