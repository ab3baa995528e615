"""Clients of a broker that is away for a while: their sends, and their log."""
from __future__ import annotations

import asyncio
import dataclasses
import logging
import time

import pytest

from mqcore.client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    ConfigError,
    ConnectError,
    Disconnected,
    Message,
    MessageQueue,
    RocketMQError,
)
from mqcore.client.core.retry import Tries
from mqcore.client.errors import CODE_BROKER_NOT_FOUND, NoRouteError, RequestTimeout, send_error
from mqcore.wire.codes import RequestCode, ResponseCode
from tests.client.fake_broker import fake_cluster
from tests.namesrv.harness import settings_in
from tests.support.waiting import wait_until_async

LONG_S = 60.0


class Watch:
    """Hears a producer's events."""

    def __init__(self):
        self.lost = asyncio.Event()

    def __call__(self, event):
        if isinstance(event, Disconnected):
            self.lost.set()


class Tried:
    """Counts the connections that a producer asks for."""

    def __init__(self, producer):
        pool = producer._instance.pool
        self.count = 0
        self._connection, pool.connection = pool.connection, self._counted

    async def _counted(self, address):
        self.count += 1
        return await self._connection(address)


async def end(broker, watch):
    """The broker ends, and its client has noticed it: nothing is sent to a dead connection."""
    broker.end()
    await watch.lost.wait()


def on_fakes(tmp_path, scenario):
    async def run():
        async with fake_cluster(settings_in(tmp_path)) as (address, (broker,)):
            await broker.create("T")
            await asyncio.wait_for(scenario(address, broker), LONG_S)
    asyncio.run(run())


@pytest.mark.parametrize("where", [{}, {"shard": "a"}, {"queue": MessageQueue("T", "broker-a", 1)}],
                         ids=["any", "shard", "queue"])
def test_a_send_waits_for_a_broker_that_restarts(tmp_path, where):
    async def scenario(address, broker):
        watch = Watch()
        async with AsyncProducer(
                "P", namesrv=address, send_timeout=LONG_S, on_event=watch) as producer:
            await producer.send(Message("T", "before"))
            await end(broker, watch)
            sends = [asyncio.create_task(producer.send(Message("T", f"{n}"), **where))
                     for n in range(5)]
            tried = Tried(producer)
            await wait_until_async(lambda: tried.count >= 8, "more tries than are at once")
            assert not any(send.done() for send in sends)
            await broker.begin()
            assert [(await send).status.name for send in sends] == ["SEND_OK"] * 5
        assert sum(map(len, broker.queues.values())) == 6
    on_fakes(tmp_path, scenario)


def test_a_send_to_a_broker_that_stays_away_fails_when_its_time_is_over(tmp_path):
    async def scenario(address, broker):
        watch = Watch()
        async with AsyncProducer("P", namesrv=address, on_event=watch) as producer:
            await producer.send(Message("T", "before"))
            await end(broker, watch)
            began = time.monotonic()
            with pytest.raises(ConnectError) as raised:
                await producer.send(Message("T", "x"), timeout=1.0)
        assert raised.value.stored is False
        assert time.monotonic() - began >= 0.4
    on_fakes(tmp_path, scenario)


def test_a_producer_that_is_closed_does_not_wait_for_its_broker(tmp_path):
    async def scenario(address, broker):
        watch = Watch()
        producer = AsyncProducer("P", namesrv=address, send_timeout=10 * LONG_S, on_event=watch)
        await producer.start()
        await producer.send(Message("T", "before"))
        await end(broker, watch)
        send = asyncio.create_task(producer.send(Message("T", "x")))
        tried = Tried(producer)
        await wait_until_async(lambda: tried.count >= 8, "more tries than are at once")
        await producer.close()
        with pytest.raises(RocketMQError) as caught:
            await send
        assert caught.value.stored is False
    on_fakes(tmp_path, scenario)


def test_a_send_that_begins_to_look_for_its_way_as_the_producer_closes_ends(tmp_path):
    """The task that looks is cancelled before its first step."""
    async def scenario(address, broker):
        watch = Watch()
        producer = AsyncProducer("P", namesrv=address, send_timeout=10 * LONG_S, on_event=watch)
        await producer.start()
        await producer.send(Message("T", "before"))
        await end(broker, watch)
        outcome = producer.send_soon(Message("T", "x"))
        producer._sender.close()
        await producer._instance.stop()
        with pytest.raises(RocketMQError) as caught:
            await asyncio.wait_for(outcome, LONG_S / 2)
        assert caught.value.stored is False
    on_fakes(tmp_path, scenario)


def test_a_send_waits_for_the_master_of_a_topic_that_has_none_for_now(tmp_path):
    """Slaves are left, and one will lead."""
    async def scenario(address, broker):
        async with AsyncProducer("P", namesrv=address, send_timeout=LONG_S) as producer:
            await producer.send(Message("T", "before"))
            routes = producer._instance.routes
            (topic,) = (name for name in routes.topics if name == "T")
            route = routes._routes[topic]
            routes._keep(topic, dataclasses.replace(route, brokers=tuple(
                dataclasses.replace(one, addresses={1: one.addresses[0]})
                for one in route.brokers)))
            assert routes.masters == {}
            asked, refresh = 0, routes.refresh

            async def late(topic, **how):
                nonlocal asked
                asked += 1
                return asked > 5 and await refresh(topic, **how)

            routes.refresh = late
            result = await producer.send(Message("T", "x"))
            assert result.status.name == "SEND_OK"
    on_fakes(tmp_path, scenario)


def away(**stored):
    return ConnectError("cannot connect", **stored)


def test_only_what_is_surely_stored_nowhere_is_tried_beyond_the_number_of_tries():
    def pauses(*errors):
        tries = Tries(1, 10.0)
        found = []
        for error in errors:
            tries.note_failure(error, 0.0, ())
            found.append(tries.pause(error, 0.0))
        return found
    unknown = away(stored=None)
    assert pauses(*[away()] * 6) == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]
    assert pauses(NoRouteError("no master", CODE_BROKER_NOT_FOUND)) == [0.05]
    assert pauses(unknown, away()) == [None, None]
    assert pauses(NoRouteError("no such topic")) == [None]
    assert pauses(RequestTimeout("late", stored=None)) == [None]
    assert pauses(send_error(ResponseCode.NO_PERMISSION, "no", "b", "T")) == [None]
    late = Tries(1, 10.0)
    late.note_failure(away(), 9.96, ())
    assert late.pause(away(), 9.96) is None


def lines(caplog):
    return [record.getMessage() for record in caplog.records
            if record.name == "mqcore.client" and record.levelno >= logging.WARNING]


def test_an_outage_is_one_line(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "mqcore.client")

    async def scenario(address, broker):
        got = []

        async def listen(message):
            got.append(message.text())
        async with AsyncPushConsumer("G", "T", listen, namesrv=address, start="earliest",
                                     persist_interval=0.1, heartbeat_interval=0.2,
                                     route_interval=0.2):
            broker.append("T", 0, b"before", {})
            broker.append("T", 1, b"before", {})
            await wait_until_async(lambda: len(got) == 2, "both")
            caplog.clear()
            broker.end()
            await wait_until_async(lambda: len(caplog.records) > 20, "failure after failure")
            told = lines(caplog)
            await broker.begin()
            caplog.clear()
            broker.append("T", 0, b"after", {})
            await wait_until_async(lambda: "after" in got, "what came after it")
        assert len(told) == 1, told
        assert broker.address in told[0]
        assert lines(caplog) == []
    on_fakes(tmp_path, scenario)


def test_a_topic_that_no_name_server_knows_is_told_once(tmp_path, caplog):
    async def scenario(address, broker):
        async with AsyncConsumer("G", ["T", "ordres"], namesrv=address) as consumer:
            asked = len(broker.requests)
            for _ in range(3):
                consumer._member.wake()
                await wait_until_async(lambda asked=asked: len(broker.requests) > asked, "a look")
                asked = len(broker.requests)
        assert [line for line in lines(caplog) if "ordres" in line] == [
            "group G: no name server knows topic ordres: it is looked for until it is made"]
    on_fakes(tmp_path, scenario)


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_a_broker_in_place_of_a_name_server_is_named(tmp_path, role):
    async def scenario(address, broker):
        broker.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = [3] * 100
        said = f"{broker.address} is no name server"
        if role == "producer":
            async with AsyncProducer("P", namesrv=broker.address) as producer:
                with pytest.raises(ConfigError, match=said):
                    await producer.send(Message("T", "x"))
        else:
            with pytest.raises(ConfigError, match=said):
                await AsyncConsumer("G", "T", namesrv=broker.address).start()
    on_fakes(tmp_path, scenario)
