"""
An operator promotes the slave of a master that has died, or that nobody reaches, again and again.

The former master comes back by `mqcore replication rejoin` each time. Links fail meanwhile.
"""
from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.replication.faults.brokers import Broker, Brokers, brokers
from tests.replication.faults.relay import FaultyRelay, relay
from tests.replication.faults.torment import SOAK_S, Torment, runs
from tests.replication.faults.traffic import Traffic, traffic

WAYS = ("killed", "supervisor killed", "killed with what no slave has", "both up")
ROUNDS_MIN = len(WAYS) + 1
LINK_PAUSE_S = 0.05
ACKS_BETWEEN_MAX = 200


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_promotions_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    for torment, folder in runs("failovers", tmp_path):
        asyncio.run(failovers(torment, folder))


async def failovers(torment: Torment, folder: Path) -> None:
    async with brokers(folder) as pair, relay(pair.leads_ha) as link:
        settings = {"replication.master_address": link.address}
        await pair.add("a", settings)
        await pair.add("b", {**settings, "replication.role": "slave", "broker.id": 1})

        async def rounds(load: Traffic) -> None:
            order: list[str] = []
            done = 0
            while done < ROUNDS_MIN or torment.lacks_faults:
                order = order or torment.dice.sample(WAYS, len(WAYS))
                await load.acknowledged(torment.dice.randrange(1, ACKS_BETWEEN_MAX))
                await fail_over(torment, pair, link, load, order.pop())
                done += 1

        async with traffic(torment.history, pair.leads, pair.follows) as load:
            await load.acknowledged(1)
            await torment.all_of(load, rounds(load), torment.lies(pair),
                                 torment.links(link, pause_s=LINK_PAUSE_S))
            await torment.verdict(pair, load)


async def fail_over(torment: Torment, pair: Brokers, link: FaultyRelay, load: Traffic,
                    way: str) -> None:
    """The leader is lost, its slave is promoted, and it comes back as a slave."""
    (new,), old = pair.followers, pair.leader
    assert old is not None
    torment.history.note(f"{old.name}: {way}")
    if way == "both up":
        await both_up(pair, link, load, old, new)
    else:
        if way == "killed with what no slave has":
            link.part()
            await asyncio.sleep(torment.dice.uniform(0.02, 0.3))
        await asyncio.to_thread(
            old.kill_supervisor if way == "supervisor killed" else old.kill)
        await pair.promote(new)
    torment.count(way, True)
    link.isolated = False
    await pair.rejoin(old, 1)
    torment.history.note(f"{new.name} leads, {old.name} follows")


async def both_up(pair: Brokers, link: FaultyRelay, load: Traffic, old: Broker,
                  new: Broker) -> None:
    """Nobody has told the former master: it takes messages of those that still reach it."""
    link.part()
    clients = [load.send_to(lambda: old.address), load.read_from(lambda: old.address)]
    await pair.promote(new)
    before = load.answers.total()
    while load.answers.total() < before + 50:
        load.look()
        await asyncio.sleep(0.01)
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)
    await asyncio.to_thread(old.kill)
