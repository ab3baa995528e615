"""
Brokers that elect who leads, etcd and clients, each on a host of its own: who leads is cut off from
all, from etcd or from those that follow it, both ways or one way.

Clients send to each broker all the time, whoever leads: two may never acknowledge at once.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.replication.faults.brokers import Broker, Brokers, brokers
from tests.replication.faults.history import FLUSH_SLAVE_TIMEOUT, OK, SLAVE_NOT_AVAILABLE
from tests.replication.faults.namespaces import Hosts, hosts
from tests.replication.faults.test_elections import LEASE_S, WHOLE_S, Elected
from tests.replication.faults.torment import SOAK_S, Torment, runs
from tests.replication.faults.traffic import FOLLOWER, Traffic
from tests.support.etcd import EtcdServer, etcd_server
from tests.support.nursery import nursery
from tests.support.waiting import wait_until, wait_until_async

PORT = 21_911                         # the same on each host
BROKERS = ("broker-1", "broker-2", "broker-3")
ETCD, CLIENTS = "etcd", "clients"
UNPLUGGED = "unplugged"
# of who leads; where etcd does not hear it, or is not heard, another one has to lead
FROM_ETCD = ("hears not etcd", "unheard by etcd")
FROM_FOLLOWERS = ("hears no follower", "unheard by followers", "without followers")
WAYS = (UNPLUGGED, *FROM_ETCD, *FROM_FOLLOWERS)
ACKS_BETWEEN_MAX = 100
UNACKNOWLEDGED = 20                   # answers that say that nobody else has it


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_partitions_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with hosts(*BROKERS, ETCD, CLIENTS) as net:
        nursery()                              # it begins here, and not on a host
        for torment, folder in runs("partitions", tmp_path):
            net.run_in(CLIENTS, partial(one_run, torment, net, folder))


def one_run(torment: Torment, net: Hosts, folder: Path) -> None:
    with etcd_server(folder, ip=net.address(ETCD), within=net.within(ETCD)) as etcd:
        asyncio.run(partitions(torment, net, folder, etcd))


class Parted(Elected):
    """A set whose members are on hosts."""

    def __init__(self, torment: Torment, set_: Brokers, etcd: EtcdServer, net: Hosts) -> None:
        super().__init__(torment, set_, etcd, {})
        self.net = net

    async def part(self, load: Traffic, way: str) -> None:
        """Who leads is cut off until that has told."""
        leader = await self.some_leader()
        self.torment.history.note(f"{leader.name}: {way}")
        mend = self._cut(leader.name, way)
        if way in FROM_FOLLOWERS:
            before = unacknowledged(load)
            await wait_until_async(lambda: unacknowledged(load) > before + UNACKNOWLEDGED,
                                   f"{leader.name}, {way}, acknowledges nothing")
        else:
            await asyncio.to_thread(wait_until, lambda: self.leads_another(leader),
                                    f"another one than {leader.name}, {way}, leads")
        for one in mend:
            one()
        self.torment.count(way, True)
        await self.some_leader()

    def leads_another(self, than: Broker) -> bool:
        return self.leader() not in (None, than)

    def _cut(self, leader: str, way: str) -> list[Callable[[], None]]:
        """From now on; what ends it."""
        if way == UNPLUGGED:
            self.net.unplug(leader)
            return [partial(self.net.plug, leader)]
        others = [ETCD] if way in FROM_ETCD else [one for one in BROKERS if one != leader]
        deaf: list[tuple[str, str]] = []
        if not way.startswith("unheard"):
            deaf += [(leader, other) for other in others]
        if not way.startswith("hears"):
            deaf += [(other, leader) for other in others]
        for host, to in deaf:
            self.net.deafen(host, to)
        return [partial(self.net.hear, host, to) for host, to in deaf]


def unacknowledged(load: Traffic) -> int:
    return load.answers[FLUSH_SLAVE_TIMEOUT] + load.answers[SLAVE_NOT_AVAILABLE]


async def partitions(torment: Torment, net: Hosts, folder: Path, etcd: EtcdServer) -> None:
    async with brokers(folder, net.address(CLIENTS), net.program(CLIENTS)) as set_:
        for number, name in enumerate(BROKERS, 1):
            await set_.add(name, {
                "broker.id": number, "broker.listen_host": net.address(name),
                "broker.advertised_ip": net.address(name), "broker.listen_port": PORT,
                "failover.enable": True, "failover.lease_seconds": LEASE_S,
                "failover.etcd": [etcd.address]}, program=net.program(name))
        elected = Parted(torment, set_, etcd, net)
        load = Traffic(torment.history)
        for broker in set_.all:
            load.send_to(lambda broker=broker: broker.address)
        await elected.some_leader()
        load.read_from(set_.leads)
        load.read_from(set_.follows, FOLLOWER)

        async def parts() -> None:
            todo: list[str] = []
            while torment.lacks_faults:
                todo = todo or torment.dice.sample(WAYS, len(WAYS))
                await load.acknowledged(torment.dice.randrange(1, ACKS_BETWEEN_MAX))
                await elected.part(load, todo.pop())

        try:
            await load.acknowledged(1)
            await torment.all_of(load, parts())
            await asyncio.to_thread(
                wait_until, elected.are_whole, "all are in the set again", WHOLE_S)
            await elected.some_leader()
            assert load.answers[OK] > torment.least
            await torment.verdict(set_, load)
        finally:
            await load.stop()
