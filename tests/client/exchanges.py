"""What a client does with any broker that keeps to the protocol; each has a topic of its own."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqcore.client import AsyncProducer, AsyncPushConsumer, ConsumeStatus, Message
from tests.support.waiting import wait_until_async

ROUND = 40                      # messages of each time that a group consumes


def consumer(
    group: str, topic: str, listen: Callable[..., Any], address: str, **options: Any,
) -> AsyncPushConsumer:
    """One that begins with a topic's first message."""
    return AsyncPushConsumer(group, topic, listen, namesrv=address, start="earliest", **options)


async def messages_of_every_kind_come_back(address: str) -> None:
    """The broker's first delay level is one second."""
    got = []

    async def listen(messages, context):
        got.extend(messages)
        if messages[0].body == b"again" and messages[0].reconsume_times == 0:
            context.delay_level = 1
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.SUCCESS

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
        async with consumer("CG1", "T1", listen, address, filter="A || B"):
            await wait_until_async(lambda: len(got) == 9, "nine messages")
    ids = ",".join(result.message_id for result in sent).split(",")
    assert set(ids) <= {message.message_id for message in got}
    assert sorted((one.body, one.reconsume_times) for one in got) == [
        (b"again", 0), (b"again", 1), (b"b0", 0), (b"b1", 0), (b"b2", 0), (b"later", 0),
        (b"one", 0), (b"oneway", 0), (b"z" * 50_000, 0)]
    assert {message.topic for message in got} == {"T1"}
    one = next(message for message in got if message.body == b"one")
    assert (one.keys, one.properties["colour"]) == (["k1", "k2"], "grün")
    assert one.offset_message_id == sent[0].offset_message_id
    late = next(message for message in got if message.body == b"later")
    assert late.store_timestamp_ms - late.born_timestamp_ms >= 900


async def a_group_goes_on_where_it_committed(address: str) -> None:
    async def consume() -> list[bytes]:
        got = []
        async with consumer("CG2", "T2", got.append, address, run_in_thread=True):
            await wait_until_async(lambda: len(got) >= ROUND, "all messages")
        return sorted(one.body for one in got)

    async with AsyncProducer("PG", namesrv=address) as producer:
        for name in ("first", "second"):
            wanted = sorted(f"{name}{number}".encode() for number in range(ROUND))
            for body in wanted:
                await producer.send(Message("T2", body))
            assert await consume() == wanted


async def two_members_share_the_queues(address: str) -> None:
    def member() -> AsyncPushConsumer:
        return consumer("CG3", "T3", lambda message: None, address, run_in_thread=True)

    def queues(one: AsyncPushConsumer) -> set[Any]:
        return {queue for queue in one.assignment if queue.topic == "T3"}

    async with AsyncProducer("PG", namesrv=address) as producer:
        await producer.send(Message("T3", "x"))
        async with member() as first:
            await wait_until_async(lambda: len(queues(first)) == 4, "all queues at the first")
            async with member() as second:
                await wait_until_async(
                    lambda: len(queues(first)) == len(queues(second)) == 2, "two queues each")
                assert not queues(first) & queues(second)
            await wait_until_async(lambda: len(queues(first)) == 4, "all queues at the first")


EXCHANGES = (messages_of_every_kind_come_back, a_group_goes_on_where_it_committed,
             two_members_share_the_queues)
