"""
Faults of links and processes, dealt out by dice and counted; and the verdict on a run.

PLAN says how many faults each run has at least, together FAULTS_MIN; PLAN_OF_ROOT needs root,
PLAN_OF_STOCK a stock broker.
"""
from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tests.replication.faults.brokers import Broker, Brokers
from tests.replication.faults.checker import check, summary
from tests.replication.faults.history import Delivery, History
from tests.replication.faults.liar import lie
from tests.replication.faults.relay import FaultyRelay
from tests.replication.faults.traffic import FOLLOWER, Traffic, read_all
from tests.support.dice import seed_of_run
from tests.support.waiting import wait_until_async
from tests.wire_live.peer import Closed

SEED = seed_of_run()
SOAK_S = float(os.environ.get("SOAK_SECONDS", "0"))
FAULTS_MIN = 2_000
PLAN = {"links": 1_700, "processes": 250, "failovers": 60, "elections": 60}
PLAN_OF_ROOT = {"hosts": 12, "disk": 4, "partitions": 6, "lives": 8}
PROGRESS_MAX = 20                     # acknowledgements that are waited for between faults
EARLY = 0.1                           # of a link's faults: they do not wait until it is up
PLAN_OF_STOCK = {"stock": 1}
READS_MAX = 5                         # of a broker at the end, whose run may end beside them
LinkFault = Callable[[FaultyRelay, random.Random], Awaitable[bool]]


async def silence(link: FaultyRelay, dice: random.Random) -> bool:
    """Longer than either end waits for the other (replication.housekeeping_interval_ms)."""
    return await link.stall(dice, 1.05, 1.4)


LINK_FAULTS: dict[str, tuple[int, LinkFault]] = {          # how often, what
    "cut": (50, FaultyRelay.cut), "refuse": (10, FaultyRelay.refuse),
    "stall": (60, FaultyRelay.stall), "delay": (36, FaultyRelay.delay),
    "throttle": (20, FaultyRelay.throttle), "crumble": (20, FaultyRelay.crumble),
    "overtake": (24, FaultyRelay.overtake), "silence": (1, silence),
}


def runs(name: str, folder: Path) -> Iterator[tuple[Torment, Path]]:
    """Run after run, each with a folder of its own, until SOAK_SECONDS are over; at least one."""
    end = time.monotonic() + SOAK_S
    for number in itertools.count():
        place = folder / str(number)
        place.mkdir()
        yield Torment(name, SEED + number), place
        shutil.rmtree(place)
        if time.monotonic() >= end:
            return


class Member(Protocol):
    """One broker, as the verdict looks at it; running: None while it does not."""

    name: str
    running: object

    @property
    def address(self) -> str: ...


class Set(Protocol):
    """Brokers of one name, likewise."""

    @property
    def all(self) -> Sequence[Member]: ...

    async def settled(self) -> None: ...

    async def stopped_alike(self) -> None: ...


class Torment:
    """The dice of a run and the faults so far: those that have met something."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.history = History(seed)
        self.dice = random.Random(f"{seed} {name}")
        self.least = {**PLAN, **PLAN_OF_ROOT, **PLAN_OF_STOCK}[name]
        self.faults: Counter[str] = Counter()
        self.vain = 0                 # of links that were not there, of no bytes
        print(f"{name}: MQCORE_TEST_SEED={seed}")

    @property
    def lacks_faults(self) -> bool:
        """Whether it has had fewer faults than it is to have."""
        return self.faults.total() < self.least

    def count(self, kind: str, met: bool) -> None:
        if met:
            self.faults[kind] += 1
            self.history.note(kind)
        else:
            self.vain += 1

    # -- links ---------------------------------------------------------------------------------

    async def links(self, link: FaultyRelay, name: str = "", *, pause_s: float = 0.03) -> None:
        """One fault of a link after another for as long as the run goes on."""
        dice = random.Random(f"{self.seed} {self.name} {name}")
        kinds = list(LINK_FAULTS)
        weights = [LINK_FAULTS[kind][0] for kind in kinds]
        while self.lacks_faults:
            if dice.random() > EARLY:
                await link.is_used()
            (kind,) = dice.choices(kinds, weights)
            self.count(f"link {kind}", await LINK_FAULTS[kind][1](link, dice))
            await asyncio.sleep(dice.uniform(0, pause_s))

    async def lies(self, set_: Brokers) -> None:
        """Strangers come to the master and say that they have what it has not."""
        dice = random.Random(f"{self.seed} {self.name} lies")

        def end() -> int:
            return set_.leader.log_end() if set_.leader and set_.leader.running else 0

        while self.lacks_faults:
            self.count("lie", await lie(set_.leads_ha(), end, dice))
            await asyncio.sleep(dice.uniform(0.2, 1.0))

    # -- processes -----------------------------------------------------------------------------

    async def kill(self, broker: Broker, role: str) -> None:
        """With -9; until its successor works."""
        before = broker.incarnation(role)
        met = broker.signal(role, signal.SIGKILL)
        self.count(f"kill {role}", met)
        if met:
            self.history.note(f"{broker.name}: {role} killed")
        await wait_until_async(lambda: broker.works(role, after=before),
                               f"{role} of {broker.name} works again")

    async def pause(self, broker: Broker, role: str) -> None:
        """Stopped for a while, as by a machine that is much too busy."""
        pid = broker.pid_of(role)
        met = broker.signal(role, signal.SIGSTOP)
        await asyncio.sleep(self.dice.uniform(0.005, 0.15))
        if met and broker.pid_of(role) == pid:
            broker.signal(role, signal.SIGCONT)
        self.count(f"pause {role}", met)

    async def some_progress(self, traffic: Traffic) -> None:
        """A moment of the dice's, in acknowledgements and then in time."""
        await traffic.acknowledged(self.dice.randrange(PROGRESS_MAX))
        await asyncio.sleep(self.dice.uniform(0, 0.02))

    async def all_of(self, traffic: Traffic, *parts: Coroutine[None, None, None]) -> None:
        """Together, until all of them have ended; a client that fails ends them."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in parts]
            while not all(task.done() for task in tasks):
                traffic.look()
                await asyncio.wait(tasks, timeout=1.0)

    # -- the end -------------------------------------------------------------------------------

    async def verdict(self, set_: Set, traffic: Traffic) -> None:
        """
        All links are as they should be, and no client sends: what there is is judged, as brokers
        show it, and, when they have ended, as it lies in their stores.
        """
        await traffic.acknowledged(1)
        await traffic.stop()
        await set_.settled()
        for broker in set_.all:
            if broker.running is not None:
                self.history.final[broker.name] = await self.read(set_, broker)
        self.judge()
        await set_.stopped_alike()
        sent, answers = len(self.history.sends), dict(sorted(traffic.answers.items()))
        print(f"{self.name}: {self.faults.total()} faults, {self.vain} in vain: "
              f"{dict(sorted(self.faults.items()))}\n{sent} sends, answers {answers}, "
              f"{traffic.links_lost} connections lost, {len(self.history.deliveries)} deliveries, "
              f"{traffic.read[FOLLOWER]} of followers")
        assert self.faults.total() >= self.least
        assert traffic.read[FOLLOWER] > 0

    async def read(self, set_: Set, broker: Member) -> list[Delivery]:
        """All that a broker shows; from the beginning when its run ends: it may have a last cut."""
        left = READS_MAX
        while True:
            try:
                return await asyncio.to_thread(read_all, self.seed, broker.address)
            except (Closed, OSError):
                left -= 1
                if not left:
                    raise
            await set_.settled()

    def judge(self) -> None:
        """AssertionError that says where the history is, unless it is good."""
        faults = check(self.history)
        if faults:
            path = Path(tempfile.gettempdir()) / f"mqcore-history-{self.name}-{self.seed}.jsonl"
            self.history.write(path)
            raise AssertionError(f"MQCORE_TEST_SEED={self.seed}, history {path}\n{summary(faults)}")
