"""
Master, slave and clients on hosts of their own: cables are pulled and plugged, packets go one way.

No end is told: what is on its way is sent again by TCP, or given up.
"""
from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.replication.faults.brokers import brokers, ha_port
from tests.replication.faults.namespaces import Hosts, hosts
from tests.replication.faults.torment import SOAK_S, Torment, runs
from tests.replication.faults.traffic import Traffic, traffic
from tests.support.nursery import nursery

APART_S_MAX = 0.25
PORT, NAMESRV_PORT = 21_911, 21_876         # the same on each host


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_hosts_apart_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with hosts("master", "slave", "clients") as net:
        nursery()                              # it begins here, and not on a host
        for torment, folder in runs("hosts", tmp_path):
            net.run_in("clients", partial(asyncio.run, apart(torment, net, folder)))


async def apart(torment: Torment, net: Hosts, folder: Path) -> None:
    def settings(host: str, other: str) -> dict[str, object]:
        return {
            "replication.master_address": ha_port(f"{net.address(other)}:{PORT}"),
            "broker.listen_port": PORT, "broker.listen_host": net.address(host),
            "broker.advertised_ip": net.address(host),
            "namesrv.listen_host": net.address(host), "namesrv.listen_port": NAMESRV_PORT}

    async with brokers(folder) as pair:
        namesrv = f"{net.address('master')}:{NAMESRV_PORT}"
        master = await pair.add("master", {**settings("master", "slave"), "namesrv.embedded": True},
                                program=net.program("master"), namesrv=namesrv)
        slave = await pair.add("slave", {
            **settings("slave", "master"), "replication.role": "slave", "broker.id": 1,
        }, program=net.program("slave"), namesrv=namesrv)

        async def cuts(load: Traffic) -> None:
            dice = torment.dice
            while torment.lacks_faults:
                await load.acknowledged(1)
                kind = dice.choice(("unplugged", "deaf"))
                host, other = dice.sample(net.names, 2)
                if kind == "unplugged":
                    await asyncio.to_thread(net.unplug, host)
                else:
                    await asyncio.to_thread(net.deafen, host, other)
                await asyncio.sleep(dice.uniform(0.02, APART_S_MAX))
                if kind == "unplugged":
                    await asyncio.to_thread(net.plug, host)
                else:
                    await asyncio.to_thread(net.hear, host, other)
                torment.count(f"{host} {kind}", True)

        async with traffic(torment.history, pair.leads, pair.follows) as load:
            await load.acknowledged(1)
            await torment.all_of(load, cuts(load))
            await asyncio.to_thread(net.unplug, "master")
            await asyncio.sleep(APART_S_MAX)
            await asyncio.to_thread(master.kill)
            await asyncio.to_thread(net.plug, "master")
            torment.count("master lost", True)
            await pair.promote(slave)
            await pair.rejoin(master, 1)
            await torment.verdict(pair, load)
