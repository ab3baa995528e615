"""
Whichever process dies, whenever: nothing acknowledged is lost or doubled, and clients go on.

Each life of a broker is a series of kills of single processes under load, in any order, some of
them killed again while they start; it ends with a kill of all at once, or of the supervisor alone.
After each one everything that was promised is read and held against its promise.

The two lives of a flush mode have each process die four times, and both ends. MQCORE_TEST_KILLS
sets how many kills there are, MQCORE_TEST_SEED the dice, SOAK_SECONDS (`make soak`) for how long
they go on in all modes together.
"""
from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mqcore.client import AsyncPushConsumer, ConsumeContext, ReceivedMessage
from mqcore.layout import WORKER_RUNNING
from mqcore.shm.segment import Segment
from mqcore.wire.records import decode_records
from tests.support.dice import seed_of_run
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until, wait_until_async
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields
from tests.workers.ledger import Ledger
from tests.workers.load import TOPIC, Load, Name, Promises, audit, load, name_of
from tests.workers.processes import ROLES, by_role, kill, pid_of, slot_of, title
from tests.workers.test_end import segment_of

SEED = seed_of_run()
SOAK_S = float(os.environ.get("SOAK_SECONDS", "0"))
MODES = ("async", "sync", "transient-pool")
ACKS_BETWEEN_MAX = 150
MOMENT_S_MAX = 0.01               # from an acknowledgement on: a kill at any moment of a turn
ROUNDS = 2                        # how often each process is killed in one life
AGAIN = 0.2                       # how often a process dies once more while it starts
STORE_KILLS_MAX = 400             # then the soak takes a new store
PRODUCERS_PER_LIFE = 100          # the names of a life's producers
BEHIND_THE_LOG = tuple(role for role in ROLES if role != "writer")     # who starts behind it
WHOLE_LIFE = ROUNDS * len(ROLES) + 1
KILLS = int(os.environ.get("MQCORE_TEST_KILLS", 2 * WHOLE_LIFE))


@dataclass
class Torture:
    """Lives of one broker on one store, and the ledger of all of them."""

    folder: Path
    flush: str
    dice: random.Random
    ledger: Ledger = field(init=False)
    points: int = 0
    lives: int = 0

    def __post_init__(self) -> None:
        self.ledger = Ledger(SEED)

    def live(self, kills: int) -> None:
        """One life of at most `kills` kills, the last one of all processes."""
        with mqcore_up(self.folder, {"store.flush": self.flush}) as broker:
            asyncio.run(self._life(broker, self._roles(broker)[:kills - 1]))
        self.lives += 1

    def close(self) -> None:
        """After all lives a last look, at a broker that nobody kills."""
        with mqcore_up(self.folder, {"store.flush": self.flush}) as broker:
            self.ledger.check(broker.broker_addr, Promises(SEED))
            left = self.ledger.seen
            again = audit(broker.broker_addr, Promises(SEED), others=left)
        assert again >= left.keys()
        print(f"{self.flush}: {self.points} kills in {self.lives} lives, {len(again)} messages, "
              f"{self.ledger.forgiven} acknowledged ones were not committed")

    def _roles(self, broker: MqcoreProcess) -> list[str]:
        roles = sorted(set(by_role(broker)) - {"supervisor"})
        return [role for _ in range(ROUNDS) for role in self.dice.sample(roles, len(roles))]

    async def _life(self, broker: MqcoreProcess, roles: list[str]) -> None:
        segment = segment_of(broker)
        first = self.lives * PRODUCERS_PER_LIFE
        async with load(broker.broker_addr, SEED, first=first,
                        make_topic=self.lives == 0) as running:
            slots = {role: slot_of(segment, pid) for role, pid in by_role(broker).items()
                     if role != "supervisor"}
            for role in roles:
                await self._moment(running)
                await self._kill(segment, slots[role], running, role)
                self.ledger.check(broker.broker_addr, running.promises)
            await self._moment(running)
            committed = segment.log_state()["published"]
            whole = self._end(broker)
            promises = await running.stop()
        if self.flush == "transient-pool" and not whole:
            self.ledger.forgive(promises, committed)
        with mqcore_up(self.folder, {"store.flush": self.flush}) as after:
            self.ledger.check(after.broker_addr, promises)
        self.ledger.next_life()

    def _end(self, broker: MqcoreProcess) -> bool:
        """Kill all processes, or the supervisor; whether the others could end in order."""
        self.points += 1
        if (SEED + self.lives) % 2:
            broker.kill()
            return False
        family = broker.family()
        broker.process.kill()
        broker.process.wait()
        wait_until(lambda: not any(title(pid) for pid in family), "all others have ended")
        return True

    async def _moment(self, running: Load) -> None:
        await running.acknowledged(self.dice.randrange(1, ACKS_BETWEEN_MAX))
        await asyncio.sleep(self.dice.random() * MOMENT_S_MAX)      # the moment is the dice's

    async def _kill(self, segment: Segment, number: int, running: Load, role: str) -> None:
        """Kill one process; wait until its successor works and messages are taken again."""
        committed = segment.log_state()["published"]
        before = segment.slot(number)["incarnation"]
        os.kill(segment.slot(number)["pid"], signal.SIGKILL)
        self.points += 1
        with running.calm():
            if self.dice.random() < AGAIN:
                await wait_until_async(lambda: segment.slot(number)["incarnation"] > before and
                                       title(segment.slot(number)["pid"]), f"{role} starts again")
                before = segment.slot(number)["incarnation"]
                os.kill(segment.slot(number)["pid"], signal.SIGKILL)

            def works_again() -> bool:
                now = segment.slot(number)
                return now["incarnation"] > before and now["state"] == WORKER_RUNNING

            await wait_until_async(works_again, f"{role} works again")
        if role == "writer" and self.flush == "transient-pool":
            self.ledger.forgive(running.promises, committed)
        await running.acknowledged(1)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("flush", MODES)
def test_kills_of_any_process_and_of_all_at_once_lose_and_double_nothing(
    tmp_path: Path, flush: str
) -> None:
    print(f"MQCORE_TEST_SEED={SEED}")
    torture = Torture(tmp_path, flush, random.Random(SEED))
    while torture.points < KILLS:
        torture.live(min(WHOLE_LIFE, KILLS - torture.points))
    torture.close()
    assert torture.points == KILLS


@pytest.mark.skipif(SOAK_S == 0, reason="only for as long as SOAK_SECONDS says")
@pytest.mark.timeout(SOAK_S + 300)
def test_kills_go_on_for_as_long_as_asked(tmp_path: Path) -> None:
    print(f"MQCORE_TEST_SEED={SEED}")
    dice, end, number = random.Random(SEED), time.monotonic() + SOAK_S, 0
    while time.monotonic() < end:
        torture = Torture(tmp_path / str(number), MODES[number % len(MODES)], dice)
        while torture.points < STORE_KILLS_MAX and (
                torture.points == 0 or time.monotonic() < end):
            torture.live(WHOLE_LIFE)
        torture.close()
        shutil.rmtree(torture.folder)
        number += 1


# -- a consumer beside them ------------------------------------------------------------------------


async def consumed_under_kills(broker: MqcoreProcess) -> tuple[Promises, set[Name]]:
    """Each process dies once while a push consumer reads; what was sent and what came."""
    consumed: set[Name] = set()

    async def listener(messages: list[ReceivedMessage], _context: ConsumeContext) -> None:
        consumed.update(name_of(message.body) for message in messages)

    consumer = AsyncPushConsumer("witness", TOPIC, listener, namesrv=broker.namesrv_addr,
                                 start="earliest", batch=32)
    async with load(broker.broker_addr, SEED) as running, consumer:
        for role in random.Random(SEED).sample(ROLES, len(ROLES)):
            await running.acknowledged(ACKS_BETWEEN_MAX)
            before = kill(broker, role)
            await wait_until_async(lambda role=role, before=before: by_role(broker).get(
                role, before) != before, f"{role} is started again")
        await running.acknowledged(ACKS_BETWEEN_MAX)
        promises = await running.stop()
        await wait_until_async(lambda: consumed >= promises.acknowledged.keys(),
                             "the consumer has all that was acknowledged")
    return promises, consumed


@pytest.mark.slow
def test_a_consumer_gets_all_that_was_acknowledged_whatever_dies_meanwhile(tmp_path: Path) -> None:
    print(f"MQCORE_TEST_SEED={SEED}")
    with mqcore_up(tmp_path, {"store.flush": "async"}) as broker:
        promises, consumed = asyncio.run(consumed_under_kills(broker))
        assert consumed <= audit(broker.broker_addr, promises)


def kill_in_the_next_start(broker: MqcoreProcess, role: str) -> None:
    """Begin a new run of the same supervisor and kill a process of it; it gets ready."""
    before, ready = pid_of(broker, role), broker.output.read_text().count("mqcore ready")
    os.kill(broker.pid, signal.SIGUSR1)
    wait_until(lambda: by_role(broker).get(role, before) != before, "its next process")
    os.kill(pid_of(broker, role), signal.SIGKILL)
    # -- who ends while it is to stop is not started again
    wait_until(lambda: f"{role} ended with SIGKILL; it is started" in broker.output.read_text(),
               f"word of the end of the {role}")
    wait_until(lambda: broker.output.read_text().count("mqcore ready") > ready,
               f"ready, though the {role} was killed")


@pytest.mark.slow
def test_who_is_killed_before_the_broker_is_ready_is_started_again(tmp_path: Path) -> None:
    with mqcore_up(tmp_path) as broker:
        with Peer(broker.broker_addr) as peer:
            assert peer.ask(17, topic_fields("Kept", 1)).code == 0
        for number, role in enumerate(BEHIND_THE_LOG):
            with Peer(broker.broker_addr) as peer:
                assert peer.ask(310, send_fields("Kept"), b"%d" % number).code == 0
            kill_in_the_next_start(broker, role)
        assert broker.output.read_text().count("ended with SIGKILL; it is started again") == len(
            BEHIND_THE_LOG)
        with Peer(broker.broker_addr) as peer:
            found = decode_records(peer.ask(11, pull_fields("Kept")).body)
        assert [record.body for record in found] == [
            b"%d" % number for number in range(len(BEHIND_THE_LOG))]
