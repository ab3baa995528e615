"""FastStream's own tests for brokers, and what is this broker's alone."""
from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from faststream import AckPolicy
from faststream.specification import AsyncAPI

from mqcore.client import ConfigError, Consumer, Producer
from mqcore.client.core.compression import Compressor
from mqcore.contrib.faststream import (
    RocketMQBroker,
    RocketMQRouter,
    TestRocketMQBroker,
)
from mqcore.contrib.faststream.annotations import RocketMQMessage
from mqcore.testing import MemoryBroker
from tests.contrib import sdists

REPOSITORY = "https://github.com/ag2ai/faststream.git"
THEIRS = Path(__file__).with_name("faststream_theirs.py")
LIMIT_S = 30
numbers = count()


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with MemoryBroker() as broker:
        yield broker.namesrv


@pytest.fixture
def topic() -> str:
    return f"stream{next(numbers)}"


@pytest.mark.slow
def test_their_own_tests_pass(namesrv, tmp_path: Path) -> None:
    found = sdists.run_tests(
        THEIRS.read_text(encoding="utf-8"), tmp_path, sdists.checkout("faststream", REPOSITORY),
        env={"BROKER": namesrv, "FASTSTREAM_SUPERVISOR_DISABLED": "1"},
        ini="asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    assert found["passed"] >= 230
    assert found.get("skipped", 0) == 0


def consumed(broker: RocketMQBroker, send, done) -> None:
    """Run the broker's subscribers until it is done."""
    async def scenario():
        async with broker:
            await broker.start()
            await send()
            async with asyncio.timeout(LIMIT_S):
                await done.wait()

    asyncio.run(scenario())


def test_messages_of_any_client_come_with_their_properties(namesrv, topic):
    broker = RocketMQBroker(namesrv, topic_queues=1)
    seen: list[tuple[object, ...]] = []
    done = asyncio.Event()

    @broker.subscriber(topic, filter="new || paid", start="earliest")
    async def handle(body: dict, message: RocketMQMessage) -> None:
        seen.append((body["id"], message.headers["region"], message.raw_message.tags,
                     message.raw_message.keys))
        done.set()

    async def send():
        with Producer("p", namesrv=namesrv) as producer:
            producer.send(topic, {"id": 6}, tags="old", properties={"region": "eu"})
            producer.send(topic, {"id": 7}, tags="new", key="7", properties={"region": "eu"})

    consumed(broker, send, done)
    assert seen == [(7, "eu", "new", ["7"])]


def test_what_is_published_is_a_plain_message(namesrv, topic):
    async def scenario():
        async with RocketMQBroker(namesrv) as broker:
            results = [await broker.publish({"id": 7}, topic, tags="new", key="7", shard="a",
                                            headers={"region": "eu"}, correlation_id="c-1"),
                       await broker.publish("", topic, shard="a")]
            assert await broker.ping()
            return results

    first, second = asyncio.run(scenario())
    assert first.queue == second.queue
    with Consumer("g", topic, namesrv=namesrv, start="earliest") as consumer:
        message, empty = next(consumer), next(consumer)
    assert message.json() == {"id": 7}
    assert (message.tags, message.keys) == ("new", ["7"])
    assert message.properties["region"] == "eu"
    assert message.properties["correlation_id"] == "c-1"
    assert empty.body == b" "                           # brokers take no empty bodies


@pytest.mark.parametrize("policy", [AckPolicy.REJECT_ON_ERROR, AckPolicy.MANUAL])
def test_what_is_rejected_is_a_dead_letter(namesrv, topic, policy):
    broker = RocketMQBroker(namesrv, topic_queues=1)
    done = asyncio.Event()

    @broker.subscriber(topic, group=f"g-{topic}", ack_policy=policy)
    async def handle(body: str, message: RocketMQMessage) -> None:
        done.set()
        if policy is AckPolicy.MANUAL:
            await message.reject()
        else:
            raise ValueError("no")

    consumed(broker, lambda: broker.publish("x", topic), done)
    with Consumer("dead", f"%DLQ%g-{topic}", namesrv=namesrv, start="earliest") as consumer:
        assert next(consumer).text() == "x"


def test_a_body_that_cannot_be_decompressed_is_a_dead_letter(namesrv, topic, monkeypatch):
    broker = RocketMQBroker(namesrv, topic_queues=1)
    done = asyncio.Event()

    @broker.subscriber(topic, group=f"g-{topic}", start="earliest")
    async def handle(body: str) -> None:
        done.set()

    async def send():
        with Producer("p", namesrv=namesrv) as producer:
            with monkeypatch.context() as broken:
                broken.setattr(Compressor, "compress", lambda self, body: (b"no zlib", 1))
                producer.send(topic, bytes(5_000))
            producer.send(topic, "x")

    consumed(broker, send, done)
    with Consumer("dead", f"%DLQ%g-{topic}", namesrv=namesrv, start="earliest") as consumer:
        assert next(consumer).body_size == len(b"no zlib")


def test_what_fails_comes_again(namesrv, topic):
    broker = RocketMQBroker(namesrv, topic_queues=1)
    done = asyncio.Event()
    tries: list[int] = []

    @broker.subscriber(topic, ack_policy=AckPolicy.MANUAL, max_workers=4)
    async def handle(body: str, message: RocketMQMessage) -> None:
        tries.append(message.raw_message.reconsume_times)
        if len(tries) == 1:
            await message.nack(delay_level=1)
        else:
            await message.ack()
            done.set()

    consumed(broker, lambda: broker.publish("x", topic), done)
    assert tries == [0, 1]


def test_groups_of_a_topic_in_one_application(topic):
    broker = RocketMQBroker("127.0.0.1:1")
    router = RocketMQRouter(prefix="shop-")
    heard: list[str] = []
    for group in ("bills", "bills", "mails"):
        router.subscriber(topic, group=group)(lambda body, name=group: heard.append(name))
    broker.include_router(router)

    async def scenario():
        async with TestRocketMQBroker(broker) as tested:
            await tested.publish("x", f"shop-{topic}")

    asyncio.run(scenario())
    assert sorted(heard) == ["bills", "mails"]


def test_the_schema_names_the_topics(topic):
    broker = RocketMQBroker("127.0.0.1:1", description="orders")

    @broker.publisher(f"{topic}-out")
    @broker.subscriber(topic, title="takes")
    async def handle(body: str) -> str:
        return body

    schema = AsyncAPI(broker, schema_version="3.0.0").to_specification().to_jsonable()
    assert {channel["address"] for channel in schema["channels"].values()} == {
        topic, f"{topic}-out"}
    assert [server["protocol"] for server in schema["servers"].values()] == ["rocketmq"]


@pytest.mark.parametrize(("namesrv", "shown"), [
    ("rocketmq://AK:s3cret@a:9876;b:9876/space?tls=verify", "a:9876;b:9876"),
    (["a:9876", "b:9876"], "a:9876;b:9876"), ("a:9876", "a:9876"), ("", "discovery.example")])
def test_the_schema_shows_name_servers_and_no_secret(namesrv, shown):
    broker = RocketMQBroker(namesrv, client={"namesrv_domain": "discovery.example"})
    schema = AsyncAPI(broker, schema_version="3.0.0").to_specification().to_jsonable()
    assert [server["host"] for server in schema["servers"].values()] == [shown]
    assert "s3cret" not in f"{schema} {broker!r} {broker.config!r} {broker.config.broker_config!r}"
    told = RocketMQBroker(namesrv, specification_url="rocketmq://shop").specification.url
    assert told == ["rocketmq://shop"]


def test_headers_are_all_that_is_not_rocketmq_s_own(namesrv, topic):
    broker = RocketMQBroker(namesrv, topic_queues=1)
    sent = {"TENANT": "acme", "X-REQUEST-ID": "9", "42": "x", "\u540d": "y", "tenant": "z"}
    seen: list[dict[str, str]] = []
    done = asyncio.Event()

    @broker.subscriber(topic, start="earliest")
    async def handle(body: str, message: RocketMQMessage) -> None:
        seen.append(message.headers)
        done.set()

    consumed(broker, lambda: broker.publish("x", topic, tags="new", key="7", headers=sent), done)
    assert seen == [sent | {"content-type": "text/plain"}]


def test_bad_options_are_named():
    async def scenario():
        broker = RocketMQBroker("127.0.0.1:1", client={"namesvr": "x"})
        with pytest.raises(ConfigError, match="did you mean namesrv"):
            await broker.connect()
        assert not await RocketMQBroker("127.0.0.1:1").ping()

    asyncio.run(scenario())
    with pytest.raises(TypeError, match="RocketMQRegistrator"):
        RocketMQBroker().include_router(object())
