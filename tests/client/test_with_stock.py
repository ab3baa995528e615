"""Our name server and our client around an unmodified stock broker."""
import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

import mqcore
from mqcore.client import AsyncProducer, AsyncPushConsumer, ConsumeStatus, Message
from tests.support.stock import require_stock, start_broker
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.interop
ROOT = Path(mqcore.__file__).parent.parent


@contextlib.contextmanager
def name_server_process(folder):
    """A name server of ours in a process of its own; yields its address."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from mqcore.namesrv.settings import NamesrvSettings\n"
        "from mqcore.namesrv.server import open_sockets\n"
        "from workers.namesrv import run\n"
        "s = NamesrvSettings(listen_host='127.0.0.1', listen_port=0,"
        " kv_config_path=sys.argv[1] + '/kv.json', runtime_config_path=sys.argv[1] + '/run.json')\n"
        "sockets = open_sockets(s)\n"
        "run(s, sockets, ready_callback=lambda: print(sockets[0].getsockname()[1], flush=True))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder), str(ROOT)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield f"127.0.0.1:{int(process.stdout.readline())}"
        process.terminate()
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A name server of ours that knows a stock broker."""
    require_stock()
    folder = tmp_path_factory.mktemp("stock")
    with name_server_process(folder) as name_server:
        broker = start_broker(folder / "broker", name_server)
        try:
            yield name_server
        finally:
            broker.stop()


def test_messages_of_every_kind_come_back_from_a_stock_broker(address):
    got = []

    async def listen(messages, context):
        got.extend(messages)
        if messages[0].body == b"again" and messages[0].reconsume_times == 0:
            context.delay_level = 1
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.SUCCESS

    async def scenario():
        async with AsyncProducer("PG", namesrv=address) as producer:
            sent = [
                await producer.send(Message("T1", "one", tags="A", keys=["k1", "k2"],
                                            properties={"colour": "grün"})),
                await producer.send(Message("T1", b"z" * 50_000, tags="B")),
                await producer.send(Message("T1", "later", tags="A", delay_level=1)),
                await producer.send(Message("T1", "again", tags="A")),
                await producer.send_batch([Message("T1", f"b{n}", tags="B") for n in range(3)]),
            ]
            await producer.send(Message("T1", "not wanted", tags="C"))
            await producer.send_oneway(Message("T1", "oneway", tags="A"))
            consumer = AsyncPushConsumer(
                "CG1", "T1", listen, filter="A || B", namesrv=address, start="first")
            async with consumer:
                await wait_until_async(lambda: len(got) == 9, "nine messages")
        ids = ",".join(result.message_id for result in sent).split(",")
        assert set(ids) <= {message.message_id for message in got}
        bodies = sorted((m.body, m.reconsume_times) for m in got)
        assert bodies == [
            (b"again", 0), (b"again", 1), (b"b0", 0), (b"b1", 0), (b"b2", 0), (b"later", 0),
            (b"one", 0), (b"oneway", 0), (b"z" * 50_000, 0),
        ]
        one = next(message for message in got if message.body == b"one")
        assert (one.keys, one.properties["colour"]) == (["k1", "k2"], "grün")
        assert one.offset_message_id == sent[0].offset_message_id
        assert {message.topic for message in got} == {"T1"}
    asyncio.run(scenario())


def test_a_group_goes_on_where_it_committed(address):
    async def consume(count):
        got = []
        consumer = AsyncPushConsumer(
            "CG2", "T2", got.append, namesrv=address, start="first", run_in_thread=True)
        async with consumer:
            await wait_until_async(lambda: len(got) >= count, "all messages")
        return [message.body for message in got]

    async def scenario():
        async with AsyncProducer("PG", namesrv=address) as producer:
            for n in range(40):
                await producer.send(Message("T2", f"first{n}"))
            first = await consume(40)
            for n in range(40):
                await producer.send(Message("T2", f"second{n}"))
            second = await consume(40)
        assert sorted(first) == sorted(f"first{n}".encode() for n in range(40))
        assert sorted(second) == sorted(f"second{n}".encode() for n in range(40))
    asyncio.run(scenario())


def test_two_members_of_a_group_share_what_a_stock_broker_holds(address):
    def member():
        return AsyncPushConsumer(
            "CG3", "T3", lambda message: None, namesrv=address, run_in_thread=True)

    def queues(consumer):
        return {queue for queue in consumer.assignment if queue.topic == "T3"}

    async def scenario():
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T3", "x"))
            async with member() as first:
                await wait_until_async(lambda: len(queues(first)) == 4, "all queues at the first")
                async with member() as second:
                    await wait_until_async(
                        lambda: len(queues(first)) == len(queues(second)) == 2, "two queues each")
                    assert not queues(first) & queues(second)
                await wait_until_async(lambda: len(queues(first)) == 4, "all queues at the first")
    asyncio.run(scenario())
