"""What a signal raises (Ctrl-C, a time limit) in a blocking send, wherever that is."""
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from mqcore.client import Producer
from mqcore.client.network.connection import Connection
from mqcore.client.network.reading import LEND_AFTER, Turn
from mqcore.testing import MemoryBroker
from tests.support.waiting import wait_until

STEPS_MAX = 1_000
SEND_S = 0.5                # a send whose frame was never written ends so late


class Interrupt(BaseException):
    """What a handler of a signal raises."""


@contextmanager
def interrupted(step: int) -> Iterator[Callable[[], int]]:
    """Raise Interrupt in this thread at its `step`-th call or end of a native call: that is where
    the interpreter looks for signals. Yields how many steps there were."""
    count = 0

    def look(frame: FrameType, happened: str, argument: Any) -> None:
        nonlocal count
        if happened in ("call", "c_return") and argument is not sys.setprofile:
            count += 1
            if count == step:
                sys.setprofile(None)
                raise Interrupt

    sys.setprofile(look)
    try:
        yield lambda: count
    finally:
        sys.setprofile(None)


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    with MemoryBroker() as broker, Producer(
            "interrupted", namesrv=broker.namesrv, topics=["T"], send_timeout=SEND_S,
            retry_count=0, max_in_flight=100) as made:
        yield made


def connection_of(producer: Producer) -> Connection:
    (connection,) = (one for one in producer._role._instance.pool._connections.values()
                     if one.is_open)
    return connection


def interrupt_everywhere(producer: Producer, send: Callable[[], object]) -> int:
    """Interrupt `send` at each of its steps, and see that other sends are as they were; how many
    steps there are."""
    room = producer._role._sender.room
    for step in range(1, STEPS_MAX):
        for _ in range(2 * LEND_AFTER):
            producer.send("T", "so that this thread reads", timeout=20.0)
        try:
            with interrupted(step) as steps:
                send()
        except Interrupt:
            began = time.monotonic()
            producer.send("T", "after it", timeout=20.0)
            assert time.monotonic() - began < 10.0, f"step {step}: the next send waited"
            wait_until(lambda: room.count == 0, f"step {step}: the room is free")
            assert room.bytes == 0
        else:
            assert steps() < step, f"step {step}: what the signal raised was swallowed"
            return step - 1
    raise AssertionError(f"more than {STEPS_MAX} steps")


def test_a_send_that_reads_its_answer_itself(producer: Producer) -> None:
    assert interrupt_everywhere(producer, lambda: producer.send("T", "x")) > 50
    assert connection_of(producer)._turn._turn is not Turn.THREAD


def test_a_send_that_the_loop_does(producer: Producer) -> None:
    assert interrupt_everywhere(producer, lambda: producer.send("T", "x", shard=1)) > 30


@pytest.mark.parametrize("send", ["send_soon", "send_oneway"])
def test_sends_that_nobody_waits_for(producer: Producer, send: str) -> None:
    assert interrupt_everywhere(producer, lambda: getattr(producer, send)("T", "x")) > 30
