"""
Three brokers elect by etcd who of them leads, while who leads dies, stands still or is cut off.

Clients send to each of them all the time, whoever leads: two may never acknowledge at once.
"""
from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mqcore.failover.keys import Names, View, view_of
from tests.replication.faults.brokers import Broker, Brokers, brokers
from tests.replication.faults.relay import FaultyRelay, relay
from tests.replication.faults.torment import SOAK_S, Torment, runs
from tests.replication.faults.traffic import FOLLOWER, Traffic
from tests.replication.pairs import NAME
from tests.support.etcd import EtcdServer, etcd_server
from tests.support.waiting import wait_until

MEMBERS = 3
LEASE_S = 1
KEYS = Names.of("DefaultCluster", NAME)
WAYS = ("killed", "killed", "stands still", "without etcd", "process killed", "process killed",
        "process stands still", "etcd stands still")
LONG_S = (1.0, 1.8)                   # times the lease: others lead meanwhile
RETURN_S = 60.0
WHOLE_S = 240.0                       # an election, a log that is cut, its repair; each a new run


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_elections_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    for torment, folder in runs("elections", tmp_path):
        with etcd_server(folder) as etcd:
            asyncio.run(elections(torment, folder, etcd))


class Elected:
    """A set that elects, each member's way to etcd, and the faults of both."""

    def __init__(self, torment: Torment, set_: Brokers, etcd: EtcdServer,
                 ways: dict[str, FaultyRelay]) -> None:
        self.torment, self.set, self.etcd, self.ways = torment, set_, etcd, ways
        self.dice = torment.dice

    def view(self) -> View:
        with contextlib.closing(self.etcd.client()) as client:
            return view_of(KEYS, client.below(KEYS.prefix))

    def leader(self) -> Broker | None:
        """As etcd says."""
        master = self.view().master
        return None if master is None else self.set.all[master.member - 1]

    async def some_leader(self) -> Broker:
        """Who leads, when somebody does."""
        deadline = asyncio.get_running_loop().time() + RETURN_S
        while True:
            found = await asyncio.to_thread(self.leader)
            if found is not None and await asyncio.to_thread(found.looks_again):
                self.set.leader = found
                return found
            assert asyncio.get_running_loop().time() < deadline, "nobody leads"
            await asyncio.sleep(0.05)

    async def fault(self, way: str) -> None:
        broker = await self.some_leader()
        if self.dice.random() < 0.3:
            broker = self.dice.choice(self.set.all)
        self.torment.history.note(f"{broker.name}: {way}")
        met = True
        if way == "killed":
            await asyncio.to_thread(broker.kill)
            await asyncio.sleep(self.dice.uniform(0, 2 * LEASE_S))
            await asyncio.to_thread(broker.start)
        elif way == "stands still":
            await self._still(broker.process.family())
        elif way == "without etcd":
            self.ways[broker.name].part()
            await asyncio.sleep(LEASE_S * self.dice.uniform(*LONG_S))
            self.ways[broker.name].isolated = False
        elif way == "etcd stands still":
            self.etcd.stop_answering()
            await asyncio.sleep(LEASE_S * self.dice.uniform(0.1, LONG_S[1]))
            self.etcd.answer_again()
        else:
            family = broker.process.family()[1:]     # empty between two runs
            some = [self.dice.choice(family)] if family else []
            if way == "process stands still":
                await self._still(some)
            else:
                met = any(signal_to(pid, signal.SIGKILL) for pid in some)
                await asyncio.to_thread(self._as_a_service, broker)
        self.torment.count(way, met)
        await self.some_leader()

    @staticmethod
    def _as_a_service(broker: Broker) -> None:
        """A writer that is killed in its recovery ends its broker, and a service starts again."""
        process = broker.process.process
        wait_until(lambda: broker.looks_again() or process.poll() is not None,
                   f"{broker.name} works again, or has ended", WHOLE_S)
        if process.poll() is not None:
            assert "the broker could not be started" in broker.process.tail(), broker.process.tail()
            broker.stop()
            broker.start()

    async def _still(self, pids: list[int]) -> None:
        for pid in pids:
            signal_to(pid, signal.SIGSTOP)
        await asyncio.sleep(LEASE_S * self.dice.uniform(*LONG_S))
        for pid in pids:
            signal_to(pid, signal.SIGCONT)

    async def ways_to_etcd(self, broker: Broker) -> None:
        """Questions to etcd are late, slow, cut off."""
        link = self.ways[broker.name]
        dice = random.Random(f"{self.torment.seed} {broker.name}")
        kinds = (FaultyRelay.cut, FaultyRelay.stall, FaultyRelay.delay, FaultyRelay.crumble)
        while self.torment.lacks_faults:
            kind = dice.choice(kinds)
            self.torment.count(f"etcd {kind.__name__}", await kind(link, dice))
            await asyncio.sleep(dice.uniform(0.2, 1.5))

    def are_whole(self) -> bool:
        """All are in the set, and what they are they have begun to be."""
        view = self.view()
        return (view.master is not None and view.state is not None
                and view.state.in_sync == frozenset(range(1, MEMBERS + 1))
                and all(one.looks_again() for one in self.set.all))


def signal_to(pid: int, number: signal.Signals) -> bool:
    """False: it has gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


async def elections(torment: Torment, folder: Path, etcd: EtcdServer) -> None:
    async with brokers(folder) as set_, AsyncExitStack() as relays:
        ways = {}
        for number in range(1, MEMBERS + 1):
            name = f"broker-{number}"
            ways[name] = await relays.enter_async_context(
                relay(lambda: etcd.address.removeprefix("http://")))
            await set_.add(name, {
                "broker.id": number, "failover.enable": True, "failover.lease_seconds": LEASE_S,
                "failover.etcd": [f"http://{ways[name].address}"]})
        elected = Elected(torment, set_, etcd, ways)
        load = Traffic(torment.history)
        for broker in set_.all:
            load.send_to(lambda broker=broker: broker.address)
        await elected.some_leader()
        load.read_from(set_.leads)
        load.read_from(set_.follows, FOLLOWER)

        async def faults() -> None:
            order = torment.dice.sample(WAYS, len(WAYS))
            while order or torment.lacks_faults:
                await load.acknowledged(torment.dice.randrange(1, 40))
                await elected.fault(order.pop() if order else torment.dice.choice(WAYS))

        try:
            await load.acknowledged(1)
            await torment.all_of(load, faults(), *map(elected.ways_to_etcd, set_.all))
            try:
                # in a thread: the ways to etcd are in this loop, and may not wait for the looks
                await asyncio.to_thread(
                    wait_until, elected.are_whole, "all are in the set again", WHOLE_S)
            except AssertionError as error:
                raise AssertionError("\n".join([str(error), f"{elected.view()}", *(
                    f"{one.name}: {one.process.tail()[-1500:]}" for one in set_.all)])) from None
            await elected.some_leader()
            await torment.verdict(set_, load)
            assert load.moved == []              # whoever reads, at whomever, goes on (FO10)
        finally:
            await load.stop()
