"""What the Python client costs and carries: python -m perf.client produce [--seconds N] [ROLE ...]

A broker of its own on the loopback, beside one Python process that sends. For each way of sending:
messages a second, and processor time of the sending process for each, in turns, so that what else
the machine does harms all alike. Prints the load of the machine before and after.
"""
from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from mqcore.client import AsyncProducer, Message, Producer
from tests.support.mqcore_process import mqcore_up

BODY = b"x" * 128
WINDOW = 2_000              # futures that a sender keeps before it waits for the oldest
MANY = 12_800
BATCH = 32
TOPIC = "PerfClient"

Run = Callable[[str, float], int]


def async_send_soon(namesrv: str, seconds: float) -> int:
    async def run() -> int:
        async with AsyncProducer("perf", namesrv=namesrv, topics=[TOPIC]) as producer:
            count, end, waiting = 0, time.monotonic() + seconds, deque()
            while time.monotonic() < end:
                for _ in range(100):
                    waiting.append(producer.send_soon(Message(TOPIC, BODY)))
                count += 100
                while len(waiting) > WINDOW:
                    await waiting.popleft()
                await asyncio.sleep(0)
            await producer.flush(30)
            return count
    return asyncio.run(run())


def async_send(namesrv: str, seconds: float) -> int:
    async def run() -> int:
        async with AsyncProducer("perf", namesrv=namesrv, topics=[TOPIC]) as producer:
            count, end = 0, time.monotonic() + seconds
            while time.monotonic() < end:
                await producer.send(Message(TOPIC, BODY))
                count += 1
            return count
    return asyncio.run(run())


def send_soon(namesrv: str, seconds: float) -> int:
    with Producer("perf", namesrv=namesrv, topics=[TOPIC], max_in_flight=WINDOW) as producer:
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(100):
                producer.send_soon(Message(TOPIC, BODY))
            count += 100
        producer.flush(30)
        return count


def send(namesrv: str, seconds: float) -> int:
    with Producer("perf", namesrv=namesrv, topics=[TOPIC]) as producer:
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            producer.send(Message(TOPIC, BODY))
            count += 1
        return count


def send_many(namesrv: str, seconds: float) -> int:
    with Producer("perf", namesrv=namesrv, topics=[TOPIC], batch_count=BATCH) as producer:
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            producer.send_many([Message(TOPIC, BODY) for _ in range(MANY)])
            count += MANY
        return count


def linger(namesrv: str, seconds: float) -> int:
    with Producer("perf", namesrv=namesrv, topics=[TOPIC], max_in_flight=WINDOW,
                  linger=0.005) as producer:
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(100):
                producer.send_soon(Message(TOPIC, BODY))
            count += 100
        producer.flush(30)
        return count


ROLES: dict[str, Run] = {
    "send_soon (async)": async_send_soon, "send_soon": send_soon, "send": send,
    "send (async)": async_send, "send_many": send_many, "linger": linger,
}


def processor_seconds() -> float:
    return time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["produce"])
    parser.add_argument("roles", nargs="*", metavar="ROLE", help=f"some of {', '.join(ROLES)}")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_intermixed_args()
    roles = {name: ROLES[name] for name in arguments.roles or ROLES}
    print("load before:", *os.getloadavg())
    rates: dict[str, list[float]] = {name: [] for name in roles}
    costs: dict[str, list[float]] = {name: [] for name in roles}
    with tempfile.TemporaryDirectory(prefix="perf-client-") as folder, \
            mqcore_up(Path(folder)) as broker:
        for _ in range(arguments.rounds):
            for name, run in roles.items():
                began, used = time.monotonic(), processor_seconds()
                count = run(broker.namesrv_addr, arguments.seconds)
                rates[name].append(count / (time.monotonic() - began))
                costs[name].append((processor_seconds() - used) / count * 1e6)
    print("load after: ", *os.getloadavg())
    for name in roles:
        print(f"{name:18} {statistics.median(rates[name]):>10,.0f} /s"
              f" {statistics.median(costs[name]):>8.2f} us each"
              f"   ({', '.join(f'{rate:,.0f}' for rate in rates[name])})")


if __name__ == "__main__":
    main()
