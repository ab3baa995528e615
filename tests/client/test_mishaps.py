"""What applications' code and peers do that nobody expects: every message keeps its outcome, every
call ends, and nobody else is harmed."""
from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest

from mqcore.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConfigError,
    ConsumeStatus,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    RequestTimeout,
    RocketMQError,
)
from mqcore.client.errors import send_error
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import response
from tests.client.fake_broker import fake_cluster
from tests.client.threads import cluster_thread
from tests.namesrv.harness import settings_in
from tests.support.waiting import wait_until_async

LONG_S = 20


class Stop(BaseException):
    """As those that test frameworks and greenlets raise."""


def run_on(tmp_path, scenario, *names):
    async def run():
        async with fake_cluster(settings_in(tmp_path), *names) as (address, brokers):
            for broker in brokers:
                await broker.create("T")
            await asyncio.wait_for(scenario(address, brokers), 60)
    asyncio.run(run())


# -- producers ------------------------------------------------------------------------------------


def raises(error):
    def callback(*_):
        raise error
    return callback


class Hook:
    def __init__(self, error):
        self.after_send = raises(error)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Stop()], ids=repr)
def test_what_a_callback_raises_ends_no_thread_that_others_use(tmp_path, error):
    with (cluster_thread(tmp_path) as (address, _),
          Producer("PG", namesrv=address, on_event=raises(error)) as producer,
          Producer("OTHER", namesrv=address) as other):
        called = threading.Event()
        producer.send_soon(Message("T", "a"), on_done=lambda _: called.set() or raises(error)())
        assert called.wait(LONG_S)
        producer.add_hook(Hook(error))
        with pytest.raises(RocketMQError, match="selector"):
            producer.send(Message("T", "b"), selector=raises(error), timeout=LONG_S)
        assert producer.send(Message("T", "c"), timeout=LONG_S).message_id
        assert other.send(Message("T", "d"), timeout=LONG_S).message_id
        assert producer._role._sender.room.count == 0


def late(message, flag):
    message.flag = flag
    return message


@pytest.mark.parametrize(("message", "options"), [
    (late(Message("T", "x"), 1 << 31), {}), (late(Message("T", "x"), "a"), {}),
    (Message("T", "x"), {"queue": MessageQueue("T", "broker-a", 1 << 31)}),
    (Message("T", "x"), {"queue": MessageQueue("T", "broker-a", "x")}),
    (Message("T", "x"), {"queue": MessageQueue("T", "broker-a", -1)}),
    (Message("T", "x"), {"shard": 10 ** 5000}), (Message("T", "x"), {"shard": object()}),
    (Message("T", "x"), {"selector": lambda *_: []}),
])
def test_a_message_that_cannot_be_sent_ends_in_an_error(tmp_path, message, options):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address) as producer:
            with pytest.raises(ConfigError):
                await producer.send(message, timeout=LONG_S, **options)
            assert producer._sender.room.count == 0
            await producer.send(Message("T", "y"))
    run_on(tmp_path, scenario)


@pytest.mark.parametrize("offset", ["9" * 5000, "9" * 20, "-1", "١", ""])
def test_an_answer_with_an_impossible_offset_is_no_answer_to_wait_for(tmp_path, offset):
    async def scenario(address, brokers):
        async def store(command, items):
            return response(command, 0, ext={"msgId": "0A" * 16, "queueId": "0",
                                             "queueOffset": offset})
        brokers[0].store = store
        async with AsyncProducer("PG", namesrv=address, retry_count=0) as producer:
            with pytest.raises(RocketMQError) as error:
                await producer.send(Message("T", "x"), timeout=LONG_S)
            assert error.value.stored is not False
            assert producer._sender.room.count == 0
    run_on(tmp_path, scenario)


@pytest.mark.parametrize("host", ["a" * 70, "é" * 70, ".."])
def test_a_route_to_no_host_is_an_error_of_the_client(tmp_path, host):
    async def scenario(address, brokers):
        brokers[0].address = f"{host}:10911"
        await brokers[0].register()
        async with AsyncProducer("PG", namesrv=address, retry_count=0) as producer:
            for send in (producer.send(Message("T", "x"), timeout=5),
                         producer.send_many([Message("T", "x")], timeout=5),
                         producer.send_oneway(Message("T", "x"), timeout=5)):
                with pytest.raises(RocketMQError) as error:
                    await send
                assert "closed" not in str(error.value)
            assert producer._sender.room.count == 0
    run_on(tmp_path, scenario)


def test_a_message_that_lingers_beside_a_patient_one_keeps_its_time(tmp_path):
    async def scenario(address, brokers):
        brokers[0].silent |= {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
        async with AsyncProducer("PG", namesrv=address, linger=0.02, topics=["T"],
                                 retry_count=0) as producer:
            patient = producer.send_soon(Message("T", "a"), timeout=40)
            began = time.monotonic()
            with pytest.raises(RequestTimeout):
                await producer.send(Message("T", "b"), timeout=0.5)
            assert time.monotonic() - began < LONG_S
            patient.cancel()
            await producer.close(0.1)
    run_on(tmp_path, scenario)


def test_a_request_s_time_holds_for_all_of_it(tmp_path):
    async def scenario(address, brokers):
        brokers[0].silent.add(RequestCode.HEART_BEAT)
        async with AsyncProducer("PG", namesrv=address, call_timeout=40) as producer:
            began = time.monotonic()
            with pytest.raises(RequestTimeout) as raised:
                await producer.request(Message("T", "a"), timeout=0.2)
            assert time.monotonic() - began < LONG_S
            assert raised.value.stored is False
            assert raised.value.topic == "T"
    run_on(tmp_path, scenario)


@pytest.mark.parametrize(("code", "remark", "stored"), [
    (ResponseCode.SYSTEM_ERROR, "", None), (ResponseCode.SYSTEM_BUSY, "[OVERLOAD]", False),
    (ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy", None),
    (ResponseCode.SYSTEM_BUSY, "[PCBUSY_CLEAN_QUEUE]broker busy", None),
    (ResponseCode.MESSAGE_ILLEGAL, "", False), (ResponseCode.TOPIC_NOT_EXIST, "", False),
    (ResponseCode.SERVICE_NOT_AVAILABLE, "", False), (ResponseCode.TRANSACTION_FAILED, "", None),
    (999, "of a later version", None),
])
def test_only_codes_from_before_the_write_say_that_a_message_is_not_stored(code, remark, stored):
    assert send_error(int(code), remark, "h:1", "T").stored is stored


# -- consumers ------------------------------------------------------------------------------------


def fails_first(how):
    """A listener whose first call fails as `how` says; what it was called with and did."""
    called, done = [], []

    async def listener(messages, context):
        called.extend(message.text() for message in messages)
        if len(called) == len(messages):
            return how(context)
        done.extend(message.text() for message in messages)
        return None

    return listener, called, done


def refuses_with(**fields):
    def how(context):
        for name, value in fields.items():
            setattr(context, name, value)
        return ConsumeStatus.RECONSUME_LATER
    return how


FAILURES = [raises(Stop()), refuses_with(suspend=timedelta(seconds=1)),
            refuses_with(delay_level="3"), refuses_with(ack_count="1")]
IDS = ["BaseException", "suspend", "delay_level", "ack_count"]


@pytest.mark.parametrize("how", FAILURES, ids=IDS)
def test_an_orderly_message_whose_call_failed_is_not_committed_by_the_next_one(tmp_path, how):
    async def scenario(address, brokers):
        listener, called, done = fails_first(how)
        for body in (b"0", b"1", b"2"):
            brokers[0].append("T", 0, body, {})
        async with AsyncPushConsumer("G", "T", listener, namesrv=address, start="earliest",
                                     orderly=True, suspend=0.05, persist_interval=0.1):
            await wait_until_async(lambda: len(done) == 3, LONG_S)
            await wait_until_async(lambda: brokers[0].committed.get(("G", "T", 0)) == 3, LONG_S)
        assert (called, done) == (["0", "0", "1", "2"], ["0", "1", "2"])
    run_on(tmp_path, scenario)


@pytest.mark.parametrize("how", FAILURES, ids=IDS)
def test_a_message_whose_call_failed_is_sent_back_and_the_offset_goes_on(tmp_path, how):
    async def scenario(address, brokers):
        listener, _, done = fails_first(how)
        for number in range(8):
            brokers[0].append("T", 0, f"{number}".encode(), {})
        async with AsyncPushConsumer("G", "T", listener, namesrv=address, start="earliest", batch=4,
                                     concurrency=2, persist_interval=0.1):
            await wait_until_async(lambda: done.count("again") == 4, LONG_S)
            await wait_until_async(lambda: brokers[0].committed.get(("G", "T", 0)) == 8, LONG_S)
        assert sorted(done) == ["4", "5", "6", "7", *["again"] * 4]
    run_on(tmp_path, scenario)


def test_what_a_thread_did_before_a_call_that_hangs_is_done(tmp_path):
    hanging, end = threading.Event(), threading.Event()

    def listener(message):
        if message.text() == "1":
            hanging.set()
            end.wait(LONG_S)

    with cluster_thread(tmp_path) as (address, (broker,)):
        with Producer("PG", namesrv=address) as producer:
            for number in range(3):
                producer.send(Message("T", f"{number}"), shard=0)
        try:
            with PushConsumer("G", "T", listener, namesrv=address, start="earliest", concurrency=1,
                              handler_timeout=0.5, persist_interval=0.1):
                assert hanging.wait(LONG_S)
                until = time.monotonic() + LONG_S
                while broker.committed.get(("G", "T", 0)) != 3 and time.monotonic() < until:
                    end.wait(0.02)
                assert broker.committed.get(("G", "T", 0)) == 3
                end.set()
        finally:
            end.set()
