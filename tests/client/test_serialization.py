"""Sends that name a topic and a body: what becomes of the body, and what is refused."""
from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from mqcore.client import (
    AsyncProducer,
    ConfigError,
    Consumer,
    Message,
    Producer,
    create_reply,
)
from mqcore.testing import MemoryBroker


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with MemoryBroker() as broker:
        yield broker.namesrv


@pytest.mark.parametrize(("body", "sent"), [
    ({"id": 7, "name": "Zoë"}, '{"id":7,"name":"Zoë"}'.encode()), ([1, "a"], b'[1,"a"]'),
    (None, b"null"), (7, b"7"), (b"\x00raw", b"\x00raw"), ("text", b"text"),
    (bytearray(b"ab"), b"ab")])
def test_bodies_of_every_kind(body, sent):
    message = Producer("p").message("T", body, key="7", tags="new", properties={"region": "eu"})

    assert (message.topic, message.body, message.keys, message.tags) == ("T", sent, ["7"], "new")
    assert message.properties["region"] == "eu"


@pytest.mark.parametrize(("body", "fields", "expected"), [
    ({1, 2}, {}, "serializer does not take it"), (float("nan"), {}, "serializer does not take it"),
    ({}, {"kye": "7"}, "field 'kye' is unknown: did you mean key"),
    ({}, {"key": "7", "keys": ["8"]}, "key and keys"),
    ({}, {"delay_level": 19}, "delay_level 19")])
def test_what_cannot_be_sent_is_named(body, fields, expected):
    with pytest.raises(ConfigError, match=expected):
        Producer("p").message("T", body, **fields)


def test_a_message_and_more_is_refused(namesrv):
    with Producer("p", namesrv=namesrv) as producer:
        with pytest.raises(ConfigError, match="expected a topic where a body or fields follow"):
            producer.send(Message("T", "x"), tags="a")
        with pytest.raises(ConfigError, match="expected a Message, or a topic and a body, not 'T'"):
            producer.send("T")
        with pytest.raises(ConfigError, match="expected a Message, not dict"):
            producer.send({})


def test_a_serializer_of_the_application_s_own(namesrv):
    with Producer("p", namesrv=namesrv, serializer=lambda value: repr(value)) as producer:
        assert producer.message("T", (1, 2)).body == b"(1, 2)"
    with pytest.raises(ConfigError, match="serializer 'json': expected a function"):
        Producer("p", serializer="json")


def test_blocking_sends_of_all_kinds_take_a_topic_and_a_body(namesrv):
    with Producer("p", namesrv=namesrv) as producer, \
            Consumer("g", "orders", namesrv=namesrv, start="earliest") as consumer:
        first = producer.send("orders", {"id": 1}, key="1", shard="user-42")
        second = producer.send_soon("orders", {"id": 2}, shard="user-42").result(10)
        producer.send_oneway("orders", {"id": 3}, shard="user-42")
        assert first.queue == second.queue
        assert [next(consumer).json()["id"] for _ in range(3)] == [1, 2, 3]

        with Consumer("answers", "prices", namesrv=namesrv, start="earliest") as answering:
            replies = []
            thread = threading.Thread(target=lambda: replies.append(
                producer.request("prices", {"of": 7}, timeout=20.0)))
            thread.start()
            question = next(answering)
            producer.send(create_reply(question, json.dumps({"price": question.json()["of"]})))
            thread.join()
    assert replies[0].json() == {"price": 7}


def test_asyncio_sends_take_a_topic_and_a_body(namesrv):
    async def scenario():
        async with AsyncProducer("p", namesrv=namesrv) as producer:
            results = [await producer.send("bills", {"id": 1}, tags="a"),
                       await producer.send_soon("bills", {"id": 2})]
            await producer.send_oneway("bills", {"id": 3})
            return [result.queue.topic for result in results]

    assert asyncio.run(scenario()) == ["bills", "bills"]
    with Consumer("h", "bills", namesrv=namesrv, start="earliest") as consumer:
        assert {next(consumer).json()["id"] for _ in range(3)} == {1, 2, 3}
