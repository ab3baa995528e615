"""What `on_event` hears: connections, routes, shares, slow listeners; and shares that follow a
route at once."""
from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from itertools import count

import pytest

from mqcore.client import (
    Admin,
    AsyncPushConsumer,
    ConfigError,
    Connected,
    Consumer,
    Disconnected,
    Event,
    Message,
    Producer,
    PushConsumer,
    Rebalanced,
    RouteChanged,
    SlowListener,
)
from mqcore.testing import MemoryBroker
from tests.support.waiting import wait_until, wait_until_async

numbers = count()


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with MemoryBroker() as broker, Admin(broker.namesrv) as admin:
        admin.create_topic("events", queues=4)
        yield broker.namesrv


def of(kind: type[Event], events: list[Event]) -> list:
    return [event for event in events if isinstance(event, kind)]


def test_a_producer_tells_of_connections_and_routes(namesrv):
    events: list[Event] = []
    with Producer("p", namesrv=namesrv, on_event=events.append) as producer:
        producer.send(Message("events", "x"))
        client_id = producer.client_id
    wait_until(lambda: of(Disconnected, events), "the end of the connection was told")

    assert [type(event) for event in events] == [Connected, RouteChanged, Disconnected]
    assert {event.client_id for event in events} == {client_id}
    connected, route, ended = events
    assert connected.address == ended.address == namesrv
    assert ended.error is None
    assert route.topic == "events"
    assert len(route.queues) == 4


def test_members_tell_which_queues_they_take_and_give_up(namesrv):
    group = f"g{next(numbers)}"
    first: list[Event] = []
    second: list[Event] = []

    def held(events: list[Event]) -> int:
        return sum(queue.topic == "events" for queue in of(Rebalanced, events)[-1].held)

    with Consumer(group, "events", namesrv=namesrv, on_event=first.append):
        assert held(first) == 4
        with Consumer(group, "events", namesrv=namesrv, on_event=second.append):
            wait_until(lambda: held(first) == held(second) == 2, "each has its share")
        gone = of(Rebalanced, second)[-1]
        assert len(gone.given_up) >= 2
        assert (gone.taken, gone.held) == ((), ())
        wait_until(lambda: held(first) == 4, "all queues are back")
    assert {event.group for event in of(Rebalanced, first)} == {group}


def test_new_queues_of_a_topic_are_taken_as_soon_as_its_route_says_so(namesrv):
    topic = f"grows{next(numbers)}"
    events: list[Event] = []
    with Admin(namesrv) as admin:
        admin.create_topic(topic, queues=2)
        with Consumer(f"g{next(numbers)}", topic, namesrv=namesrv, route_interval=0.2,
                      on_event=events.append) as consumer:
            admin.create_topic(topic, queues=6)
            wait_until(lambda: any(len(event.queues) == 6 for event in of(RouteChanged, events)),
                       "the route is known")
            took = wait_until(
                lambda: sum(queue.topic == topic for queue in consumer.assignment) == 6,
                "the queues are taken")
    assert took < 5.0                       # by the timer alone: up to 20 s


def test_a_slow_call_is_told_and_then_that_it_comes_again(namesrv):
    events: list[Event] = []
    release = threading.Event()

    def slow(message):
        release.wait(60)

    topic = f"slow{next(numbers)}"
    with Producer("p", namesrv=namesrv) as producer:
        producer.send(Message(topic, "x"))
        with PushConsumer(f"g{next(numbers)}", topic, slow, namesrv=namesrv, start="earliest",
                          handler_timeout=1.0, on_event=events.append):
            wait_until(lambda: len(of(SlowListener, events)) >= 2, "both were told")
            release.set()
    late, expired = of(SlowListener, events)[:2]
    assert (late.expired, expired.expired) == (False, True)
    assert late.listener.endswith("slow")
    assert late.messages[0].body == b"x"
    assert 0.8 <= late.seconds <= expired.seconds


def test_a_message_that_is_out_too_long_is_told(namesrv):
    events: list[Event] = []
    topic, group = f"out{next(numbers)}", f"g{next(numbers)}"
    with Producer("p", namesrv=namesrv) as producer:
        producer.send(Message(topic, "x"))
        with Consumer(group, topic, namesrv=namesrv, start="earliest", handler_timeout=0.5,
                      ack="manual", on_event=events.append) as consumer:
            assert len(consumer.receive(timeout=30)) == 1
            wait_until(lambda: of(SlowListener, events), "it was told")
    (told,) = of(SlowListener, events)
    assert (told.listener, told.expired) == (f"consumer {group}", True)


def test_a_listener_that_blocks_the_loop_is_told(namesrv):
    async def scenario():
        events: list[Event] = []
        topic = f"blocks{next(numbers)}"

        async def blocks(message):
            threading.Event().wait(1.8)

        with Producer("p", namesrv=namesrv) as producer:
            producer.send(Message(topic, "x"))
        async with AsyncPushConsumer(f"g{next(numbers)}", topic, blocks, namesrv=namesrv,
                                     start="earliest", on_event=events.append):
            await wait_until_async(lambda: of(SlowListener, events), "it was told")
        return of(SlowListener, events)[0]

    told = asyncio.run(scenario())
    assert told.messages == ()
    assert told.seconds > 1.0


def test_what_a_listener_of_events_raises_harms_nobody(namesrv, caplog):
    def broken(event):
        raise KeyError("broken")

    with caplog.at_level(logging.ERROR, "mqcore.client"), \
            Producer("p", namesrv=namesrv, on_event=broken) as producer:
        assert producer.send(Message("events", "x")).status.name == "SEND_OK"
    assert "on_event failed for Connected" in caplog.text
    with pytest.raises(ConfigError, match="on_event 5: expected a function"):
        Producer("p", on_event=5)
