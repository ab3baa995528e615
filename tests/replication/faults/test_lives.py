"""
Three brokers elect their leader by etcd; topics are deleted and made again, disks fill and are
lost, and brokers are killed or stand still. In a soak a stock broker is a slave beside them, and
their name server is a stock one.
"""
from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.replication.faults.brokers import Broker, brokers, ha_port
from tests.replication.faults.lives import Lives
from tests.replication.faults.stock import STOCK, Place
from tests.replication.faults.test_elections import LEASE_S, MEMBERS, WHOLE_S, Elected
from tests.replication.faults.torment import SOAK_S, Torment, runs
from tests.replication.faults.traffic import FOLLOWER, Traffic
from tests.replication.stores import log_of
from tests.support.etcd import EtcdServer, etcd_server
from tests.support.mounted import mounted
from tests.support.stock import have_stock, start_namesrv
from tests.support.waiting import wait_until
from tests.workers.test_full_disk import fill

DISK_BYTES = 160 << 20
FULL_S = (0.5, 6.0)                   # a leader gives up after a second
# a stock slave says nothing for a second after it has connected
BESIDE_STOCK = {"replication.housekeeping_interval_ms": 3000}
WAYS = ("killed", "disk full", "stands still", "disk lost", "disk full", "process killed")


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_lives_of_topics_outlast_elections_and_full_disks(tmp_path: Path) -> None:
    for torment, folder in runs("lives", tmp_path):
        with etcd_server(folder) as etcd, contextlib.ExitStack() as disks:
            for number in range(1, MEMBERS + 1):
                disks.enter_context(mounted(folder / f"broker-{number}" / "store",
                                            f"size={DISK_BYTES}"))
            asyncio.run(lives(torment, folder, etcd))


async def full(torment: Torment, broker: Broker) -> None:
    """Its disk has no room for a while."""
    filler = fill(broker.store)
    await asyncio.sleep(torment.dice.uniform(*FULL_S))
    os.unlink(filler)
    torment.count("disk full", True)


async def emptied(torment: Torment, elected: Elected) -> None:
    """A follower loses its disk, while all others have what it had: it begins with nothing."""
    await asyncio.to_thread(wait_until, elected.are_whole, "all are in the set", WHOLE_S)
    leader = await elected.some_leader()
    broker = torment.dice.choice([one for one in elected.set.all if one is not leader])
    await asyncio.to_thread(broker.kill)
    for path in broker.store.iterdir():
        await asyncio.to_thread(shutil.rmtree if path.is_dir() else os.unlink, path)
    await asyncio.to_thread(broker.start)
    torment.count("disk lost", True)


class StockSlave:
    """
    A stock broker behind the leader of the moment. It may have more than the next one, and knows no
    epochs: it is emptied before it follows again.
    """

    def __init__(self, torment: Torment, elected: Elected) -> None:
        self._torment, self._elected = torment, elected
        self._dice = random.Random(f"{torment.seed} stock")
        folder = elected.set.folder / STOCK
        folder.mkdir()
        self._place = Place(STOCK, STOCK, folder, elected.set.all[0].namesrv, MEMBERS + 1, "")

    async def run(self) -> None:
        """Lives, each ended with -9, for as long as the run continues."""
        while self._torment.lacks_faults:
            await self._follow()
            await asyncio.sleep(self._dice.uniform(0, 3))
            if self._place.running is not None:
                await asyncio.to_thread(self._place.kill)

    async def _follow(self) -> None:
        """From nothing; without a leader, behind the one before."""
        leader = await asyncio.to_thread(self._elected.leader)
        await asyncio.to_thread(shutil.rmtree, self._place.store, ignore_errors=True)
        if leader is not None:
            self._place.before = ha_port(leader.address)
        if self._place.before:
            await asyncio.to_thread(self._place.start)

    async def copied(self) -> None:
        """It gets all that the leader has by now; nothing fails meanwhile."""
        leader = await self._elected.some_leader()
        await self._follow()
        end = leader.log_end()
        await asyncio.to_thread(wait_until, lambda: self._place.ends()[0] >= end,
                                "the stock slave has the log")
        await asyncio.to_thread(self._place.stop)

    def holds_alike(self) -> None:
        """When all have ended: its log is the beginning of theirs."""
        log, here = log_of(self._elected.set.all[0].store), log_of(self._place.store)
        assert here
        assert log.startswith(here), f"the stock slave's log of {len(here)} bytes is another one"


async def lives(torment: Torment, folder: Path, etcd: EtcdServer) -> None:
    has_stock = bool(SOAK_S) and have_stock()
    async with brokers(folder) as set_, AsyncExitStack() as life:
        namesrv = ""
        if has_stock:
            names = await asyncio.to_thread(start_namesrv, folder / "stock-names")
            life.push_async_callback(asyncio.to_thread, names.stop)
            namesrv = names.addr
        for number in range(1, MEMBERS + 1):
            await set_.add(f"broker-{number}", {
                "broker.id": number, "failover.enable": True, "failover.lease_seconds": LEASE_S,
                "failover.etcd": [etcd.address], "store.disk_clean_enable": False,
                **(BESIDE_STOCK if has_stock else {})}, namesrv=namesrv)
        elected = Elected(torment, set_, etcd, {})
        load = Traffic(torment.history)
        for broker in set_.all:
            load.send_to(lambda broker=broker: broker.address)
        await elected.some_leader()
        load.read_from(set_.leads)
        load.read_from(set_.follows, FOLLOWER)
        topics = Lives(torment, elected.leader)
        stock = StockSlave(torment, elected) if has_stock else None

        async def faults() -> None:
            order = torment.dice.sample(WAYS, len(WAYS))
            while order or torment.lacks_faults:
                await load.acknowledged(torment.dice.randrange(1, 200))
                way = order.pop() if order else torment.dice.choice(WAYS)
                if way == "disk full":
                    await full(torment, torment.dice.choice([await elected.some_leader(),
                                                             *set_.all]))
                elif way == "disk lost":
                    await emptied(torment, elected)
                else:
                    await elected.fault(way)

        try:
            await load.acknowledged(1)
            await torment.all_of(load, faults(), topics.run(), *([stock.run()] if stock else ()))
            await asyncio.to_thread(wait_until, elected.are_whole, "all are in the set again",
                                    WHOLE_S)
            await elected.some_leader()
            asked = [await asyncio.to_thread(topics.check, one.address) for one in set_.all]
            print(f"lives: {topics.deleted} are over; {asked[0]} messages of the present ones")
            assert asked[0] > 0
            assert topics.deleted > 0
            if stock is not None:
                await stock.copied()
            await torment.verdict(set_, load)
            if stock is not None:
                await asyncio.to_thread(stock.holds_alike)
        finally:
            await load.stop()
