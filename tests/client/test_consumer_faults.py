"""Consumers while brokers refuse, go and come back, and while others take what was theirs."""
from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time

import pytest

from mqcore.client import (
    AsyncProducer,
    AsyncPushConsumer,
    Consumer,
    Message,
    PushConsumer,
    Retry,
)
from mqcore.client.consume import member
from mqcore.client.core import redelivery
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.records import decode_record
from tests.client.fake_broker import fake_cluster
from tests.interop.ask import ask
from tests.namesrv.harness import settings_in
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up
from tests.support.stock import free_broker_port
from tests.support.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.timeout(300)

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SEND = RequestCode.SEND_MESSAGE_V2


def with_fakes(tmp_path, scenario, *names):
    async def run():
        async with fake_cluster(settings_in(tmp_path), *names) as (address, brokers):
            await scenario(address, brokers)
    asyncio.run(run())


def create(broker, topic, queues):
    answer = ask(broker.broker_addr, 17, {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues),
        "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false"})
    assert answer.code == 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with mqcore_up(tmp_path_factory.mktemp("broker"), {}) as running:
        yield running


# -- what comes again ------------------------------------------------------------------------------


def test_a_refused_send_back_becomes_a_copy_in_the_retry_topic(tmp_path):
    async def scenario(address, brokers):
        tries = []

        async def listen(message):
            tries.append((message.body, message.topic, message.properties.get("KEYS")))
            if len(tries) == 1:
                raise Retry
        async with AsyncProducer("PG", namesrv=address) as producer:
            sent = await producer.send(Message("T", "x", keys="k", tags="A"))
            brokers[0].answers[BACK] = [ResponseCode.SYSTEM_ERROR]
            async with AsyncPushConsumer("CG", "T", listen, namesrv=address, start="earliest",
                                         max_retries=7):
                await wait_until_async(lambda: len(tries) == 2, "two tries")
        assert tries == [(b"x", "T", "k")] * 2
        copy = next(c for c in brokers[0].requests if c.code == SEND and c.ext["b"] == "%RETRY%CG")
        assert (copy.ext["j"], copy.ext["l"]) == ("1", "7")
        stored = decode_record(brokers[0].queues[("%RETRY%CG", int(copy.ext["e"]))][0])
        assert stored.properties["RETRY_TOPIC"] == "T"
        assert stored.properties["ORIGIN_MESSAGE_ID"] == sent.message_id
        assert stored.properties["DELAY"] == "3"
    with_fakes(tmp_path, scenario)


def test_a_copy_that_others_do_not_have_yet_is_stored_and_sent_once(tmp_path, monkeypatch):
    monkeypatch.setattr(redelivery, "RESUBMIT_S", 0.1)

    async def scenario(address, brokers):
        tries = []

        async def listen(message):
            tries.append(message.queue_offset)
            raise Retry
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T", "x"))
        brokers[0].answers[BACK] = [ResponseCode.SYSTEM_ERROR]
        brokers[0].answers[SEND] = [ResponseCode.SLAVE_NOT_AVAILABLE]
        async with AsyncPushConsumer("CG", "T", listen, namesrv=address, start="first"):
            await wait_until_async(lambda: sum(
                offset for key, offset in brokers[0].committed.items() if key[1] == "T") == 1,
                "a commit")
        assert tries == [0]
    with_fakes(tmp_path, scenario)


def test_what_no_broker_takes_back_comes_again_here_and_is_not_committed(tmp_path, monkeypatch):
    monkeypatch.setattr(redelivery, "RESUBMIT_S", 0.1)

    async def scenario(address, brokers):
        tries = []

        async def listen(message):
            tries.append((message.queue_offset, message.reconsume_times))
            if len(tries) < 3:
                assert brokers[0].committed.get(("CG", "T", message.queue.queue_id), 0) == 0
                raise RuntimeError("not yet")
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T", "x"))
        brokers[0].answers[BACK] = [ResponseCode.SYSTEM_ERROR] * 2
        brokers[0].answers[SEND] = [ResponseCode.SYSTEM_ERROR] * 2
        async with AsyncPushConsumer("CG", "T", listen, namesrv=address, start="earliest"):
            await wait_until_async(lambda: len(tries) == 3, "three tries")
        assert tries == [(0, 0), (0, 1), (0, 2)]
        assert sum(offset for key, offset in brokers[0].committed.items() if key[1] == "T") == 1
    with_fakes(tmp_path, scenario)


def test_a_thread_that_hangs_keeps_neither_its_message_nor_others(broker, caplog):
    create(broker, "hang", 1)
    hang = threading.Event()
    seen = []

    def listen(message):
        seen.append((message.body, message.reconsume_times))
        if message.body == b"0" and message.reconsume_times == 0:
            hang.wait(60)

    async def send():
        async with AsyncProducer("PG", namesrv=broker.namesrv_addr) as producer:
            for n in range(5):
                await producer.send(Message("hang", str(n)))
    asyncio.run(send())
    with caplog.at_level(logging.WARNING, "mqcore.client"), PushConsumer(
            "CG-hang", "hang", listen, namesrv=broker.namesrv_addr, start="earliest", concurrency=1,
            handler_timeout=0.5):
        wait_until(lambda: len(seen) >= 5, "the others")
        assert {body for body, _ in seen} == {b"0", b"1", b"2", b"3", b"4"}
        wait_until(lambda: "for more than 0.5 s" in caplog.text, "a warning")
        hang.set()


# -- the end ---------------------------------------------------------------------------------------


def test_a_close_waits_for_listeners_and_commits_what_they_did(broker):
    create(broker, "close", 1)
    begun, finished = threading.Event(), []

    def listen(message):
        begun.set()
        threading.Event().wait(0.5)
        finished.append(message.queue_offset)

    async def send():
        async with AsyncProducer("PG", namesrv=broker.namesrv_addr) as producer:
            for n in range(50):
                await producer.send(Message("close", str(n)))
    asyncio.run(send())
    consumer = PushConsumer("CG-close", "close", listen, namesrv=broker.namesrv_addr,
                            start="earliest", concurrency=2)
    consumer.start()
    assert begun.wait(30)
    consumer.close()
    done = len(finished)
    assert 0 < done < 10
    answer = ask(broker.broker_addr, 14,
                 {"consumerGroup": "CG-close", "topic": "close", "queueId": "0"})
    assert int(answer.ext["offset"]) == done
    consumer.close()
    assert len(finished) == done


def test_a_close_does_not_wait_longer_than_it_may(broker, caplog):
    create(broker, "slow", 1)
    begun = threading.Event()

    async def listen(message):
        begun.set()
        await asyncio.sleep(60)

    async def scenario():
        async with AsyncProducer("PG", namesrv=broker.namesrv_addr) as producer:
            await producer.send(Message("slow", "x"))
        consumer = AsyncPushConsumer("CG-slow", "slow", listen, namesrv=broker.namesrv_addr,
                                     start="earliest")
        await consumer.start()
        await wait_until_async(begun.is_set, "a call")
        started = time.monotonic()
        await consumer.close(1.0)
        assert time.monotonic() - started < 5

    with caplog.at_level(logging.WARNING, "mqcore.client"):
        asyncio.run(scenario())
    assert "not everything was finished within 1.0 s" in caplog.text


def test_many_lives_in_one_process_leave_no_thread_and_no_socket(broker):
    create(broker, "lives", 1)

    def life(number):
        with Consumer("CG-lives", "lives", namesrv=broker.namesrv_addr) as consumer:
            assert consumer.receive(timeout=0.01) == []

    def listener_threads():
        return [one for one in threading.enumerate() if one.name.startswith("mqcore-listener")]

    for number in range(3):
        life(number)
    files = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        life(number)
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files, "no more open files")
    with PushConsumer("CG-lives", "lives", print, namesrv=broker.namesrv_addr):
        pass
    wait_until(lambda: not listener_threads(), "no thread of listeners")


RUNS = """
import sys
from mqcore.client import PushConsumer

def handle(message):
    print(message.text(), flush=True)

PushConsumer("CG-run", "runs", handle, start="earliest", namesrv=sys.argv[1]).run()
print("closed", flush=True)
"""
RUNS_ASYNC = """
import asyncio, sys
from mqcore.client import AsyncPushConsumer

async def handle(message):
    print(message.text(), flush=True)

async def main():
    await AsyncPushConsumer("CG-run", "runs", handle, start="earliest", namesrv=sys.argv[1]).run()
    print("closed", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("program", [RUNS, RUNS_ASYNC])
def test_a_running_consumer_ends_well_by_a_signal(broker, program):
    create(broker, "runs", 1)

    async def send():
        async with AsyncProducer("PG", namesrv=broker.namesrv_addr) as producer:
            await producer.send(Message("runs", "hello"))
    asyncio.run(send())
    with subprocess.Popen([sys.executable, "-c", program, broker.namesrv_addr],
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "hello\n"
        process.terminate()
        assert process.communicate(timeout=30)[0] == "closed\n"
    assert process.returncode == 0
    answer = ask(broker.broker_addr, 14,
                 {"consumerGroup": "CG-run", "topic": "runs", "queueId": "0"})
    assert int(answer.ext["offset"]) == int(ask(
        broker.broker_addr, 30, {"topic": "runs", "queueId": "0"}).ext["offset"])


def test_two_members_with_one_id_are_warned_of(broker, caplog):
    create(broker, "twins", 1)
    options = {"namesrv": broker.namesrv_addr, "instance_name": "twin"}
    with caplog.at_level(logging.WARNING, "mqcore.client"):
        with Consumer("CG-twins", "twins", **options):
            assert "used twice" not in caplog.text
            with Consumer("CG-twins", "twins", **options):
                assert "used twice in group CG-twins" in caplog.text
        caplog.clear()
        with Consumer("CG-twins", "twins", **options):
            assert "used twice" not in caplog.text


# -- brokers that change ---------------------------------------------------------------------------


def test_a_broker_that_comes_back_is_consumed_from_on(tmp_path):
    seen = []

    async def listen(message):
        seen.append(message.body)

    async def send(name_server, first):
        async with AsyncProducer("PG", namesrv=name_server) as producer:
            for n in range(first, first + 20):
                await producer.send(Message("again", str(n)))

    async def scenario(name_server):
        settings = {"broker.listen_port": free_broker_port()}
        consumer = AsyncPushConsumer("CG-again", "again", listen, namesrv=name_server,
                                     start="earliest")
        with mqcore_up(tmp_path / "b", settings, namesrv_addr=name_server) as first:
            create(first, "again", 4)
            await send(name_server, 0)
            await consumer.start()
            await wait_until_async(lambda: len(seen) == 20, "the first twenty")
            await asyncio.sleep(0)
        with mqcore_up(tmp_path / "b", settings, namesrv_addr=name_server):
            await send(name_server, 20)
            await wait_until_async(lambda: len(set(seen)) == 40, "all forty")
            await consumer.close()

    with mqcore_namesrv(tmp_path / "ns") as running:
        asyncio.run(scenario(running.namesrv_addr))


def test_queues_that_are_added_are_consumed(broker, monkeypatch):
    monkeypatch.setattr(member, "REBALANCE_S", 0.3)
    create(broker, "grows", 1)

    async def listen(message):
        return None

    async def scenario():
        async with AsyncPushConsumer("CG-grows", "grows", listen, namesrv=broker.namesrv_addr,
                                     route_interval=0.3) as consumer:
            def held():
                return [q.queue_id for q in consumer.assignment if q.topic == "grows"]
            await wait_until_async(lambda: held() == [0], "one queue")
            await asyncio.to_thread(create, broker, "grows", 4)
            await wait_until_async(lambda: held() == [0, 1, 2, 3], "four queues")

    asyncio.run(scenario())


def test_a_lock_that_another_member_took_is_noticed_and_nothing_is_committed_over_it(
    broker, monkeypatch, caplog,
):
    monkeypatch.setattr(member, "RENEW_S", 0.2)
    create(broker, "locked", 1)
    seen = []

    async def listen(message):
        seen.append(message.body)

    def lock_body(client, consumer):
        return fastjson.dumps({"clientId": client, "consumerGroup": "CG-locked", "mqSet": [
            {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
            for queue in consumer.assignment if queue.topic == "locked"]})

    async def scenario():
        async with AsyncProducer("PG", namesrv=broker.namesrv_addr) as producer, AsyncPushConsumer(
                "CG-locked", "locked", listen, orderly=True, start="earliest",
                namesrv=broker.namesrv_addr) as consumer:
            await producer.send(Message("locked", "a"))
            await wait_until_async(lambda: seen == [b"a"], "a message")
            ours, theirs = (lock_body(name, consumer) for name in (consumer.client_id, "other"))
            taken = await asyncio.to_thread(_steal, broker, ours, theirs)
            assert taken
            await wait_until_async(lambda: not any(
                queue.topic == "locked" for queue in consumer.assignment), "no queue")
            await producer.send(Message("locked", "b"))
            assert seen == [b"a"]
            assert ask(broker.broker_addr, 42, {}, theirs).code == 0
            await wait_until_async(lambda: b"b" in seen, "the queue again")
            assert seen in ([b"a", b"b"], [b"a", b"a", b"b"])

    with caplog.at_level(logging.WARNING, "mqcore.client"):
        asyncio.run(scenario())
    assert "the lock of" in caplog.text


def _steal(broker, ours, theirs):
    """Unlock for the member, and lock for another one before it renews."""
    for _ in range(50):
        ask(broker.broker_addr, 42, {}, ours)
        answer = ask(broker.broker_addr, 41, {}, theirs)
        if fastjson.loads(answer.body)["lockOKMQSet"]:
            return True
    return False

