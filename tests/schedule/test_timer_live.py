"""Messages with a time of delivery on a running broker: to the millisecond, once, whatever dies."""
from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from concurrent.futures import wait
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from mqcore.client import (
    AsyncProducer,
    ConfigError,
    LocalTransactionState,
    Message,
    Producer,
    RecallOutcome,
    TransactionProducer,
)
from mqcore.shm.delays import timer_pending
from mqcore.shm.tables import QueueTable
from mqcore.wire.properties import decode_properties
from tests.schedule.desk import TIMER_TOPIC
from tests.schedule.ledger import records
from tests.schedule.test_live import KILLS, SEED, kill_and_wait
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.workers.test_end import segment_of

TOPIC = "timed"
OFTEN = {"broker.delay_offsets_persist_interval_ms": 300}


class Timed:
    """A store's log about messages with a time: when each was due, and when it came."""

    def __init__(self, log: Path) -> None:
        self.due_ms: dict[str, int] = {}
        self.came_ms: dict[str, list[int]] = defaultdict(list)
        for record in records(log):
            properties = decode_properties(record["properties"])
            name = properties.get("UNIQ_KEY", "")
            if record["topic"] == TIMER_TOPIC and "TIMER_DEL_UNIQKEY" not in properties:
                self.due_ms[name] = int(properties["TIMER_DELIVER_MS"])
            elif record["topic"] == TOPIC and "TIMER_DELIVER_MS" in properties:
                self.came_ms[name].append(record["storeTimestamp"])

    def check(self, *, twice_max: int = 0) -> None:
        early = {name: times[0] - self.due_ms[name] for name, times in self.came_ms.items()
                 if times[0] < self.due_ms[name]}
        assert not early, f"{len(early)} came early, ms: {list(early.items())[:5]}"
        missing = self.due_ms.keys() - self.came_ms.keys()
        assert not missing, f"{len(missing)} did not come: {list(missing)[:5]}"
        twice = [name for name, times in self.came_ms.items() if len(times) > 1]
        assert len(twice) <= twice_max, (
            f"{len(twice)} came more than once: "
            f"{[(name, self.due_ms[name], self.came_ms[name]) for name in twice[:5]]}")

    def late_ms(self) -> list[int]:
        return sorted(times[0] - self.due_ms[name] for name, times in self.came_ms.items())


def waiting(broker: MqcoreProcess) -> int:
    """How many messages with a time there have been."""
    return (QueueTable(segment_of(broker)).range(TIMER_TOPIC, 0) or (0, 0))[1]


def came(broker: MqcoreProcess) -> int:
    table = QueueTable(segment_of(broker))
    return sum((table.range(TOPIC, queue) or (0, 0))[1] for queue in range(8))


def send_timed(broker: MqcoreProcess, delays: list[float]) -> None:
    """A message each, all acknowledged."""
    with Producer("timed", namesrv=broker.namesrv_addr) as producer:
        producer.send("plain", b"the first record: none is made from position 0")
        producer.send(TOPIC, b"makes the topic", delay=0.001)
        soon = [producer.send_soon(TOPIC, b"x" * 100, delay=delay) for delay in delays]
        wait(soon, 60)
        assert all(one.result(0).recall_handle for one in soon)


def test_times_of_all_kinds_come_to_the_millisecond(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, OFTEN) as broker:
        with Producer("timed", namesrv=broker.namesrv_addr) as producer:
            producer.send(TOPIC, b"0", delay=0.4)
            producer.send(TOPIC, b"1", delay=timedelta(milliseconds=1300))
            producer.send(TOPIC, b"2", deliver_at=datetime.now(UTC) + timedelta(seconds=2.2))
            back = producer.send(TOPIC, b"3", delay=6)
            assert producer.recall(back) == (back.message_id, RecallOutcome.RECALLED)
            assert back.recall().recalled              # again, by the result itself
            with pytest.raises(ConfigError):
                producer.send(TOPIC, b"plain").recall()
        with TransactionProducer(
                "halves", check=lambda message: LocalTransactionState.UNKNOWN,
                namesrv=broker.namesrv_addr) as producer:
            committed = producer.send_in_transaction(
                Message(TOPIC, b"4", delay=1.1), lambda message, _: LocalTransactionState.COMMIT)
        wait_until(lambda: came(broker) == 5 and timer_pending(segment_of(broker)) == 0,
                   "all but the recalled one", 30.0)
        broker.stop()
    found = Timed(broker.store / "commitlog")
    assert found.due_ms.keys() - found.came_ms.keys() == {back.message_id}
    del found.due_ms[back.message_id]
    assert committed.message_id in found.came_ms
    found.check()


def test_a_recall_in_the_race_says_what_became_of_its_message(tmp_path: Path) -> None:
    """Each is taken back a few times around the moment at which it is due."""
    dice = random.Random(SEED)
    outcomes: dict[str, list[RecallOutcome]] = defaultdict(list)

    async def one(producer: AsyncProducer, delay: float) -> None:
        sent = await producer.send(TOPIC, b"x", delay=delay)
        await asyncio.sleep(delay + dice.uniform(-0.05, 0.02))
        for _ in range(3):
            outcomes[sent.message_id].append((await sent.recall()).outcome)
            await asyncio.sleep(0.01)

    async def all_of_them(namesrv: str) -> None:
        async with AsyncProducer("race", namesrv=namesrv) as producer:
            await producer.send(TOPIC, b"makes the topic", delay=0.001)
            await asyncio.gather(*(one(producer, dice.uniform(0.3, 2.0)) for _ in range(300)))
            surely = await producer.send(TOPIC, b"x", delay=60)
            assert (await surely.recall()).outcome is RecallOutcome.RECALLED
            outcome = RecallOutcome.RECALLED
            async with asyncio.timeout(30):
                while outcome is not RecallOutcome.DELIVERED:
                    late = await producer.send(TOPIC, b"x", delay=0.001)
                    await asyncio.sleep(0.2)
                    outcome = (await late.recall()).outcome

    with mqcore_up(tmp_path, OFTEN) as broker:
        asyncio.run(all_of_them(broker.namesrv_addr))
        wait_until(lambda: timer_pending(segment_of(broker)) == 1, "only the far one waits", 20.0)
        broker.stop()
    came_ms = Timed(broker.store / "commitlog").came_ms
    told = {name: {each for each in said if each is not RecallOutcome.DELIVERING}
            for name, said in outcomes.items()}
    wrong = {name: said for name, said in told.items()
             if said - {RecallOutcome.DELIVERED if came_ms[name] else RecallOutcome.RECALLED}}
    assert not wrong, f"{len(wrong)}: {list(wrong.items())[:5]}"


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync", "transient-pool"])
def test_kills_of_one_process_lose_and_double_nothing(tmp_path: Path, flush: str) -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    total = 0
    with mqcore_up(tmp_path, {**OFTEN, "store.flush": flush}) as broker:
        for number in range(KILLS):
            delays = [dice.uniform(0.0, 3.0) for _ in range(700)] + [1.5] * 300
            send_timed(broker, delays)
            total += len(delays) + 1
            wait_until(lambda total=total: waiting(broker) >= total, "all is in the queue")
            goal = total - dice.randrange(1, 1000)
            wait_until(lambda goal=goal: came(broker) >= goal, f"{goal} have come", 30.0)
            kill_and_wait(broker, ("scheduler", "writer", "scheduler", "dispatcher")[number % 4])
        wait_until(lambda: came(broker) >= total, "all have come", 30.0)
    Timed(broker.store / "commitlog").check()


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_kills_of_everything_lose_nothing(tmp_path: Path, flush: str) -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    total = 0
    settings = {**OFTEN, "store.flush": flush}
    for _ in range(3):
        with mqcore_up(tmp_path, settings) as broker:
            send_timed(broker, [dice.uniform(0.0, 4.0) for _ in range(2000)])
            total += 2001
            goal = dice.randrange(max(total - 2000, 1), total)
            wait_until(partial(lambda goal: came(broker) >= goal, goal), f"{goal} have come", 30.0)
            broker.kill()
    with mqcore_up(tmp_path, settings) as broker:
        wait_until(lambda: came(broker) >= total, "all have come", 30.0)
    Timed(broker.store / "commitlog").check()


@pytest.mark.slow
def test_a_lost_wheel_is_made_again_behind_a_stop(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, OFTEN) as broker:
        send_timed(broker, [index / 400 for index in range(4, 2004)])
        wait_until(lambda: came(broker) >= 500, "some have come", 30.0)
        broker.stop()
    for file in (broker.store / "timerlog").iterdir():
        file.unlink()
    (broker.store / "timerwheel").unlink()
    (broker.store / "config/timercheck").unlink()
    began = time.monotonic()
    with mqcore_up(tmp_path, OFTEN) as broker:
        wait_until(lambda: came(broker) >= 2001 and timer_pending(segment_of(broker)) == 0,
                   "all have come", 30.0)
    print(f"{time.monotonic() - began:.1f} s")
    Timed(broker.store / "commitlog").check(twice_max=900)     # those of the last two seconds
