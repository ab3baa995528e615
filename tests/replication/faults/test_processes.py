"""Each process of a master and of its slave dies and stands still, while clocks are set."""
from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.replication.faults.brokers import brokers
from tests.replication.faults.relay import relay
from tests.replication.faults.torment import SOAK_S, Torment, runs
from tests.replication.faults.traffic import Traffic, traffic
from tests.support.failing_disk import compiler
from tests.support.stepping_clock import SteppingClock

PAUSES = 0.3                          # of the blows that a process gets; the others kill it
STEPS_S = (-3600.0, -5.0, -0.5, 0.0, 0.5, 5.0, 3600.0)
LINK_PAUSE_S = 0.3


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_dying_processes_lose_nothing_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for torment, folder in runs("processes", tmp_path):
        asyncio.run(processes(torment, folder, monkeypatch))


async def processes(torment: Torment, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks: list[SteppingClock] = []

    def clock(life: ExitStack) -> None:
        """Who is started now goes by a clock of its own."""
        if compiler() is not None:
            clocks.append(SteppingClock.create(folder / f"clock-{len(clocks)}"))
            life.enter_context(clocks[-1].worn(monkeypatch))

    async with brokers(folder) as pair, relay(pair.leads_ha) as link:
        with ExitStack() as life:
            clock(life)
            await pair.add("master", {})
        with ExitStack() as life:
            clock(life)
            await pair.add("slave", {"replication.role": "slave", "broker.id": 1,
                                     "replication.master_address": link.address})

        async def blows(load: Traffic) -> None:
            while torment.lacks_faults:
                places = [(broker, role) for broker in pair.all for role in broker.roles]
                for broker, role in torment.dice.sample(places, len(places)):
                    await torment.some_progress(load)
                    if torment.dice.random() < PAUSES:
                        await torment.pause(broker, role)
                    else:
                        await torment.kill(broker, role)

        async def steps() -> None:
            dice = random.Random(f"{torment.seed} clocks")
            while clocks and torment.lacks_faults:
                await asyncio.sleep(dice.uniform(0.2, 0.8))
                one, ahead_s = dice.choice(clocks), dice.choice(STEPS_S)
                torment.count("clock step", one.ahead_s != ahead_s)
                one.ahead_s = ahead_s

        async with traffic(torment.history, pair.leads, pair.follows) as load:
            await load.acknowledged(1)
            await torment.all_of(load, blows(load), steps(),
                                 torment.links(link, pause_s=LINK_PAUSE_S))
            await torment.verdict(pair, load)
