"""
Whichever process of a master or its slave dies, whenever: what was acknowledged, the slave has.

MQCORE_TEST_KILLS sets how many processes are killed in each flush mode, MQCORE_TEST_SEED the dice.
"""
from __future__ import annotations

import asyncio
import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from mqcore.client import AsyncProducer, Message, RocketMQError, SendStatus
from tests.replication.pairs import NAME, slave_up
from tests.replication.stores import hold_alike, log_of
from tests.support.dice import seed_of_run
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.workers.processes import by_role, kill

pytestmark = pytest.mark.timeout(300)
SEED = seed_of_run()
KILLS = int(os.environ.get("MQCORE_TEST_KILLS", "6"))
MOMENT_S_MAX = 0.05
ACKS_BETWEEN_MAX = 150
AT_ONCE = 30
SEGMENT_SIZE = 1 << 20
AWAY_S = 0.01                      # between two sends that end at once: nobody is there
NAMES = re.compile(rb"message-\d{8};")
SMALL: dict[str, object] = {
    "store.segment_size_bytes": SEGMENT_SIZE, "store.message_size_max_bytes": 65_536}
MASTER = ("ha-master", "writer", "dispatcher", "pull-serving-0")
SLAVE = ("ha-slave", "writer", "dispatcher")


def kill_one(broker: MqcoreProcess, role: str) -> None:
    """One that may just be starting again."""
    wait_until(lambda: role in by_role(broker), f"a {role}")
    kill(broker, role)


class Load:
    """Producers that send until they are told to stop; what was promised of each message."""

    def __init__(self, namesrv: str) -> None:
        self.outcomes: Counter[str] = Counter()
        self.promised: set[bytes] = set()
        self._namesrv = namesrv
        self._number = 0
        self._stopping = False

    async def __aenter__(self) -> Load:
        self._producer = AsyncProducer("kills", namesrv=self._namesrv, retry_count=0)
        await self._producer.start()
        self._tasks = [asyncio.create_task(self._send()) for _ in range(AT_ONCE)]
        return self

    def stop(self) -> None:
        """No message begins any more."""
        self._stopping = True

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await asyncio.gather(*self._tasks)
        await self._producer.close()

    @property
    def acknowledged(self) -> int:
        return len(self.promised)

    async def _send(self) -> None:
        while not self._stopping:
            self._number += 1
            name = b"message-%08d;" % self._number
            try:
                result = await self._producer.send(
                    Message("TopicTest", name + os.urandom(random.randrange(400))))
            except RocketMQError as error:
                self.outcomes[type(error).__name__] += 1
                await asyncio.sleep(AWAY_S)
                continue
            self.outcomes[result.status.name] += 1
            if result.status == SendStatus.SEND_OK:
                self.promised.add(name)

    async def more(self, count: int) -> None:
        """Waits until so many more are acknowledged."""
        wanted = self.acknowledged + count
        async with asyncio.timeout(60):
            while self.acknowledged < wanted:
                await asyncio.sleep(0.002)


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_slave_has_what_was_acknowledged_whoever_dies(tmp_path: Path, flush: str) -> None:
    print(f"seed {SEED}")
    dice = random.Random(f"{SEED}{flush}")

    async def torment(load: Load, victims: list[tuple[MqcoreProcess, str]]) -> None:
        async with load:
            await load.more(1)
            for victim in victims:
                await load.more(dice.randint(1, ACKS_BETWEEN_MAX))
                await asyncio.sleep(dice.uniform(0, MOMENT_S_MAX))
                await asyncio.to_thread(kill_one, *victim)
            await load.more(dice.randint(1, ACKS_BETWEEN_MAX))
            await asyncio.to_thread(victims[0][0].kill)            # of the master all at once

    with mqcore_namesrv(tmp_path / "names") as names:
        settings = {**SMALL, "broker.name": NAME, "store.flush": flush,
                    "replication.role": "sync-master", "replication.listen": True}
        with mqcore_up(tmp_path / "master", settings, namesrv_addr=names.namesrv_addr) as master:
            address = f"127.0.0.1:{int(master.broker_addr.rpartition(':')[2]) + 1}"
            with slave_up(tmp_path / "slave", names.namesrv_addr, {
                    **SMALL, "store.flush": flush, "replication.master_address": address,
                    }) as slave:
                places = [(master, role) for role in MASTER] + [(slave, role) for role in SLAVE]
                victims = [(master, "ha-master"), *(dice.choice(places) for _ in range(KILLS))]
                load = Load(names.namesrv_addr)
                asyncio.run(torment(load, victims))
                print(dict(load.outcomes))
                assert load.acknowledged > len(victims)
                assert load.promised - set(NAMES.findall(log_of(slave.store))) == set()

                with mqcore_up(tmp_path / "master", settings | {
                        "broker.listen_port": int(master.broker_addr.rpartition(":")[2])},
                        namesrv_addr=names.namesrv_addr) as again:
                    wait_until(lambda: log_of(again.store) == log_of(slave.store), "the same log")
                wait_until(lambda: set(SLAVE) <= by_role(slave).keys(), "what was killed last")
    hold_alike({"slave": slave.store, "master": tmp_path / "master" / "store"})
