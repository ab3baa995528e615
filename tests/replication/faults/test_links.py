"""Links between a master and its slaves fail all the time, each for itself; then it is lost."""
from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.replication.faults.brokers import Broker, Brokers, brokers
from tests.replication.faults.relay import FaultyRelay, relay
from tests.replication.faults.torment import FAULTS_MIN, PLAN, SOAK_S, Torment, runs
from tests.replication.faults.traffic import traffic

SLAVES = 5
APART_S_MAX = 0.2


def test_the_runs_have_enough_faults_together() -> None:
    assert sum(PLAN.values()) >= FAULTS_MIN


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_failing_links_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    for torment, folder in runs("links", tmp_path):
        asyncio.run(links(torment, folder))


async def links(torment: Torment, folder: Path) -> None:
    async with brokers(folder) as all_, AsyncExitStack() as relays:
        await all_.add("master", {})
        links = [await relays.enter_async_context(relay(all_.leads_ha)) for _ in range(SLAVES)]
        for number, link in enumerate(links, 1):
            await all_.add(f"slave-{number}", {
                "replication.role": "slave", "broker.id": number,
                "replication.master_address": link.address})
        async with traffic(torment.history, all_.leads, all_.follows) as load:
            await load.acknowledged(1)
            await torment.all_of(load, torment.lies(all_), *(
                torment.links(link, str(number)) for number, link in enumerate(links)))
            await lose_master(torment, all_, links)
            await torment.verdict(all_, load)


async def lose_master(torment: Torment, all_: Brokers, links: list[FaultyRelay]) -> None:
    """One slave after another is cut off, then all of the master dies; the furthest is promoted."""
    old, slaves = all_.leader, all_.followers
    assert old is not None
    for link in torment.dice.sample(links, len(links)):
        link.part()
        await asyncio.sleep(torment.dice.uniform(0, APART_S_MAX / len(links)))
    await asyncio.to_thread(old.kill)
    torment.count("master lost", True)
    await all_.promote(max(slaves, key=Broker.log_end))
    for link in links:
        link.isolated = False
    await all_.rejoin(old, SLAVES + 1)
