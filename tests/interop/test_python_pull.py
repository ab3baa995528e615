"""Our lite pull and pull consumers on both brokers: positions, commits, and what they share."""
from __future__ import annotations

import asyncio
import time

import pytest

from mqcore.client import (
    AsyncLitePullConsumer,
    AsyncPullConsumer,
    ClientError,
    ConfigError,
    LitePullConsumer,
    MessageQueue,
    PullConsumer,
    PullStatus,
    ReceivedMessage,
    Sql92,
)
from tests.interop.ask import committed_offset
from tests.interop.conftest import Cluster
from tests.interop.consuming import QUEUES, fresh, names, run, send
from tests.support.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.timeout(300)


def committed(cluster: Cluster, group: str, topic: str) -> int:
    return sum(committed_offset(cluster.broker_addr, group, topic, queue) or 0
               for queue in range(QUEUES))


async def polled(consumer: AsyncLitePullConsumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    while len(found) < count:
        some = await consumer.poll(timeout=20.0)
        assert some, f"{len(found)} of {count}"
        assert len({message.queue for message in some}) == 1
        found += some
    return found


def keys(messages: list[ReceivedMessage]) -> list[str]:
    return sorted(message.keys[0] for message in messages)


def test_what_is_polled_is_committed_by_the_next_polls_or_by_hand(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "lite")

    async def scenario() -> None:
        await send(cluster, topic, names("k", 40))
        options = {"namesrv": cluster.namesrv_addr, "start": "earliest"}
        consumer = AsyncLitePullConsumer(group, auto_commit=False, **options)
        consumer.subscribe(topic)
        async with consumer:
            assert keys(await polled(consumer, 40)) == sorted(names("k", 40))
            assert await consumer.poll(timeout=0) == []
            assert len(consumer.assignment()) == QUEUES
        assert committed(cluster, group, topic) == 0
        again = AsyncLitePullConsumer(group, auto_commit=False, **options)
        again.subscribe(topic)
        async with again:
            messages = await polled(again, 40)
            queue = messages[0].queue
            await again.commit([queue])
            assert await again.committed(queue) == 10
            assert committed(cluster, group, topic) == 10
            await again.commit_sync({queue: 3})
            assert await again.committed(queue) == 3
            await again.commit_sync()
            assert committed(cluster, group, topic) == 40
        automatic = AsyncLitePullConsumer(group, auto_commit_interval=1.0, **options)
        automatic.subscribe(topic)
        async with automatic:
            await send(cluster, topic, names("l", 8))
            await polled(automatic, 8)
            began = time.monotonic()
            await wait_until_async(lambda: time.monotonic() - began > 1.2, "the next commit")
            await automatic.poll(timeout=0)
        assert committed(cluster, group, topic) == 48

    run(scenario())


def test_positions_are_sought_and_queues_paused(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "seek")

    async def scenario() -> None:
        await send(cluster, topic, names("k", 20), queue=0)
        await send(cluster, topic, names("l", 20), queue=1)
        consumer = AsyncLitePullConsumer(group, start="earliest", auto_commit=False,
                                         namesrv=cluster.namesrv_addr)
        broker = None
        async with AsyncPullConsumer(f"{group}-x", namesrv=cluster.namesrv_addr) as helper:
            broker = (await helper.fetch_subscribe_message_queues(topic))[0].broker_name
        first, second = (MessageQueue(topic, broker, number) for number in range(2))
        consumer.assign([first])
        with pytest.raises(ClientError, match="both"):
            consumer.subscribe(topic)
        async with consumer:
            assert keys(await polled(consumer, 20)) == sorted(names("k", 20))
            await consumer.seek(first, 15)
            assert keys(await polled(consumer, 5)) == ["k15", "k16", "k17", "k18", "k19"]
            await consumer.seek_to_begin(first)
            assert keys(await polled(consumer, 20)) == sorted(names("k", 20))
            await consumer.seek_to_end(first)
            assert await consumer.poll(timeout=0.2) == []
            with pytest.raises(ClientError, match="expected 0 to 20"):
                await consumer.seek(first, 21)
            with pytest.raises(ClientError, match="not assigned"):
                await consumer.seek(second, 0)
            consumer.pause([first])
            consumer.assign([first, second])
            assert keys(await polled(consumer, 20)) == sorted(names("l", 20))
            await consumer.seek_to_begin(first)
            assert await consumer.poll(timeout=0.3) == []
            consumer.resume([first])
            assert keys(await polled(consumer, 20)) == sorted(names("k", 20))
            assert len(await consumer.fetch_message_queues(topic)) == QUEUES
            assert await consumer.offset_for_timestamp(first, 0.0) == 0

    run(scenario())


def test_lite_pull_members_share_queues_and_filter(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "shares")

    async def scenario() -> None:
        def member() -> AsyncLitePullConsumer:
            one = AsyncLitePullConsumer(group, start="earliest", namesrv=cluster.namesrv_addr)
            one.subscribe(topic, "A")
            return one

        async with member() as first, member() as second:
            await wait_until_async(
                lambda: len(first.assignment()) == len(second.assignment()) == QUEUES // 2,
                "two queues each")
            assert not first.assignment() & second.assignment()
            await send(cluster, topic, names("a", 8), tags="A")
            await send(cluster, topic, names("b", 8), tags="B")
            got = await asyncio.gather(polled(first, 4), polled(second, 4))
            assert keys(got[0] + got[1]) == sorted(names("a", 8))

    run(scenario())


def test_the_blocking_faces_poll_and_pull(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "faces")
    run(send(cluster, topic, names("k", 8), queue=0, properties={"n": "1"}))
    with PullConsumer(group, namesrv=cluster.namesrv_addr) as consumer:
        queue = min(consumer.fetch_subscribe_message_queues(topic))
        result = consumer.pull(queue, 2, 4, Sql92("n = 1"))
        assert (result.status, result.next_begin_offset) == (PullStatus.FOUND, 6)
        assert [message.queue_offset for message in result.messages] == [2, 3, 4, 5]
        assert (consumer.min_offset(queue), consumer.max_offset(queue)) == (0, 8)
        assert consumer.pull(queue, 8).status is PullStatus.NO_NEW_MESSAGE
        assert consumer.pull(queue, 99).status is PullStatus.OFFSET_ILLEGAL
        consumer.update_consume_offset(queue, 5)
        assert consumer.fetch_consume_offset(queue) == 5
        assert consumer.send_message_back(result.messages[0], delay_level=-1)
        with pytest.raises(ConfigError, match="max"):
            consumer.pull(queue, 0, 0)
    polling = LitePullConsumer(group, namesrv=cluster.namesrv_addr)
    polling.subscribe(topic)
    changes: list[set[MessageQueue]] = []
    polling.register_topic_message_queue_change_listener(
        topic, lambda _, queues: changes.append(queues))
    with polling:
        found: list[ReceivedMessage] = []
        while len(found) < 3:
            found += polling.poll(20.0)
        assert keys(found) == ["k5", "k6", "k7"]
        polling.commit_sync()
        assert polling.committed(queue) == 8
        assert queue in polling.assignment()
        wait_until(lambda: bool(changes), "the listener's call")
    assert [len(queues) for queues in changes] == [QUEUES]
