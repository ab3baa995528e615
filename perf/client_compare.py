"""
Our client beside PyPI's `rocketmq` 0.4.4 (the C++ client) and Java's 4.9.8, in one run.

    .venv/bin/python -m perf.client_compare [--rounds 3] [--seconds 5] [--count 300000]
        [--roles send soon oneway push] [--clients mqcore rocketmq java] [--json FILE]

One mqcore broker, beside it one client process at a time, in turns (A B C A B C): messages a second
and processor time of the client process for each, messages of 128 bytes. `send` blocks, one
thread; `soon` is asynchronous with 2,000 under way; `oneway` has no answers, so what was stored
is counted as well; `push` reads a topic that is full. The Java client may compile for 5 s first, or
reads everything twice; the others have a second.
"""
from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from mqcore.client import Admin, AsyncProducer, Message
from tests.interop.toolchain import require_client
from tests.support.mqcore_process import mqcore_up

HERE = Path(__file__).parent / "clients"
ROLES = ("send", "soon", "oneway", "push")
CLIENTS = ("mqcore", "rocketmq", "java")
QUEUES = 8
BATCH = 200
RUN_LIMIT_S = 600
TARGETS = {"rocketmq": 2.0, "java": 0.3}        # what ours should be of each


def command_of(client: str) -> list[str]:
    """How the process of a client is started; its arguments follow."""
    if client == "mqcore":
        return [sys.executable, str(HERE / "python_client.py"), "mqcore"]
    if client == "rocketmq":
        return [require_client("cpp")[0], str(HERE / "python_client.py"), "rocketmq"]
    java = require_client("java")
    classpath = java[java.index("-cp") + 1]
    return [java[0], "-Xms512m", "-Xmx512m", "-cp", classpath, str(HERE / "JavaClient.java"),
            "java"]


def run(client: str, role: str, namesrv: str, topic: str, seconds: float, count: int,
        folder: Path) -> dict[str, float]:
    """One process of a client, from its start to its end; what it says of itself."""
    done = subprocess.run(
        [*command_of(client), role, namesrv, topic, str(seconds), str(count)],
        stdout=subprocess.PIPE, text=True, timeout=RUN_LIMIT_S, check=True, cwd=folder,
        env={**os.environ, "HOME": str(folder), "PYTHONPATH": str(HERE.parents[1])})
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"count"')]
    return dict(json.loads(lines[-1]))


async def fill(namesrv: str, topic: str, count: int) -> None:
    """Store `count` messages for those who read."""
    async with AsyncProducer("compare", namesrv=namesrv, batch_count=BATCH) as producer:
        for _ in range(count // (BATCH * QUEUES)):
            await producer.send_many(
                Message(topic, b"x" * 128) for _ in range(BATCH * QUEUES))


def stored(admin: Admin, topic: str) -> int:
    return admin.topic_stats(topic).message_count


def measure(options: argparse.Namespace, namesrv: str, folder: Path) -> list[dict[str, object]]:
    """The figures of each run."""
    found: list[dict[str, object]] = []
    with Admin(namesrv) as admin:
        count = options.count // (BATCH * QUEUES) * BATCH * QUEUES
        for topic in ("CompareSend", "ComparePush"):
            admin.create_topic(topic, queues=QUEUES)
        if "push" in options.roles:
            asyncio.run(fill(namesrv, "ComparePush", count))
        for number in range(options.rounds):
            for role in options.roles:
                topic = "ComparePush" if role == "push" else "CompareSend"
                for client in options.clients:
                    before = stored(admin, topic)
                    figures = run(client, role, namesrv, topic, options.seconds, count, folder)
                    found.append({
                        "round": number, "role": role, "client": client, **figures,
                        "stored": stored(admin, topic) - before})
                    print(f"{role:7} {client:9} {figures['count'] / figures['seconds']:>10,.0f} /s"
                          f" {figures['cpu'] / figures['count'] * 1e6:>8.2f} us each", flush=True)
    return found


def median(found: list[dict[str, object]], role: str, client: str, of: str, to: str) -> float:
    return statistics.median(
        float(str(one[of])) / float(str(one[to])) for one in found
        if (one["role"], one["client"]) == (role, client))


def table(found: list[dict[str, object]], roles: list[str], clients: list[str]) -> str:
    """Medians, and what ours is of the others."""
    lines = ["", f"{'':18} {'messages/s':>12} {'us CPU each':>12}   ours / theirs (asked)"]
    for role in roles:
        for client in clients:
            rate = median(found, role, client, "count", "seconds")
            line = (f"{role:7} {client:10} {rate:>12,.0f}"
                    f" {median(found, role, client, 'cpu', 'count') * 1e6:>12.2f}")
            if client in TARGETS and "mqcore" in clients:
                ours = median(found, role, "mqcore", "count", "seconds")
                line += f"   {ours / rate:.2f} ({TARGETS[client]})"
            lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run that sends")
    parser.add_argument("--count", type=int, default=300_000, help="messages that are read")
    parser.add_argument("--roles", nargs="*", default=list(ROLES), choices=ROLES)
    parser.add_argument("--clients", nargs="*", default=list(CLIENTS), choices=CLIENTS)
    parser.add_argument("--json", type=Path, help="a file for the figures of each run")
    options = parser.parse_args()
    print("load before:", *os.getloadavg())
    with tempfile.TemporaryDirectory(prefix="client-compare-") as folder, \
            mqcore_up(Path(folder), {"store.segment_size_bytes": 1 << 30}) as broker:
        found = measure(options, broker.namesrv_addr, Path(folder))
    print("load after: ", *os.getloadavg())
    print(table(found, options.roles, options.clients))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
