"""FastStream's ways into FastAPI and Prometheus, on a real broker."""
from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from mqcore.client import ConfigError, Consumer, Producer
from mqcore.contrib.faststream import RocketMQBroker, TestRocketMQBroker
from mqcore.contrib.faststream import RocketMQRouter as PlainRouter
from mqcore.contrib.faststream.fastapi import RocketMQBroker as Broker
from mqcore.contrib.faststream.fastapi import (
    RocketMQMessage,
    RocketMQRouter,
)
from mqcore.contrib.faststream.prometheus import RocketMQPrometheusMiddleware
from mqcore.testing import broker as real_broker
from tests.support.waiting import wait_until

LIMIT_S = 30
numbers = count()


class Order(BaseModel):
    id: int
    secret: str = "s"


class Shown(BaseModel):
    id: int


async def region_of(message: RocketMQMessage) -> str:
    return str(message.headers["region"])


def doubled(order: Order) -> int:
    return 2 * order.id


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with real_broker() as running:
        yield running.namesrv


@pytest.fixture
def topic() -> str:
    return f"neighbour{next(numbers)}"


def served(*routers: RocketMQRouter, **options: Any) -> FastAPI:
    app = FastAPI(title="Shop", **options)
    for router in routers:
        app.include_router(router)
    return app


def test_an_application_sends_and_receives_while_it_runs(namesrv: str, topic: str) -> None:
    seen: list[tuple[object, ...]] = []
    router = RocketMQRouter(namesrv, topic_queues=1, prefix="/api")

    @router.subscriber(topic, group=f"g-{topic}", filter="new")
    @router.publisher(f"{topic}-bills")
    async def bill(
        order: Order, region: Annotated[str, Depends(region_of)], broker: Broker
    ) -> dict[str, object]:
        assert broker is router.broker
        seen.append((order, region))
        return {"order": order.id}

    @router.subscriber(f"{topic}-bills")
    async def billed(bill: dict[str, int], message: RocketMQMessage) -> None:
        seen.append((bill, message.raw_message.topic))

    @router.post("/orders")
    async def place(order: Order) -> dict[str, str]:
        await router.broker.publish({"id": 0}, topic, tags="old")
        result = await router.broker.publish(order, topic, tags="new", headers={"region": "eu"})
        return {"id": result.message_id}

    with TestClient(served(router)) as client:
        assert client.post("/api/orders", json={"id": "x"}).status_code == 422
        assert len(client.post("/api/orders", json={"id": 7}).json()["id"]) == 32
        wait_until(lambda: len(seen) == 2, "the order and its bill")
        document = client.get("/api/asyncapi.json").json()
        assert client.get("/api/asyncapi").status_code == 200
    assert seen == [(Order(id=7), "eu"), ({"order": 7}, f"{topic}-bills")]
    assert document["info"]["title"] == "Shop"
    assert {topic, f"{topic}-bills"} == {one["address"] for one in document["channels"].values()}
    assert router.broker._connection is None            # it stopped with the application


def test_what_raises_or_does_not_fit_comes_again_and_what_is_returned_is_a_response_model(
    namesrv: str, topic: str
) -> None:
    router = RocketMQRouter(namesrv, topic_queues=1, schema_url=None)
    tried: list[int] = []

    @router.subscriber(topic, group=f"g-{topic}", response_model=Shown, max_retries=0)
    @router.publisher(f"{topic}-shown")
    async def show(order: Order) -> Order:
        tried.append(order.id)
        if order.id == 6:
            raise ValueError("no")
        return order

    with TestClient(served(router)) as client, Producer("p", namesrv=namesrv) as producer:
        for body in ({"id": 6}, {"id": "no number"}, {"id": 7}):
            producer.send(topic, body)
        with Consumer(f"s-{topic}", f"{topic}-shown", namesrv=namesrv, start="earliest") as shown, \
                Consumer(f"d-{topic}", f"%DLQ%g-{topic}", namesrv=namesrv,
                         start="earliest") as dead:
            assert next(shown).json() == {"id": 7}
            assert sorted(next(dead).text() for _ in range(2)) == ['{"id":"no number"}', '{"id":6}']
        assert client.get("/asyncapi.json").status_code == 404
    assert sorted(tried) == [6, 7]


def test_a_test_of_an_application_needs_no_broker(topic: str) -> None:
    router = RocketMQRouter("127.0.0.1:1")

    plain = PlainRouter()

    @plain.subscriber(topic)
    async def handle(order: Order, twice: Annotated[int, Depends(doubled)]) -> int:
        return twice + 1

    router.include_router(plain)
    served(router)

    async def scenario() -> object:
        async with TestRocketMQBroker(router.broker) as tested:
            answer = await tested.request({"id": 7}, topic)
            handle.mock.assert_called_once_with({"id": 7})
            return await answer.decode()

    assert asyncio.run(scenario()) == 15


def test_wrong_options_of_a_router_are_told() -> None:
    with pytest.raises(ConfigError, match="expected host:port"):
        RocketMQRouter("nowhere")
    with pytest.raises(TypeError, match="topic_queue"):
        RocketMQRouter(topic_queue=4)


def figures(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric: label values but for the application's -> value."""
    return {tuple(value for label, value in sorted(sample.labels.items()) if label != "app_name"):
            sample.value
            for metric in registry.collect() for sample in metric.samples if sample.name == name}


def test_messages_are_counted_by_what_became_of_them(namesrv: str, topic: str) -> None:
    registry = CollectorRegistry()
    broker = RocketMQBroker(namesrv, topic_queues=1, middlewares=[
        RocketMQPrometheusMiddleware(registry=registry, app_name="shop", custom_labels={
            "tag": lambda message: (message and message.tags) or "-"})])
    done = asyncio.Event()

    @broker.subscriber(topic, group=f"g-{topic}", max_retries=0)
    async def handle(body: str) -> None:
        if body == "bad":
            raise ValueError("no")
        if body == "last":
            done.set()

    async def scenario() -> None:
        async with broker:
            await broker.start()
            for body in ("good", "bad", "last"):
                await broker.publish(body, topic, tags="new")
            async with asyncio.timeout(LIMIT_S):
                await done.wait()

    asyncio.run(scenario())
    system = "rocketmq"
    assert figures(registry, "faststream_received_messages_total") == {(system, topic, "new"): 3}
    assert figures(registry, "faststream_received_messages_size_bytes_sum") == {
        (system, topic, "new"): len("goodbadlast")}
    assert figures(registry, "faststream_received_processed_messages_total") == {
        (system, topic, "acked", "new"): 2, (system, topic, "error", "new"): 1}
    assert figures(registry, "faststream_published_messages_total") == {
        (system, topic, "success", "-"): 3}
    assert figures(registry, "faststream_received_messages_in_process") == {
        (system, topic, "new"): 0}
