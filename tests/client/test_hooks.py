"""Hooks and trace messages of consumers that are no push consumers, and of whole calls."""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from itertools import count

import pytest

from mqcore.client import (
    Admin,
    AsyncProducer,
    CallResult,
    ConfigError,
    Consumer,
    LitePullConsumer,
    Message,
    MessageQueue,
    NoRouteError,
    Producer,
    PullConsumer,
    PushConsumer,
    QueueFull,
    add_hook,
    remove_hook,
)
from mqcore.testing import MemoryBroker
from tests.support.waiting import wait_until

TRACES = "traces"
numbers = count()


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with MemoryBroker() as broker, Admin(broker.namesrv) as admin:
        admin.create_topic(TRACES, queues=1)
        yield broker.namesrv


@pytest.fixture
def topic(namesrv) -> str:
    name = f"hooked{next(numbers)}"
    with Admin(namesrv) as admin:
        admin.create_topic(name, queues=1)
    return name


class Looks:
    """Notes each call; drops messages whose body is b"drop"."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def note(self, name, context) -> None:
        self.seen.append((name, context.operation, b"".join(m.body for m in context.messages),
                          context.result))

    def before_consume(self, context) -> None:
        self.note("before", context)

    def after_consume(self, context) -> None:
        self.note("after", context)

    @contextlib.contextmanager
    def consuming(self, context) -> Iterator[None]:
        self.note("enter", context)
        yield
        self.note("exit", context)

    def filter_messages(self, context) -> None:
        context.messages[:] = [m for m in context.messages if m.body != b"drop"]


def send(namesrv: str, topic: str, *bodies: str) -> None:
    with Producer("p", namesrv=namesrv) as producer:
        for body in bodies:
            producer.send(topic, body)


def test_of_one_s_own_loop(namesrv, topic):
    send(namesrv, topic, "a", "drop", "b", "c")
    looks = Looks()
    consumer = Consumer(f"g-{topic}", topic, namesrv=namesrv, start="earliest", ack="manual")
    consumer.add_hook(looks)
    with consumer:
        (message,) = consumer.receive(1)
        with message.processing():
            assert looks.seen[-1] == ("enter", "process", b"a", None)
        consumer.receive(1)[0].retry()
        consumer.receive(1)                             # neither acked nor refused: closed
    assert looks.seen == [
        ("before", "process", b"a", None), ("enter", "process", b"a", None),
        ("exit", "process", b"a", None), ("after", "process", b"a", CallResult.SUCCESS),
        ("before", "process", b"b", None), ("after", "process", b"b", CallResult.FAILED),
        ("before", "process", b"c", None), ("after", "process", b"c", CallResult.FAILED)]


def test_of_a_message_that_is_out_too_long(namesrv, topic):
    send(namesrv, topic, "a")
    looks = Looks()
    consumer = Consumer(f"g-{topic}", topic, namesrv=namesrv, start="earliest", ack="manual",
                        handler_timeout=0.5)
    consumer.add_hook(looks)
    with consumer:
        message = next(consumer)
        wait_until(lambda: len(looks.seen) == 2, "its time is over")
        message.ack()
    assert looks.seen[-1] == ("after", "process", b"a", CallResult.TIME_OUT)


def test_of_polls_and_pulls(namesrv, topic):
    send(namesrv, topic, "a", "drop", "b")
    polled, pulled = Looks(), Looks()
    lite = LitePullConsumer(f"lite-{topic}", namesrv=namesrv, start="earliest")
    lite.add_hook(polled)
    lite.subscribe(topic)
    with lite:
        messages = lite.poll(timeout=30)
        (queue,) = lite.assignment()
        lite.commit_sync()
        assert lite.committed(queue) == 3           # what a hook takes out is done
    puller = PullConsumer(f"pull-{topic}", namesrv=namesrv)
    puller.add_hook(pulled)
    with puller:
        result = puller.pull(messages[0].queue, 0)

    told = [("before", "receive", b"ab", None), ("after", "receive", b"ab", CallResult.SUCCESS)]
    assert [message.body for message in messages] == [b"a", b"b"]
    assert [message.body for message in result.messages] == [b"a", b"b"]
    assert polled.seen == pulled.seen == told


def test_of_a_listener(namesrv, topic):
    send(namesrv, topic, "a")
    looks = Looks()
    inside = []
    consumer = PushConsumer(f"g-{topic}", topic, lambda message: inside.append(looks.seen[-1][0]),
                            namesrv=namesrv, start="earliest")
    consumer.add_hook(looks)
    with consumer:
        wait_until(lambda: len(looks.seen) == 4, "it was called")
    assert inside == ["enter"]
    assert [name for name, *_ in looks.seen] == ["before", "enter", "exit", "after"]


class Calls:
    """Sets a property of every message, and notes how calls end."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, object, object]] = []

    def begin_send(self, call) -> None:
        for message in call.messages:
            message.set_property("mark", "set")

    def end_send(self, call) -> None:
        self.ended.append((len(call.messages), call.result, call.error))


def test_of_whole_calls_of_every_producer(namesrv, topic):
    calls = Calls()
    add_hook(calls)
    try:
        with Producer("p", namesrv=namesrv, linger=0.01, trace=True, trace_topic=TRACES,
                      max_in_flight=5) as producer:
            producer.send(Message(topic, "a"))
            producer.send_many([Message(topic, "b"), Message(topic, "c", delay_level=1)])
            producer.send_oneway(topic, "d")
            producer.flush(5)
            assert producer._role._sender.room.try_take(0, 5)
            with pytest.raises(QueueFull):
                producer.send_soon(topic, "e", timeout=0.01)
            producer._role._sender.room.give(0, 5)
    finally:
        remove_hook(calls)
    send(namesrv, topic, "unseen")

    assert [count for count, *_ in calls.ended] == [1, 2, 1, 1]
    assert calls.ended[0][1].status.name == "SEND_OK"
    assert isinstance(calls.ended[3][2], QueueFull)
    with Consumer(f"g-{topic}", topic, namesrv=namesrv, start="earliest") as consumer:
        marks = {m.text(): m.properties.get("mark") for m in (next(consumer) for _ in range(4))}
    assert marks == {"a": "set", "b": "set", "d": "set", "unseen": None}
    with pytest.raises(ConfigError, match="expected one that was added"):
        remove_hook(calls)
    with pytest.raises(ConfigError, match="expected one of the methods"):
        add_hook(5)


def test_calls_that_are_cancelled_or_send_nothing_have_an_end(namesrv, topic):
    calls = Calls()

    async def scenario():
        async with AsyncProducer("p", namesrv=namesrv, max_in_flight=1) as producer:
            producer.add_hook(calls)
            assert await producer.send_many([]) == []
            assert producer._sender.room.try_take(0)
            waiting = asyncio.create_task(producer.send(topic, "a"))
            await asyncio.sleep(0)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
            producer._sender.room.give(0)
            with pytest.raises(NoRouteError):
                await producer.send_oneway(
                    Message(topic, "b"), queue=MessageQueue(topic, "nobody", 0))

    asyncio.run(scenario())
    cancelled, refused = calls.ended
    assert cancelled == (1, None, None)
    assert isinstance(refused[2], NoRouteError)


def test_trace_messages_of_every_consumer(namesrv, topic):
    send(namesrv, topic, "x")
    options = {"namesrv": namesrv, "trace": True, "trace_topic": TRACES}
    with Consumer(f"own-{topic}", topic, start="earliest", **options) as consumer:
        message = next(consumer)
    lite = LitePullConsumer(f"lite-{topic}", start="earliest", **options)
    lite.subscribe(topic)
    with lite:
        assert len(lite.poll(timeout=30)) == 1
    with PullConsumer(f"pull-{topic}", **options) as puller:
        puller.pull(message.queue, message.queue_offset)

    said = ""
    with Consumer(f"g-{topic}", TRACES, namesrv=namesrv, start="earliest") as consumer:
        while not all(said.count(f"{kind}-{topic}") == 2 for kind in ("own", "lite", "pull")):
            said += next(consumer).text()               # before and after, of each
    assert said.count(message.message_id) == 6
