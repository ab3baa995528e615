"""Whichever process dies, whenever: nothing acknowledged is lost or doubled, and clients go on."""
from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from mqcore.client import ConsumeContext, ConsumeFrom, PushConsumer, ReceivedMessage
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.workers.load import TOPIC, Load, Name, Promises, audit, load, name_of
from tests.workers.processes import ROLES, by_role, kill, wait_for_async

SEED = int(os.environ.get("MQCORE_TEST_SEED", random.randrange(1 << 30)))
KILLS = int(os.environ.get("MQCORE_TEST_KILLS", "20"))
ACKS_BETWEEN_MAX = 600


async def kill_and_go_on(broker: MqcoreProcess, running: Load, role: str) -> None:
    """Kill one process, wait for its successor and for new acknowledgements."""
    before = kill(broker, role)
    await wait_for_async(lambda: by_role(broker).get(role, before) != before,
                         f"{role} is started again")
    await running.acknowledged(1)


async def under_kills(broker: MqcoreProcess, dice: random.Random) -> tuple[Promises, set[Name]]:
    consumed: set[Name] = set()

    def listener(messages: list[ReceivedMessage], _context: ConsumeContext) -> None:
        consumed.update(name_of(message.body) for message in messages)

    consumer = PushConsumer("witness", listener, namesrv=broker.namesrv_addr,
                            consume_from=ConsumeFrom.FIRST_OFFSET, consume_batch_size=32)
    consumer.subscribe(TOPIC)
    async with load(broker.broker_addr, SEED) as running, consumer:
        roles = [ROLES[n % len(ROLES)] for n in range(KILLS)]
        dice.shuffle(roles)
        for role in roles:
            await running.acknowledged(dice.randrange(1, ACKS_BETWEEN_MAX))
            await kill_and_go_on(broker, running, role)
        await running.acknowledged(ACKS_BETWEEN_MAX)
        promises = await running.stop()
        await wait_for_async(lambda: consumed >= promises.acknowledged.keys(),
                             "the consumer has all that was acknowledged")
    return promises, consumed


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_kills_of_any_process_under_load_lose_and_double_nothing(
    tmp_path: Path, flush: str
) -> None:
    print(f"seed {SEED}")
    with mqcore_up(tmp_path, {"store.flush": flush}) as broker:
        promises, consumed = asyncio.run(under_kills(broker, random.Random(SEED)))
        there = audit(broker.broker_addr, promises)
        assert consumed <= there
    print(f"{len(promises.acknowledged)} acknowledged of {sum(promises.sent.values())}, "
          f"{promises.lost_connections} connections lost, refused {dict(promises.refused)}")


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_kill_of_all_processes_at_once_loses_and_doubles_nothing(
    tmp_path: Path, flush: str
) -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    promised: dict[Name, tuple[int, int]] = {}

    async def until_killed(broker: MqcoreProcess, first: int) -> Promises:
        async with load(broker.broker_addr, SEED, first=first) as running:
            await running.acknowledged(dice.randrange(1, 2000))
            broker.kill()
            return await running.stop()

    for life in range(4):
        with mqcore_up(tmp_path, {"store.flush": flush}) as broker:
            promises = asyncio.run(until_killed(broker, 100 * life))
            promised |= promises.acknowledged
    with mqcore_up(tmp_path, {"store.flush": flush}) as broker:
        audit(broker.broker_addr, promises, others=promised)
