"""The disk of a slave is full, again and again; then the master is lost."""
from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.replication.faults.brokers import brokers
from tests.replication.faults.torment import SOAK_S, Torment, runs
from tests.replication.faults.traffic import traffic
from tests.support.mounted import mounted
from tests.workers.test_full_disk import fill

DISK_BYTES = 64 << 20
SEGMENT_BYTES = 1 << 20               # so that the log meets the end of the disk often
BEHIND_BYTES = 20_000
LOOK_S = 0.2
STUCK_S_MAX = 20.0


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_a_slave_whose_disk_is_full_says_nothing_that_is_not_so(tmp_path: Path) -> None:
    for torment, folder in runs("disk", tmp_path):
        with mounted(folder / "slave" / "store", f"size={DISK_BYTES}") as disk:
            asyncio.run(full(torment, folder, disk))


async def full(torment: Torment, folder: Path, disk: Path) -> None:
    sizes = {"store.segment_size_bytes": SEGMENT_BYTES, "store.disk_clean_enable": False}
    async with brokers(folder) as pair:
        master = await pair.add("master", sizes)
        slave = await pair.add("slave", {
            **sizes, "replication.role": "slave", "broker.id": 1})

        async def gets_stuck() -> bool:
            """Whether it stays where it is, while the master has much more."""
            deadline = asyncio.get_running_loop().time() + STUCK_S_MAX
            while asyncio.get_running_loop().time() < deadline:
                at = slave.log_end()
                await asyncio.sleep(LOOK_S)
                if slave.log_end() == at and master.log_end() > at + BEHIND_BYTES:
                    return True
            return False

        async with traffic(torment.history, pair.leads, pair.follows) as load:
            await load.acknowledged(1)
            while torment.lacks_faults:
                filler = fill(disk, leave=torment.dice.choice((0, 4096, 300_000)))
                torment.count("disk full", await gets_stuck())
                os.unlink(filler)
                await load.acknowledged(torment.dice.randrange(1, 50))
            await asyncio.to_thread(master.kill)
            torment.count("master lost", True)
            await pair.promote(slave)
            await pair.rejoin(master, 1)
            await torment.verdict(pair, load)
