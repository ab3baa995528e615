"""Clients and the last reading of a run bear connections that end at any moment."""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.replication.faults import torment
from tests.replication.faults.history import Delivery, History
from tests.replication.faults.traffic import Sender, Traffic
from tests.support.waiting import WAIT_S, wait_until_async
from tests.wire_live.peer import Closed

STEPS = 12                            # of the loop, until all tasks of a client have heard


class Cut(Sender):
    """One whose connection ends when it is told to."""

    ends: asyncio.Event

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        await self.ends.wait()
        raise ConnectionError("cut")


@contextlib.asynccontextmanager
async def cut() -> AsyncIterator[tuple[asyncio.Task[None], list[int]]]:
    """A sender whose connections end as soon as they are there, and how many it has made."""
    made: list[int] = []
    server = await asyncio.start_server(lambda *_: made.append(1), "127.0.0.1", 0)
    async with server:
        address = "{}:{}".format(*server.sockets[0].getsockname())
        sender = Cut(Traffic(History(1)), lambda: address)
        sender.ends = asyncio.Event()
        running = asyncio.create_task(sender.run())
        await wait_until_async(lambda: made, "it is connected")
        sender.ends.set()
        yield running, made
        while not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=0.1)


async def has_ended(steps: int) -> bool:
    """Whether a sender ends that is stopped so many steps after the end of its connection."""
    async with cut() as (running, _):
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=WAIT_S)
        return running.done()


async def connects_again() -> None:
    async with cut() as (_, made):
        await wait_until_async(lambda: len(made) > 2, "it has made other connections")


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_sender_that_is_stopped_while_its_connection_ends_makes_no_other_one(steps: int) -> None:
    assert asyncio.run(has_ended(steps))


def test_a_sender_whose_connection_ends_makes_another_one() -> None:
    asyncio.run(connects_again())


class Few:
    """A set of one broker, whose run ends while it is read, so many times."""

    name = address = "broker-1"
    running = True

    def __init__(self, ends: int) -> None:
        self.ends = ends
        self.settled_count = 0
        self.all = [self]

    async def settled(self) -> None:
        self.settled_count += 1

    async def stopped_alike(self) -> None:
        assert self.ends == 0

    def read(self, _seed: int, _address: str) -> list[Delivery]:
        if self.ends:
            self.ends -= 1
            raise Closed("end of stream")
        return [Delivery(0, 0, "0.1", self.name)]


def last_reading(few: Few, monkeypatch: pytest.MonkeyPatch) -> list[Delivery]:
    monkeypatch.setattr(torment, "read_all", few.read)
    return asyncio.run(torment.Torment("hosts", 1).read(few, few))


def test_a_broker_whose_run_ends_while_it_is_read_is_read_again_when_all_are_even(
        monkeypatch: pytest.MonkeyPatch) -> None:
    few = Few(torment.READS_MAX - 1)

    assert len(last_reading(few, monkeypatch)) == 1
    assert few.settled_count == torment.READS_MAX - 1


def test_a_broker_that_ends_at_each_reading_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Closed):
        last_reading(Few(torment.READS_MAX), monkeypatch)
