"""
How fast our consumers are: messages a second of one process, with the broker beside it.

    .venv/bin/python -m perf.client_consume [--count 600000] [--size 128] [--role push] [--profile]

Fills a topic of 8 queues in batches, then lets one member with an empty listener read all of it.
`idle` is the processor time of a member with 10 subscriptions that nobody sends to.
"""
from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mqcore.client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    Consumer,
    Message,
    PushConsumer,
    ReceivedMessage,
)
from tests.interop.ask import ask
from tests.support.mqcore_process import mqcore_up

TOPIC = "perf"
QUEUE_COUNT = 8
BATCH = 200
IDLE_S = 30.0
IDLE_TOPICS = 10


def create(broker_addr: str, topic: str) -> None:
    ask(broker_addr, 17, {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(QUEUE_COUNT),
        "writeQueueNums": str(QUEUE_COUNT), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false"})


async def fill(namesrv: str, count: int, size: int) -> None:
    body = bytes(size)
    async with AsyncProducer("perf", namesrv=namesrv) as producer:
        async def some(number: int) -> None:
            for _ in range(number):
                await producer.send_batch([Message(TOPIC, body) for _ in range(BATCH)])

        await asyncio.gather(*(some(count // BATCH // 4) for _ in range(4)))


async def push(namesrv: str, group: str, count: int) -> float:
    left = count
    done = asyncio.Event()

    async def listen(message: ReceivedMessage) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with AsyncPushConsumer(group, TOPIC, listen, start="earliest", namesrv=namesrv):
        began = time.perf_counter()
        await done.wait()
        return time.perf_counter() - began


async def batches(namesrv: str, group: str, count: int) -> float:
    left = count
    async with AsyncConsumer(group, TOPIC, start="earliest", namesrv=namesrv) as consumer:
        began = time.perf_counter()
        while left > 0:
            left -= len(await consumer.receive(max=500))
        return time.perf_counter() - began


async def loop(namesrv: str, group: str, count: int) -> float:
    left = count
    async with AsyncConsumer(group, TOPIC, start="earliest", namesrv=namesrv) as consumer:
        began = time.perf_counter()
        async for _ in consumer:
            left -= 1
            if not left:
                break
        return time.perf_counter() - began


def blocking_push(namesrv: str, group: str, count: int) -> float:
    seen: list[None] = []
    done = threading.Event()

    def listen(message: ReceivedMessage) -> None:
        seen.append(None)
        if len(seen) == count:
            done.set()

    with PushConsumer(group, TOPIC, listen, start="earliest", namesrv=namesrv):
        began = time.perf_counter()
        done.wait()
        return time.perf_counter() - began


def blocking_loop(namesrv: str, group: str, count: int) -> float:
    left = count
    with Consumer(group, TOPIC, start="earliest", namesrv=namesrv) as consumer:
        began = time.perf_counter()
        for _ in consumer:
            left -= 1
            if not left:
                break
        return time.perf_counter() - began


async def idle(namesrv: str) -> float:
    """Percent of one processor."""
    async def listen(message: ReceivedMessage) -> None:
        raise AssertionError(message)

    topics = [f"idle-{number}" for number in range(IDLE_TOPICS)]
    async with AsyncPushConsumer("idle", topics, listen, namesrv=namesrv):
        await asyncio.sleep(3)
        began, used = time.monotonic(), time.process_time()
        await asyncio.sleep(IDLE_S)
        return 100 * (time.process_time() - used) / (time.monotonic() - began)


def profiled(run: Callable[[], float]) -> float:
    profile = cProfile.Profile()
    took = profile.runcall(run)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=600_000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--role", nargs="*", default=["push", "batches", "loop", "blocking-push",
                                                      "blocking-loop", "idle"])
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    roles: dict[str, Callable[[str, str, int], float]] = {
        "push": lambda *given: asyncio.run(push(*given)),
        "batches": lambda *given: asyncio.run(batches(*given)),
        "loop": lambda *given: asyncio.run(loop(*given)),
        "blocking-push": blocking_push, "blocking-loop": blocking_loop,
    }
    with tempfile.TemporaryDirectory() as folder, mqcore_up(Path(folder), {}) as broker:
        create(broker.broker_addr, TOPIC)
        count = options.count // BATCH // 4 * BATCH * 4
        asyncio.run(fill(broker.namesrv_addr, count, options.size))
        for role in options.role:
            if role == "idle":
                for number in range(IDLE_TOPICS):
                    create(broker.broker_addr, f"idle-{number}")
                print(f"{role:14} {asyncio.run(idle(broker.namesrv_addr)):.2f} % of a processor")
                continue
            used = time.process_time()

            def run(role: str = role) -> float:
                return roles[role](broker.namesrv_addr, f"{role}-readers", count)

            took = profiled(run) if options.profile else run()
            cpu = time.process_time() - used
            print(f"{role:14} {count / took:>9,.0f} messages/s,"
                  f" {cpu / count * 1e6:.2f} us CPU each", flush=True)


if __name__ == "__main__":
    main()
