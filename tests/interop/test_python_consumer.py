"""Our consumer for one's own loop on both brokers: what is acked, what comes again."""
from __future__ import annotations

import asyncio
import threading

import pytest

from mqcore.client import AsyncConsumer, ClosedError, ConfigError, Consumer
from tests.interop.ask import committed_offset
from tests.interop.conftest import Cluster
from tests.interop.consuming import QUEUES, fresh, names, run, send
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


def committed(cluster: Cluster, group: str, topic: str) -> int:
    return sum(committed_offset(cluster.broker_addr, group, topic, queue) or 0
               for queue in range(QUEUES))


def test_a_loop_acks_what_it_went_on_from_and_a_failed_one_not_its_last(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "loop")
    seen: list[str] = []

    async def scenario() -> None:
        await send(cluster, topic, names("k", 8), queue=0)
        options = {"namesrv": cluster.namesrv_addr, "start": "earliest"}

        async def until_k4() -> None:
            async with AsyncConsumer(group, topic, **options) as consumer:
                async for message in consumer:
                    if message.keys == ["k4"]:
                        raise RuntimeError("at k4")
                    seen.append(message.keys[0])
        with pytest.raises(RuntimeError, match="at k4"):
            await until_k4()
        assert committed(cluster, group, topic) == 4
        async with AsyncConsumer(group, [topic], **options) as consumer:
            async for message in consumer:
                seen.append(message.keys[0])
                if message.keys == ["k7"]:
                    break
        with pytest.raises(ClosedError):
            await consumer.receive()

    run(scenario())
    assert seen == names("k", 8)
    assert committed(cluster, group, topic) == 8


def test_manual_acks_decide_by_message(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "manual")
    tries: list[tuple[str, int]] = []

    async def scenario() -> None:
        await send(cluster, topic, ["ok", "fails", "rejected", "raises"])
        async with AsyncConsumer(group, topic, ack="manual", start="earliest",
                                 namesrv=cluster.namesrv_addr) as consumer:
            while len(tries) < 6:
                for message in await consumer.receive(max=10, timeout=5.0):
                    key = message.keys[0]
                    tries.append((key, message.reconsume_times))
                    if key == "fails" and message.reconsume_times == 0:
                        assert await message.retry(delay_level=1)
                        assert not message.ack()
                    elif key == "rejected":
                        assert await message.reject()
                    elif key == "raises" and message.reconsume_times == 0:
                        with pytest.raises(RuntimeError):
                            async with message.processing():
                                raise RuntimeError("not now")
                    else:
                        async with message.processing():
                            await asyncio.sleep(0)
            assert await consumer.receive(timeout=0.2) == []

    run(scenario())
    assert sorted(tries) == [("fails", 0), ("fails", 1), ("ok", 0), ("raises", 0), ("raises", 1),
                             ("rejected", 0)]
    assert committed(cluster, group, topic) == 4


def test_what_is_not_acked_comes_again_and_holds_the_offset(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "unacked")

    async def scenario() -> None:
        await send(cluster, topic, names("k", 6), queue=1)
        options = {"namesrv": cluster.namesrv_addr, "start": "earliest"}
        async with AsyncConsumer(group, topic, ack="manual", **options) as consumer:
            found = []
            while len(found) < 6:
                found += await consumer.receive(timeout=20)
            for message in found:
                if message.keys != ["k2"]:
                    message.ack()
        assert committed(cluster, group, topic) == 2
        async with AsyncConsumer(group, topic, ack="manual", handler_timeout=1.0,
                                 **options) as consumer:
            again = []
            while len(again) < 4:
                again += await consumer.receive(timeout=20)
            assert sorted(m.keys[0] for m in again) == ["k2", "k3", "k4", "k5"]
            for message in again[1:]:
                message.ack()
            (overdue,) = await consumer.receive(timeout=20)
            assert (overdue.keys, overdue.reconsume_times) == (again[0].keys, 1)
            assert not again[0].ack()
            assert overdue.ack()

    run(scenario())


def test_a_blocking_loop_and_acks_from_other_threads(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "blocking")
    run(send(cluster, topic, names("k", 20)))
    options = {"namesrv": cluster.namesrv_addr, "start": "earliest"}
    with Consumer(group, topic, **options) as consumer:
        first = []
        for message in consumer:
            first.append(message.keys[0])
            if len(first) == 20:
                break
    assert sorted(first) == sorted(names("k", 20))
    assert committed(cluster, group, topic) == 20

    run(send(cluster, topic, names("l", 20)))
    with Consumer(group, topic, ack="manual", **options) as consumer:
        threads = []
        for _ in range(2):
            def work() -> None:
                for message in consumer.receive(max=10, timeout=20.0):
                    with message.processing():
                        second.append(message.keys[0])

            threads.append(threading.Thread(target=work))
        second: list[str] = []
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while len(second) < 20:
            for message in consumer.receive(max=10, timeout=20.0):
                second.append(message.keys[0])
                message.ack()
    assert sorted(second) == sorted(names("l", 20))
    wait_until(lambda: committed(cluster, group, topic) == 40, "offsets over all messages")


def test_a_loop_ends_when_the_consumer_is_closed(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "closed")
    with Consumer(group, topic, namesrv=cluster.namesrv_addr) as consumer:
        closer = threading.Timer(0.3, consumer.close)
        closer.start()
        assert list(consumer) == []
        closer.join()
    with pytest.raises(ConfigError, match='expected "auto" or "manual"'):
        Consumer(group, topic, ack="none", namesrv=cluster.namesrv_addr)   # type: ignore[arg-type]


def test_automatic_acks_are_for_one_task(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "tasks")

    async def scenario() -> None:
        async with AsyncConsumer(group, topic, namesrv=cluster.namesrv_addr) as consumer:
            first = asyncio.create_task(consumer.receive(timeout=20.0))
            await asyncio.sleep(0)
            with pytest.raises(ConfigError, match="several tasks"):
                await consumer.receive()
            first.cancel()

    run(scenario())
