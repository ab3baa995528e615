"""The broker in memory, as clients see it."""
from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from mqcore.client import (
    AsyncAdmin,
    AsyncProducer,
    AsyncReader,
    AsyncTransactionProducer,
    BrokerError,
    Message,
    RecallOutcome,
)
from mqcore.client import LocalTransactionState as State
from mqcore.client.core.options import split_address
from mqcore.client.network.connection import Connection
from mqcore.testing import MemoryBroker, TestingError
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.codes import ResponseCode
from mqcore.wire.command import Command, request
from mqcore.wire.fastjson import dumps, loads
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.properties import encode_properties
from mqcore.wire.records import decode_record
from tests.client.exchanges import EXCHANGES, consumer
from tests.support.waiting import wait_until_async


@pytest.fixture(scope="module")
def address():
    with MemoryBroker({"broker.message_delay_levels": "1s 2s"}) as broker:
        yield broker.namesrv


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda one: one.__name__)
def test_it_serves_a_client_as_a_broker_does(address, exchange):
    asyncio.run(exchange(address))


def test_a_message_that_fails_for_good_is_a_dead_letter(address):
    async def scenario():
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T4", "poison"))

            seen = []

            async def listen(message):
                seen.append(message)
                raise RuntimeError("never")
            async with consumer("CG4", "T4", listen, address, max_retries=0):
                await wait_until_async(lambda: seen, "a try")
                async with AsyncReader("%DLQ%CG4", namesrv=address) as reader:
                    (dead,) = await reader.read(timeout=20)
        assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"poison", "T4")
    asyncio.run(scenario())


def test_a_held_pull_is_answered_when_a_message_comes(address):
    async def scenario():
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T5", "first"))
            async with AsyncReader("T5", namesrv=address, start="latest") as reader:
                assert await reader.read(timeout=0.1) == []
                began = time.monotonic()
                await producer.send(Message("T5", "second"))
                (one,) = await reader.read(timeout=10)
                assert one.body == b"second"
                assert time.monotonic() - began < 5     # a pull is held for 15
    asyncio.run(scenario())


# -- transactions, by hand ------------------------------------------------------------------------


async def half(connection: Connection, topic: str, number: int) -> Command:
    """Send a half message."""
    answer = await connection.invoke(request(Code.SEND_MESSAGE_V2, {
        "a": "TG", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "4", "g": "0", "h": "0",
        "i": encode_properties({"TRAN_MSG": "true", "PGROUP": "TG", "UNIQ_KEY": f"U{number}"}),
        "j": "0", "k": "false"}, b"half%d" % number))
    assert answer.code == 0, answer.remark
    return answer


def end(answer_or_check: dict[str, str], position: int, decision: int) -> Command:
    return request(Code.END_TRANSACTION, {
        "producerGroup": "TG", "tranStateTableOffset": answer_or_check["offset"],
        "commitLogOffset": str(position), "commitOrRollback": str(decision),
        "fromTransactionCheck": "false"})


def test_a_transaction_is_committed_rolled_back_or_asked_about():
    asked: asyncio.Queue[Command] = asyncio.Queue()

    async def on_request(command: Command, broker: str) -> None:
        await asked.put(command)

    async def scenario(address: str) -> None:
        connection = await Connection.open(*split_address(address), on_request=on_request)
        await connection.invoke(request(Code.HEART_BEAT, None, dumps({
            "clientID": "c", "consumerDataSet": [], "producerDataSet": [{"groupName": "TG"}]})))
        made = [await half(connection, "TX", number) for number in range(3)]
        places = [(answer.ext["queueOffset"], parse_offset_message_id(answer.ext["msgId"])[2])
                  for answer in made]
        for (offset, position), decision in zip(places, (8, 12), strict=False):
            done = await connection.invoke(end({"offset": offset}, position, decision))
            assert done.code == 0, done.remark
        again = await connection.invoke(end({"offset": places[0][0]}, places[0][1], 8))
        assert again.code == ResponseCode.SYSTEM_ERROR          # it is ended already
        while not asked.empty():            # about what was open until now, on a slow machine
            asked.get_nowait()
        async with AsyncReader("TX", namesrv=address) as reader:
            (committed,) = await reader.read(timeout=10)
            assert committed.body == b"half0"
            async with asyncio.timeout(10):
                check = await asked.get()
            assert check.code == Code.CHECK_TRANSACTION_STATE
            record = decode_record(check.body)
            assert (record.topic, record.body, check.ext["msgId"]) == ("TX", b"half2", "U2")
            done = await connection.invoke(end(
                {"offset": check.ext["tranStateTableOffset"]},
                int(check.ext["commitLogOffset"]), 8))
            assert done.code == 0
            (late,) = await reader.read(timeout=10)
            assert late.body == b"half2"
        await connection.close()

    with MemoryBroker({"broker.transaction_timeout_ms": 100,
                       "broker.transaction_check_interval_ms": 100}) as broker:
        asyncio.run(scenario(broker.namesrv))


def test_a_transaction_whose_outcome_is_open_is_asked_about():
    async def scenario(address: str) -> None:
        async def check(message):
            return State.COMMIT if message.body == b"done" else State.ROLLBACK

        async with AsyncTransactionProducer("TP", check=check, namesrv=address) as producer:
            async with producer.transaction(Message("TY", "committed")):
                pass
            for body in ("undone", "done"):
                with pytest.raises(RuntimeError):
                    async with producer.transaction(Message("TY", body)):
                        raise RuntimeError("who knows")
            async with AsyncReader("TY", namesrv=address) as reader:
                bodies = [(await reader.read(1, timeout=20))[0].body for _ in range(2)]
                assert bodies == [b"committed", b"done"]
                assert await reader.read(timeout=0.3) == []

    with MemoryBroker({"broker.transaction_timeout_ms": 100,
                       "broker.transaction_check_interval_ms": 100}) as broker:
        asyncio.run(scenario(broker.namesrv))


# -- the rest -------------------------------------------------------------------------------------


def test_sql_filters_are_refused_with_a_reason(address):
    async def scenario():
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T6", "x"))
        async with AsyncReader("T6", namesrv=address, sql="a = 1") as reader:
            with pytest.raises(BrokerError, match="property_filter_enable"):
                await reader.read(timeout=10)
    asyncio.run(scenario())


def test_settings_count(address):
    async def scenario(other: str) -> None:
        async with AsyncProducer("PG", namesrv=other, retry_count=0) as producer:
            with pytest.raises(Exception, match="route"):
                await producer.send(Message("T7", "x"))
        connection = await Connection.open(*split_address(other))
        answer = await connection.invoke(request(Code.GET_BROKER_CLUSTER_INFO))
        assert list(loads(answer.body)["brokerAddrTable"]) == ["mine"]
        await connection.close()

    with MemoryBroker({"broker.name": "mine", "broker.auto_create_topic": False}) as broker:
        asyncio.run(scenario(broker.namesrv))


def test_nonsense_ends_its_connection_and_no_other(address):
    async def scenario():
        reader, writer = await asyncio.open_connection(*split_address(address))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        connection = await Connection.open(*split_address(address))
        assert (await connection.invoke(request(9_999))).code == (
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        await connection.close()
    asyncio.run(scenario())


def test_it_leaves_nothing_and_starts_quickly():
    began = time.monotonic()
    with MemoryBroker() as broker:
        took_s = time.monotonic() - began
        folder = broker.store
        assert folder.is_dir()
        assert (broker.namesrv, broker.pid) == (broker.broker, 0)
    assert not folder.exists()
    assert took_s < 5
    broker.close()
    with pytest.raises(TestingError, match="once"):
        broker.start()


def test_a_setting_that_is_wrong_is_said():
    with pytest.raises(TestingError, match=r"broker\.nmae"):
        MemoryBroker({"broker.nmae": "x"}).start()


def test_the_fixture_is_there(mqcore_memory_broker, mqcore_broker_factory):
    assert mqcore_memory_broker.namesrv
    assert callable(mqcore_broker_factory)


def test_messages_come_at_their_time_and_are_taken_back(address):
    async def scenario():
        came = []

        async def listen(messages, context):
            came.extend((message.body, time.time()) for message in messages)

        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send("T-timed", b"makes the topic")
            async with consumer("G-timed", "T-timed", listen, address):
                due = time.time() + 0.7
                kept = await producer.send(Message(
                    "T-timed", b"kept", deliver_at=datetime.fromtimestamp(due, UTC)))
                gone = await producer.send(Message("T-timed", b"gone", delay=0.7))
                far = await producer.send(Message("T-timed", b"far", delay=timedelta(days=30)))
                for sent in (gone, far, gone):
                    assert (await sent.recall()).outcome is RecallOutcome.RECALLED
                async with AsyncAdmin(address) as admin:
                    assert (await admin.timed_messages("mqcore-memory")).topics == {"T-timed": 1}
                await wait_until_async(lambda: len(came) == 2, "both")
                assert (await kept.recall()).outcome is RecallOutcome.DELIVERED
        bodies = dict(came)
        assert set(bodies) == {b"makes the topic", b"kept"}
        assert bodies[b"kept"] >= due

    asyncio.run(scenario())
