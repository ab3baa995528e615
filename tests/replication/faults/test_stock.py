"""A stock master, stock slaves, and the middle of a chain die with -9, beside brokers of ours."""
from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.replication.faults.stock import OURS, STOCK, Chain, chain
from tests.replication.faults.torment import SOAK_S, Torment, runs
from tests.replication.faults.traffic import FOLLOWER, Traffic, traffic
from tests.support.stock import require_stock
from tests.support.waiting import wait_until_async

ACKS_BETWEEN_MAX = 300
AWAY_S = (0.0, 1.5)                   # until who was killed begins again


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
@pytest.mark.parametrize(("kinds", "victims"), [
    ((OURS, STOCK, OURS), (1,)), ((STOCK, OURS, STOCK), (1, 0, 2))],
    ids=["stock in the middle", "stock at both ends"])
def test_stock_brokers_that_die_lose_nothing_that_was_acknowledged(
    tmp_path: Path, kinds: tuple[str, ...], victims: tuple[int, ...],
) -> None:
    require_stock()
    for torment, folder in runs("stock", tmp_path):
        torment.history.lasting = False          # stock shows what it alone has
        asyncio.run(deaths(torment, folder, kinds, victims))


async def deaths(torment: Torment, folder: Path, kinds: tuple[str, ...],
                 victims: tuple[int, ...]) -> None:
    async with chain(folder, kinds) as made:
        async def blows(load: Traffic) -> None:
            while torment.lacks_faults:
                for victim in victims:
                    await load.acknowledged(torment.dice.randrange(1, ACKS_BETWEEN_MAX))
                    await die(torment, made, victim)

        async with traffic(torment.history, made.leads, made.follows) as load:
            await load.acknowledged(1)
            await torment.all_of(load, blows(load))
            await wait_until_async(lambda: load.read[FOLLOWER] > 0, "what a follower shows")
            await torment.verdict(made, load)


async def die(torment: Torment, made: Chain, victim: int) -> None:
    place = made.all[victim]
    torment.history.note(f"{place.name}: killed")
    await asyncio.to_thread(place.kill)
    await asyncio.sleep(torment.dice.uniform(*AWAY_S))
    await asyncio.to_thread(place.start)
    torment.count(f"kill {place.kind} {victim}", True)
