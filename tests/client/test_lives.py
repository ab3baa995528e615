"""Random lives of a consumer group: no message is skipped that Java's client would deliver.

Members come, idle, leave and crash; brokers restart, in order or killed; queues are added; what is
in memory grows old, what is old expires; an operator moves the group while it is away. The client
and the broker's tables are the product's (life_world.py), Java's part is java_positions.py.
"""
from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from mqcore.client import (
    AsyncConsumer,
    AsyncLitePullConsumer,
    AsyncPushConsumer,
    MessageQueue,
)
from mqcore.client.errors import ClosedError
from mqcore.client.events import Rebalanced
from mqcore.client.roles import instance as client_instance
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.codes import ResponseCode
from mqcore.wire.command import Command
from tests.client.java_positions import JavaQueue
from tests.client.life_world import (
    GROUP,
    NAME_SERVER,
    TOPIC,
    LifeBroker,
    LifeLoop,
    Wire,
    World,
    crash,
)
from tests.support import dice
from tests.support.memory_folder import memory_folder

LIVES = 10_000 if os.environ.get("SOAK") else 200
KINDS = ("push", "orderly", "consumer", "lite", "broadcast")
STEPS = 12


class Member:
    """One member of the group: ours, and when it began."""

    def __init__(self, life: Life, number: int) -> None:
        self.life = life
        self.started_at = life.world.loop.now
        self.task: asyncio.Task[None] | None = None
        options = {"namesrv": NAME_SERVER, "start": life.start, "on_event": self.hears,
                   "client_ip": "127.0.0.1", "instance_name": f"m{number}"}
        if life.kind == "consumer":
            self.role = AsyncConsumer(GROUP, TOPIC, ack="manual", **options)
        elif life.kind == "lite":
            self.role = AsyncLitePullConsumer(GROUP, **options)
            self.role.subscribe(TOPIC)
        else:
            if life.kind == "broadcast":
                options |= {"broadcast": True, "offsets_folder": life.world.folder / "offsets"}
            self.role = AsyncPushConsumer(
                GROUP, TOPIC, self.listen, orderly=life.kind == "orderly", **options)

    async def listen(self, message) -> None:
        self.life.delivered.add((message.queue, message.queue_offset))

    def hears(self, event) -> None:
        if isinstance(event, Rebalanced):
            self.life.rebalanced(self, event)

    async def begin(self) -> None:
        await self.role.start()
        if self.life.kind in ("consumer", "lite"):
            self.task = asyncio.create_task(self.ask())

    async def ask(self) -> None:
        try:
            while True:
                messages = await (self.role.poll(1.0) if self.life.kind == "lite"
                                  else self.role.receive(timeout=1.0))
                for message in messages:
                    await self.listen(message)
                    if self.life.kind == "consumer":
                        message.ack()
        except ClosedError:
            return

    async def leave(self) -> None:
        await self.role.close()
        if self.task is not None:
            await self.task

    def crash(self) -> None:
        crash(self.role._instance)
        if self.task is not None:
            self.task.cancel()


class Life:
    """The life of one group, by dice, and the messages that it got."""

    def __init__(self, seed: int, loop: LifeLoop, folder: Path, start: str = "",
                 queue_count: int = 0) -> None:
        self.dice = Random(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self.start = start or self.dice.choice(("latest", "latest", "latest", "earliest"))
        self.world = World(loop, folder, queue_count or self.dice.randint(1, 2))
        self.given_up: list[MessageQueue] = []
        self.members: list[Member] = []
        self.members_max = 1 if self.kind == "broadcast" else 3
        self.delivered: set[tuple[MessageQueue, int]] = set()
        self.java: dict[MessageQueue, JavaQueue] = {}
        self.story: list[str] = []
        self.leaving: set[Member] = set()

    # -- Java beside it ---------------------------------------------------------------------------

    def java_of(self, queue: MessageQueue) -> JavaQueue:
        return self.java.setdefault(queue, JavaQueue(
            is_local=self.kind == "broadcast", knows_idle=self.kind != "lite"))

    def broker_of(self, queue: MessageQueue) -> LifeBroker:
        return next(one for one in self.world.brokers.values() if one.name == queue.broker_name)

    def rebalanced(self, member: Member, event: Rebalanced) -> None:
        now = self.world.loop.now
        self.given_up += event.given_up
        for queue in event.given_up:
            if queue.topic == TOPIC:
                self.java_of(queue).leave(now, can_write=self.kind == "broadcast"
                                          or self.broker_of(queue).is_up)
        for queue in event.taken:
            if queue.topic != TOPIC:
                continue
            store = self.broker_of(queue).store
            low, end = store.queues.get((TOPIC, queue.queue_id), (0, 0))
            first = store.entry(TOPIC, queue.queue_id, 0)
            self.java_of(queue).take(
                now, member.started_at, low if self.start == "earliest" else end, end,
                is_young=low == 0 and (first is None or store.in_memory(first.position)))

    # -- what happens -----------------------------------------------------------------------------

    async def run(self) -> None:
        saver = asyncio.create_task(self.world.save_often())
        await self.live()
        while self.members:
            await self.leave()
        await self.join()
        await asyncio.sleep(200)
        await self.leave()
        saver.cancel()

    async def live(self) -> None:
        for _ in range(STEPS):
            name = self.dice.choice(("join", "join", "leave", "crash", "idle", "idle", "send",
                                     "send", "old", "expire", "restart", "kill", "blink",
                                     "grow", "reset"))
            self.story.append(f"{self.world.loop.now:.0f}: {name}")
            await getattr(self, name)()

    async def join(self) -> None:
        if len(self.members) < self.members_max:
            member = Member(self, 0 if self.kind == "broadcast" else self.world.next_number())
            self.members.append(member)
            await member.begin()
            await asyncio.sleep(self.dice.choice((0.1, 1, 8, 30)))

    async def leave(self) -> None:
        if self.members:
            await self.members.pop(self.dice.randrange(len(self.members))).leave()

    async def crash(self) -> None:
        if not self.members:
            return
        member = self.members.pop(self.dice.randrange(len(self.members)))
        for held in member.role._member.held.values():
            if held.queue.topic == TOPIC:
                self.java_of(held.queue).crash(self.world.loop.now)
        member.crash()

    async def idle(self) -> None:
        await asyncio.sleep(self.dice.choice((1, 6, 20, 40, 130)))

    async def send(self) -> None:
        for _ in range(self.dice.randint(1, 4)):
            broker = self.dice.choice(list(self.world.brokers.values()))
            queue_id = self.dice.randrange(self.world.queue_count)
            queue = MessageQueue(TOPIC, broker.name, queue_id)
            self.java_of(queue).store(self.world.loop.now, broker.append(queue_id))
            await asyncio.sleep(self.dice.choice((0, 0, 3)))

    async def send_all(self) -> None:
        """A message to each queue."""
        for broker in self.world.brokers.values():
            for queue_id in range(self.world.queue_count):
                queue = MessageQueue(TOPIC, broker.name, queue_id)
                self.java_of(queue).store(self.world.loop.now, broker.append(queue_id))

    async def old(self) -> None:
        for broker in self.world.brokers.values():
            broker.store.grow_old()

    async def expire(self) -> None:
        """The oldest messages are deleted."""
        for broker in self.world.brokers.values():
            for queue, (low, end) in broker.store.queues.items():
                broker.store.queues[queue] = (self.dice.randint(low, end), end)

    async def restart(self, *, killed: bool = False) -> None:
        broker = self.dice.choice(list(self.world.brokers.values()))
        if killed:
            for queue, java in self.java.items():
                if queue.broker_name == broker.name:
                    java.lose(self.world.loop.now)
        broker.end(killed=killed)
        await asyncio.sleep(self.dice.choice((1, 10, 45)))
        broker.begin()
        await asyncio.sleep(self.dice.choice((0, 10, 60)))

    async def kill(self) -> None:
        await self.restart(killed=True)

    async def blink(self) -> None:
        """Only the process that has the offsets is killed, at one broker."""
        broker = self.dice.choice(list(self.world.brokers.values()))
        for queue, java in self.java.items():
            if queue.broker_name == broker.name:
                java.lose(self.world.loop.now)
        broker.forget()
        await asyncio.sleep(self.dice.choice((0, 1, 10)))

    async def come(self) -> None:
        """A member joins, and has sent its first pulls."""
        member = Member(self, 0)
        self.members.append(member)
        await member.begin()
        await asyncio.sleep(0.1)

    async def outage(self) -> None:
        """Each broker is away for a while in turn, and gets a message before members see it."""
        for broker in self.world.brokers.values():
            broker.end(killed=False)
            await asyncio.sleep(70)
            broker.begin()
            queue = MessageQueue(TOPIC, broker.name, 0)
            self.java_of(queue).store(self.world.loop.now, broker.append(0))
            broker.store.grow_old()
            await asyncio.sleep(70)

    async def forget(self) -> None:
        """All brokers are killed at once, and have nothing of what was committed to them."""
        for broker in self.world.brokers.values():
            broker.end(killed=True)
            for path in (self.world.folder / broker.name / "config").glob("consumerOffset*"):
                path.unlink()
        await asyncio.sleep(3)
        for broker in self.world.brokers.values():
            broker.begin()

    async def grow(self) -> None:
        if self.world.queue_count < 4:
            self.world.set_queues(self.world.queue_count + 1)

    async def reset(self) -> None:
        if self.members or self.kind == "broadcast":
            return
        for queue, java in self.java.items():
            broker = self.broker_of(queue)
            if java.written_at is None:
                continue
            low, end = broker.store.queues.get((TOPIC, queue.queue_id), (0, 0))
            offset = self.dice.randint(low, end)
            broker.ask(Command(Code.UPDATE_CONSUMER_OFFSET, opaque=1, ext={
                "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue.queue_id),
                "commitOffset": str(offset)}), 1)
            java.reset(offset)

    # -- the outcome -----------------------------------------------------------------------------

    def told(self, seed: int) -> str:
        return (f"MQCORE_TEST_SEED={seed}: {self.kind} from {self.start}: {'; '.join(self.story)}:"
                f" skipped {self.skipped()}")

    def skipped(self) -> dict[MessageQueue, list[int]]:
        found = {}
        for queue, java in self.java.items():
            low, _ = self.broker_of(queue).store.queues.get((TOPIC, queue.queue_id), (0, 0))
            missing = sorted(offset for offset in java.owed
                             if offset >= low and (queue, offset) not in self.delivered)
            if missing:
                found[queue] = missing
        return found


def live(life_of: Callable[[LifeLoop, Path], Life], monkeypatch) -> Life:
    """The whole of a life, in a moment."""
    loop = LifeLoop()
    asyncio.set_event_loop(loop)
    try:
        with monkeypatch.context() as patches, memory_folder("lives") as folder:
            patches.setattr(client_instance, "ConnectionPool", lambda on_request, **_: Wire(
                life.world, on_request))
            patches.setattr("time.monotonic", loop.time)
            life = life_of(loop, folder)
            loop.run_until_complete(life.run())
        return life
    finally:
        loop.close()
        asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def _quiet():
    """Members tell of each outage."""
    log = logging.getLogger("mqcore.client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@pytest.mark.parametrize("part", range(10))
def test_a_group_skips_nothing_that_javas_client_would_deliver(part, monkeypatch):
    first = dice.seed_of_run(1) + part * (LIVES // 10)
    owed = 0
    for seed in range(first, first + LIVES // 10):
        life = live(lambda loop, folder, seed=seed: Life(seed, loop, folder), monkeypatch)
        owed += sum(len(java.owed) for java in life.java.values())
        assert not life.skipped(), life.told(seed)
    assert owed > 2 * (LIVES // 10), "the lives prove too little"


# -- lives that dice seldom throw ------------------------------------------------------------------


class Told(Life):
    """A life by the steps of a test, of a group that begins at "latest"."""

    def __init__(self, kind: str, loop: LifeLoop, folder: Path,
                 *steps: str | float | ResponseCode) -> None:
        super().__init__(KINDS.index(kind), loop, folder, start="latest", queue_count=1)
        self.steps = steps

    async def live(self) -> None:
        for step in self.steps:
            if isinstance(step, str):
                await getattr(self, step)()
            elif isinstance(step, ResponseCode):
                self.world.refuse(Code.QUERY_CONSUMER_OFFSET, step)
            else:
                await asyncio.sleep(step)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["leave", "crash"])
def test_a_group_that_held_a_queue_without_messages_gets_what_comes_while_it_is_away(
        kind, end, monkeypatch):
    life = live(lambda loop, folder: Told(
        kind, loop, folder, "join", 40.0, end, "send_all", "old"), monkeypatch)
    assert len(life.delivered) == 2


@pytest.mark.parametrize("kind", ["push", "orderly", "consumer"])
def test_the_first_pull_of_a_queue_says_where_it_begins(kind, monkeypatch):
    """So a member that crashes at once has taken its place, before the timer writes it."""
    life = live(lambda loop, folder: Told(
        kind, loop, folder, "come", "crash", "send_all", "old"), monkeypatch)
    assert len(life.delivered) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_has_consumed_all_gets_what_comes_while_it_is_away(kind, monkeypatch):
    life = live(lambda loop, folder: Told(
        kind, loop, folder, "send_all", "old", "join", 40.0, "crash", "send_all"), monkeypatch)
    assert len({place for place in life.delivered if place[1] == 1}) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_that_a_killed_broker_had_not_saved_is_written_again(kind, monkeypatch):
    """The group then crashes, and what comes meanwhile is delivered."""
    life = live(lambda loop, folder: Told(
        kind, loop, folder, "old", "join", 7.0, "send_all", 8.0, "forget", 30.0, "crash",
        "send_all", "old"), monkeypatch)
    assert len(life.delivered) == 4


@pytest.mark.parametrize("kind", ["push", "broadcast"])
def test_a_live_member_keeps_its_place_over_an_outage_of_its_broker(kind, monkeypatch):
    """The name server does not show its queues meanwhile: they are given up, and taken again."""
    life = live(lambda loop, folder: Told(
        kind, loop, folder, "old", "join", 30.0, "outage"), monkeypatch)
    assert life.given_up
    assert len(life.delivered) == 2


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY,
                                  ResponseCode.NO_PERMISSION])
def test_a_broker_that_refuses_to_say_a_place_is_none_that_has_none(code, monkeypatch):
    """The queue waits: at its end, where a new group begins, messages would be skipped."""
    life = live(lambda loop, folder: Told(
        "push", loop, folder, "join", 40.0, "leave", "send_all", "old", code, "join", 30.0,
        ResponseCode.SUCCESS), monkeypatch)
    assert len(life.delivered) == 2
