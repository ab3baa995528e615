"""The result of a listener whose time is over comes late: its messages come again, and count once.

Rules W1 and W2 of mqcore/client/consume/concurrent.py.
"""
from __future__ import annotations

import asyncio
import threading
import time

import pytest

from mqcore.client.consume import concurrent
from mqcore.client.consume.assigned import AssignedQueue
from mqcore.client.consume.concurrent import ConcurrentService
from mqcore.client.consume.hooked import HookedCall
from mqcore.client.consume.listener import ConsumeStatus, ListenerCall
from mqcore.client.core.consume_stats import Counts
from mqcore.client.hooks import Hooks
from mqcore.client.message import MessageQueue
from mqcore.client.received import ReceivedMessage
from mqcore.wire.records import Record
from tests.support.waiting import WAIT_S, wait_until_async

QUEUE = MessageQueue("T", "broker-a", 0)
TIME_S = 0.05


def message(offset: int) -> ReceivedMessage:
    return ReceivedMessage.from_record(Record(
        topic="T", queue_id=0, queue_offset=offset, physical_offset=100 * offset, flag=0,
        sys_flag=0, body_crc=0, born_timestamp_ms=1, born_host=("127.0.0.1", 1),
        store_timestamp_ms=1, store_host=("127.0.0.1", 1), reconsume_times=0,
        prepared_transaction_offset=0, body=b"%d" % offset, properties={}, size=0), QUEUE)


class Back:
    """Takes messages that are sent back, when it may."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.going = asyncio.Event()

    async def later(self, message: ReceivedMessage, delay_level: int) -> bool:
        self.offsets.append(message.queue_offset)
        await self.going.wait()
        return True


class Service:
    """The product's service with one queue of two messages."""

    def __init__(self, listener) -> None:
        is_async = asyncio.iscoroutinefunction(listener)
        call = ListenerCall(listener, batch=1, in_thread=not is_async)
        self.back = Back()
        self.expired = asyncio.Event()
        self.held = AssignedQueue(QUEUE, QUEUE, 0, time.monotonic(), Counts())
        self.service = ConcurrentService(
            HookedCall(call, Hooks("G", ""), "G", "", TIME_S), concurrency=1, batch=1,
            timeout=TIME_S, send_back=self.back, spawn=asyncio.create_task, slow=self.slow)
        self.looks: asyncio.Task[None] | None = None

    def slow(self, name, messages, seconds, expired) -> None:
        if expired:
            self.expired.set()

    async def __aenter__(self) -> Service:
        self.service.start()
        messages = [message(0), message(1)]
        self.service.arrived(self.held, self.held.messages.put(messages, 2))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.back.going.set()
        await self.service.stop(WAIT_S)


@pytest.mark.parametrize("late", [None, ConsumeStatus.RECONSUME_LATER])
def test_what_a_thread_returns_after_its_time_is_dropped(late, monkeypatch):
    """Also while the loop still sends back what the same thread had refused before."""
    monkeypatch.setattr(concurrent, "THREAD_SLICE_S", WAIT_S)       # one turn has both calls
    begun, end, ended = threading.Event(), threading.Event(), threading.Event()

    def listener(messages, context):
        if messages[0].queue_offset == 0:
            return ConsumeStatus.RECONSUME_LATER
        begun.set()
        end.wait(WAIT_S)
        ended.set()
        return late

    async def scenario():
        async with Service(listener) as one:
            await asyncio.to_thread(begun.wait, WAIT_S)
            await asyncio.wait_for(one.expired.wait(), WAIT_S)
            await wait_until_async(lambda: one.back.offsets == [0], "the first one sent back")
            end.set()
            await asyncio.to_thread(ended.wait, WAIT_S)
            await wait_until_async(lambda: not one.service._threads._busy, "the thread at rest")
            one.back.going.set()
            await wait_until_async(lambda: one.held.commit_offset == 2, "both settled")
            assert one.back.offsets == [0, 1]
            assert (one.held.counts.ok, one.held.counts.failed) == (0, 2)
    asyncio.run(scenario())


def test_what_a_coroutine_returns_after_its_time_is_dropped():
    """It catches its cancellation, and says that all is well; no later call is in its task (W2)."""
    async def listener(message):
        tasks.append(asyncio.current_task())
        if message.queue_offset == 0:
            try:
                await asyncio.sleep(WAIT_S)
            except asyncio.CancelledError:
                caught.append(message.queue_offset)
    caught: list[int] = []
    tasks: list[asyncio.Task[None] | None] = []

    async def scenario():
        async with Service(listener) as one:
            one.back.going.set()
            await wait_until_async(lambda: one.held.commit_offset == 2, "both settled")
            assert caught == [0]
            assert len(set(tasks)) == 2
            assert one.back.offsets == [0]
            assert (one.held.counts.ok, one.held.counts.failed) == (1, 1)
    asyncio.run(scenario())


def test_a_worker_whose_call_was_overdue_gets_no_other_one():
    """Its thread may come back at any time: another thread has its place by then."""
    end = threading.Event()
    threads: dict[int, int] = {}

    def listener(message):
        threads[message.queue_offset] = threading.get_ident()
        if message.queue_offset == 0:
            end.wait(WAIT_S)

    async def scenario():
        async with Service(listener) as one:
            one.back.going.set()
            await wait_until_async(lambda: one.held.commit_offset == 2, "both settled")
            end.set()
            assert threads[0] != threads[1]
            assert one.held.counts.ok == 1
    try:
        asyncio.run(scenario())
    finally:
        end.set()
