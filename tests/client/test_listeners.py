"""What consumers refuse to be told, and how listeners of every form are called."""
from __future__ import annotations

import asyncio
import functools
import threading
from datetime import datetime

import pytest

from mqcore.client import (
    AsyncConsumer,
    AsyncLitePullConsumer,
    AsyncPushConsumer,
    ClientError,
    ConfigError,
    Consumer,
    ConsumeStatus,
    LitePullConsumer,
    PullConsumer,
    PushConsumer,
    Reject,
    Retry,
    Sql92,
)
from mqcore.client.consume.hooked import HookedCall
from mqcore.client.consume.listener import ListenerCall
from mqcore.client.consume.threads import ListenerThreads
from mqcore.client.hooks import Hooks
from mqcore.client.message import MessageQueue
from mqcore.client.received import ReceivedMessage
from tests.client.test_received import record_with

QUEUE = MessageQueue("T", "broker-a", 0)
MESSAGE = ReceivedMessage.from_record(record_with(), QUEUE)


async def one(message):
    return None


@pytest.mark.parametrize(("options", "expected"), [
    ({"concurrency": 0}, "concurrency 0: expected a whole number, 1 to 1000"),
    ({"batch": 2}, "batch 2: expected 1 for listener one, which takes one message"),
    ({"batch": True}, "batch True"),
    ({"start": "middle"}, 'start \'middle\': expected "earliest", "latest", a datetime'),
    ({"max_retries": -2}, "max_retries -2"),
    ({"handler_timeout": 0}, "handler_timeout 0: expected seconds above 0"),
    ({"queue_span_max": 70_000}, "queue_span_max 70000"),
    ({"topic_count_max": 0}, "topic_count_max 0"),
    ({"allocate": "AVG"}, "allocate 'AVG': expected a strategy"),
    ({"filter": " || "}, "filter ' || ' of T: tag expression"),
    ({"filter": Sql92("")}, "SQL92 expression: expected text"),
    ({"concurency": 5}, "option 'concurency' is unknown: did you mean concurrency?"),
    ({"namesrv": "nowhere"}, "address 'nowhere': expected host:port"),
    ({"run_in_thread": True}, "run_in_thread: listener one is a coroutine function"),
])
def test_an_option_that_cannot_be_is_named(options, expected):
    with pytest.raises(ConfigError) as error:
        AsyncPushConsumer("G", "T", one, **options)
    assert expected in str(error.value)
    assert isinstance(error.value, ValueError)


def test_groups_topics_and_listeners_are_checked():
    with pytest.raises(ConfigError, match="another name than Java's default"):
        AsyncPushConsumer("DEFAULT_CONSUMER", "T", one)
    with pytest.raises(ConfigError, match="topic 'a b'"):
        AsyncPushConsumer("G", ["T", "a b"], one)
    with pytest.raises(ConfigError, match="expected a function"):
        AsyncPushConsumer("G", "T", 5)
    with pytest.raises(ConfigError, match="run_in_thread=True"):
        AsyncPushConsumer("G", "T", lambda message: None)
    with pytest.raises(ConfigError, match="expected parameters"):
        PushConsumer("G", "T", lambda a, b, c: None)
    with pytest.raises(ConfigError, match="auto_commit_interval"):
        AsyncLitePullConsumer("G", auto_commit_interval=0.5)
    with pytest.raises(ConfigError, match="did you mean start"):
        AsyncConsumer("G", "T", strat="first")
    with pytest.raises(ConfigError, match="delay_level"):
        Retry(19)
    PushConsumer("G", "T", print, start=datetime(2026, 1, 1))


def test_topics_are_needed_at_the_start():
    async def scenario():
        with pytest.raises(ConfigError, match="topics"):
            await AsyncPushConsumer("G", [], one, namesrv="127.0.0.1:1").start()
        with pytest.raises(ClientError, match="subscribe to a topic"):
            await AsyncLitePullConsumer("G", namesrv="127.0.0.1:1").start()

    asyncio.run(scenario())


class Callable:
    async def __call__(self, message):
        return ConsumeStatus.RECONSUME_LATER


def raising(error):
    async def listener(message):
        raise error
    return listener


async def asks_for_two(messages, context):
    context.delay_level = 4
    context.ack_count = 0
    return ConsumeStatus.SUCCESS


async def cancelled_inside(message):
    task = asyncio.create_task(asyncio.sleep(9))
    task.cancel()
    await task


@pytest.mark.parametrize(("listener", "success", "level"), [
    (one, True, 0), (Callable(), False, 0), (functools.partial(one), True, 0),
    (raising(Retry(3)), False, 3), (raising(Reject()), False, -1),
    (raising(KeyError("x")), False, 0), (asks_for_two, True, 4), (cancelled_inside, False, 0),
])
def test_listeners_of_every_form_end_in_an_outcome(listener, success, level):
    call = ListenerCall(listener, batch=1, in_thread=False)
    outcome = asyncio.run(call.call([MESSAGE], QUEUE))

    assert (outcome.is_success, outcome.delay_level) == (success, level)
    assert outcome.accepted == (None if success and listener is not asks_for_two else 0) or (
        outcome.status is ConsumeStatus.RECONSUME_LATER)


def test_a_thread_s_listener_may_raise_anything():
    def leaves(message):
        raise SystemExit(3)

    call = ListenerCall(leaves, batch=1, in_thread=True)
    assert not call.call_here([MESSAGE], QUEUE).is_success


def test_a_hanging_thread_is_replaced_and_others_are_reused():
    hang = threading.Event()

    async def scenario():
        threads = ListenerThreads(1)
        stuck = asyncio.create_task(threads.run(lambda: hang.wait(30)))
        await asyncio.sleep(0)
        waits = asyncio.create_task(threads.run(threading.get_ident))
        await asyncio.sleep(0.05)
        assert not waits.done()
        threads.allow_more()
        first = await threads.run(threading.get_ident)
        assert await waits in (first, await threads.run(threading.get_ident))
        hang.set()
        assert await stuck
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        threads.close()

    asyncio.run(scenario())


def test_a_consumer_without_a_start_says_so():
    async def scenario():
        with pytest.raises(ClientError, match="not started"):
            await AsyncConsumer("G", "T", namesrv="127.0.0.1:1").receive(timeout=0.1)

    asyncio.run(scenario())
    with pytest.raises(ClientError, match="not started"):
        PushConsumer("G", "T", print, namesrv="127.0.0.1:1").reset_offsets(0.0)


def test_a_call_without_hooks_costs_nothing_for_them(monkeypatch):
    hooks, made = Hooks("G", ""), []
    call = HookedCall(ListenerCall(one, batch=1, in_thread=False), hooks, "G", "", 900.0)
    before = HookedCall._before
    monkeypatch.setattr(HookedCall, "_before", lambda *args: made.append(args) or before(*args))

    class Looks:
        def before_consume(self, context):
            return None

    asyncio.run(call.call([MESSAGE], QUEUE))
    assert made == []
    hooks.add(Looks())
    asyncio.run(call.call([MESSAGE], QUEUE))
    assert len(made) == 1


@pytest.mark.parametrize("make", [
    lambda group, **options: PushConsumer(group, "T", print, **options),
    lambda group, **options: Consumer(group, "T", **options),
    lambda group, **options: LitePullConsumer(group, **options),
    lambda group, **options: PullConsumer(group, **options),
])
def test_a_group_whose_retry_topic_no_broker_takes_is_refused(make):
    make("g" * 120, namesrv="h:1")
    make("g" * 116, namesrv="h:1", namespace="abc")
    for group, options in (("g" * 121, {}), ("g" * 255, {}), ("g" * 117, {"namespace": "abc"})):
        with pytest.raises(ConfigError, match="expected at most 120 characters"):
            make(group, namesrv="h:1", **options)
