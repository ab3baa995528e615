"""
One role of the Python client in a process of its own, for perf.ledger.

    python -m perf.ledger.client producer|consumer|push|reader NAMESRV COUNT FOLDER

Prints what a message cost as JSON, and how many modules were imported.
"""
from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from mqcore.client import Consumer, Message, Producer, PushConsumer, Reader
from mqcore.wire import fastjson
from perf.ledger.counts import Counts, look

TOPIC = "Ledger"                       # paths.py
WARMUP = 50


def counted(numbers: Path, count: int, do: Callable[[], object]) -> Counts:
    for _ in range(WARMUP):
        do()
    before = look(numbers, os.getpid())
    for _ in range(count):
        do()
    return (look(numbers, os.getpid()) - before) * (1 / count)


def produce(namesrv: str, count: int, numbers: Path) -> Counts:
    with Producer("ledger", namesrv=namesrv) as producer:
        return counted(numbers, count, lambda: producer.send(Message(TOPIC, b"x" * 128)))


def consume(namesrv: str, count: int, numbers: Path) -> Counts:
    with Consumer("ledger-own", TOPIC, namesrv=namesrv, start="first") as consumer:
        messages = iter(consumer)
        return counted(numbers, count, lambda: next(messages))


def push(namesrv: str, count: int, numbers: Path) -> Counts:
    seen, done = 0, threading.Event()
    at: list[Counts] = []

    def listen(_message: object) -> None:
        nonlocal seen
        seen += 1
        if seen == WARMUP:
            at.append(look(numbers, os.getpid()))
        elif seen == WARMUP + count:
            at.append(look(numbers, os.getpid()))
            done.set()

    with PushConsumer("ledger-push", TOPIC, listen, namesrv=namesrv, start="first"):
        done.wait()
    return (at[1] - at[0]) * (1 / count)


def read(namesrv: str, count: int, numbers: Path) -> Counts:
    with Reader(TOPIC, namesrv=namesrv) as reader:
        messages = iter(reader)
        return counted(numbers, count, lambda: next(messages))


ROLES = {"producer": produce, "consumer": consume, "push": push, "reader": read}


def main() -> None:
    role, namesrv, count, numbers = sys.argv[1:]
    found = ROLES[role](namesrv, int(count), Path(numbers))
    print(fastjson.dumps({**asdict(found), "modules": len(sys.modules)}).decode())


if __name__ == "__main__":
    main()
