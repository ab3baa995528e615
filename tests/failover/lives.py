"""
Lives of queues in a modelled world (world.py): each broker has a real store on a disk, and the real
tables of a coordinator. Topics and groups are made and removed by requests at who leads, the log
goes to the others byte for byte, and a log that is cut is cut by the rules of `rejoin`.

The log of the world says which messages each queue should have: those of the topic behind its last
removal, from offset 0 on. A leader, a store that has begun again, a follower now and then and, in
the end, every broker has just these. Retention deletes nothing here.
"""
from __future__ import annotations

import asyncio
import os
import random
import shutil
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mqcore.broker.core import Ports
from mqcore.broker.handlers import Broker as Rules
from mqcore.layout import BLANK_SIZE_MIN
from mqcore.participants import COORDINATOR
from mqcore.store import last_run
from mqcore.store.log.producer import LogProducer
from mqcore.workers.coordinator.coordinator import Reader
from mqcore.workers.coordinator.own_messages import OwnMessages
from mqcore.workers.coordinator.shared_queues import SharedQueues
from tests.broker.fakes import (
    NOW_MS,
    Bench,
    FakeAppender,
    FakeConnections,
    FakeFigures,
    FakePulls,
    FakeQueues,
    FakeRegistrar,
    FakeStore,
    FakeTables,
    settings_in,
)
from tests.failover.world import Broker, Entry, World
from tests.replication.test_given_back import Link
from tests.store.test_cut_lives import Started, leave_ends, rejoined
from tests.store.test_queue_lives import FILE_ENTRIES, TURN_MS
from tests.store.test_raw import Piece, put, raw_bytes

TOPICS, GROUPS = ("a", "b", "c"), ("g", "h")
REMOVED = "removed"
LOOKS = 0.15                          # of a follower, at the tables of who leads: in a tick
HELD = 0.1                            # share of looks behind which its queues are compared
AT_ONCE = 0.5                         # of removed topics: they are made again by the same hand
Queues = dict[tuple[str, int], list[bytes]]


def kept(log: list[Entry]) -> Queues:
    """The messages of each queue's present life, in the order of their offsets."""
    found: Queues = {}
    for entry in log:
        if entry.kind == REMOVED:
            found.pop((entry.topic, 0), None)
        else:
            found.setdefault((entry.topic, 0), []).append(b"%d" % entry.serial)
    return found


class Disk(Started):
    """A broker's store."""

    segment_size = 1 << 16

    def begin(self, clean: bool) -> None:
        super().begin(clean)
        last_run.mark(self.root / "abort", "async")

    def raw(self, start: int) -> list[Piece]:
        """The record from `start` to the end of the log, with the blank before it."""
        first, size = self.end // self.segment_size * self.segment_size, self.segment_size
        blank = [(start, raw_bytes(self.run.log_folder, size, start, start + BLANK_SIZE_MIN))]
        at = max(start, first)
        return (blank if start < first else []) + (
            [(at, raw_bytes(self.run.log_folder, size, at, self.end))] if at < self.end else [])


class Host:
    """One broker: what is on its disk, and what its processes know."""

    def __init__(self, root: Path, member: int) -> None:
        self.root, self.member = root, member
        self.now_ms = NOW_MS
        self.snapshot = root.with_name(f"{root.name}-snapshot")
        self.begin()

    def begin(self) -> None:
        (self.root / "config").mkdir(parents=True, exist_ok=True)
        self.disk = Disk(self.root)
        self.leads = False
        segment = self.disk.run.segment
        self.own = OwnMessages(
            LogProducer(segment, COORDINATOR.producer, ("127.0.0.1", 1), 0), "c")
        self.queues = SharedQueues(segment, lambda: self.now_ms, self.own, lambda: not self.leads)
        reader = Reader(segment, os.fsencode(self.disk.run.log_folder),
                        os.fsencode(self.disk.run.queue_folder), file_entries=FILE_ENTRIES,
                        memory_bytes=1 << 20)
        tables, connections, appender = FakeTables(), FakeConnections(), FakeAppender()
        registrar, figures, pulls = FakeRegistrar(), FakeFigures(), FakePulls()
        ports = Ports(reader, tables, connections, appender, registrar, figures, self.queues, pulls)
        settings = settings_in(
            self.root, "failover.enable=true", f"broker.id={self.member}",
            "replication.role=sync-master", "replication.listen=true",
            "broker.namesrv_addrs=127.0.0.1:1", "broker.auto_create_topic=false")
        rules = Rules(replace(settings, follows=True), ports)
        rules.load(self.now_ms)
        self.bench = Bench(rules, FakeStore(), tables, connections, appender, registrar, figures,
                           FakeQueues({}), pulls)
        self.link = Link(self.bench, self.bench)

    def end_run(self, *, clean: bool) -> None:
        """Leave the files of a run that ended."""
        leave_ends(self.disk, clean=clean)
        if clean:
            (self.root / "abort").unlink()

    def at(self, ms: float) -> None:
        self.now_ms = self.bench.now_ms = NOW_MS + int(ms)

    def tick(self) -> None:
        """Do all work that is due; changed tables are in their files then."""
        self.disk.dispatch()
        self.own.push()
        self.queues.tick()
        self.bench.broker.tick(self.now_ms)

    def lead(self) -> None:
        """As the coordinator does."""
        self.disk.dispatch()
        rules = self.bench.broker
        self.leads = True
        rules.lead(replace(rules.core.settings, follows=False), self.now_ms)
        rules.take_over_topics(self.link.topics_to, self.now_ms)

    def look(self, leader: Host) -> None:
        """A round of questions for the leader's tables, to their end."""
        self.link._bench = leader.bench
        self.link.adopt(f"10.0.0.{leader.member}:10911")
        asyncio.run(self._round())

    async def _round(self) -> None:
        await self.link.round()
        assert not self.link._trouble
        await self.link.close()

    def send(self, topic: str, body: bytes) -> int:
        """The offset of the message."""
        assert self.disk.probe.send(topic, 0, [body], opaque=1)
        self.disk.loop.run(TURN_MS)
        (_, status, offset, *_), = self.disk.probe.take()
        assert status == 0
        return int(offset)

    def ask(self, code: int, ext: dict[str, object] | None, body: object = b"") -> None:
        """A request that who leads takes; all that it sets off is done."""
        answer = self.bench.ask(code, ext, body)
        assert answer is None or answer.code == 0, answer
        self.disk.loop.run(TURN_MS)
        self.tick()

    def topics(self) -> list[str]:
        return [topic for topic in TOPICS if self.bench.broker.core.topics.get(topic) is not None]

    def tables(self) -> dict[str, Any]:
        """Topics, groups and offsets, as consumers and administrators meet each."""
        core = self.bench.broker.core
        return {"topics": self.topics(),
                "groups": [group for group in GROUPS if core.groups.get(group) is not None],
                "offsets": {(group, topic): core.offsets.of_queues(group, topic)
                            for group in GROUPS for topic in TOPICS
                            if core.offsets.of_queues(group, topic)}}


class LivingWorld(World):
    """
    settled   topics and groups of which every broker knows that they were removed last, with
              offsets of theirs; they never come back unasked
    """

    def __init__(self, dice: random.Random, folder: Path, count: int = 3) -> None:
        super().__init__(dice, count)
        self.hosts = {one.member: Host(folder / f"disk-{one.member}", one.member)
                      for one in self.brokers}
        self.pieces: dict[Entry, list[Piece]] = {}
        self.unsettled: dict[tuple[str, str], set[int]] = {}     # members that have not heard
        self.settled: set[tuple[str, str]] = set()
        self.removals = self.cuts = 0

    # -- who leads ---------------------------------------------------------------------------------

    def store(self, leader: Broker) -> None:
        host, roll = self.hosts[leader.member], self.dice.random()
        host.at(self.now)
        topics = host.topics()
        if roll < 0.06 or not topics:
            self.made(host, "topic", self.dice.choice(TOPICS))
        elif roll < 0.10:
            topic = self.dice.choice(topics)
            self.remove(leader, topic)
            if self.dice.random() < AT_ONCE:
                self.made(host, "topic", topic)
        elif roll < 0.16:
            self.made(host, "group", self.dice.choice(GROUPS), self.dice.choice(topics))
        elif roll < 0.18:
            self.remove_group(host, self.dice.choice(GROUPS))
        else:
            topic = self.dice.choice(topics)
            entry = self.append(leader, "message", topic)
            offset = host.send(topic, b"%d" % entry.serial)
            self.wrote(leader, entry)
            assert offset == len(kept(leader.log)[topic, 0]) - 1

    def append(self, leader: Broker, kind: str, topic: str) -> Entry:
        """An entry that its log is about to get: `wrote` says what it is in bytes."""
        self.serial += 1
        self.before = self.hosts[leader.member].disk.end
        return Entry(leader.leads, self.serial, kind, topic)

    def wrote(self, leader: Broker, entry: Entry) -> None:
        self.pieces[entry] = self.hosts[leader.member].disk.raw(self.before)
        leader.log.append(entry)

    def made(self, host: Host, kind: str, name: str, topic: str = "") -> None:
        self.unsettled.pop((kind, name), None)
        self.settled.discard((kind, name))
        if kind == "topic":
            host.ask(17, {"topic": name, "defaultTopic": "TBW102", "readQueueNums": 1,
                          "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
                          "topicSysFlag": 0, "order": "false"})
        else:
            host.ask(200, None, {"groupName": name})
            host.ask(15, {"consumerGroup": name, "topic": topic, "queueId": 0,
                          "commitOffset": host.disk.nexts().get((topic, 0), 0)})

    def remove(self, leader: Broker, topic: str) -> None:
        entry, had = self.append(leader, REMOVED, topic), (topic, 0) in kept(leader.log)
        self.hosts[leader.member].ask(215, {"topic": topic})
        if had:
            self.wrote(leader, entry)
            self.removals += 1
        self.begin_to_settle(leader.member, "topic", topic)

    def remove_group(self, host: Host, group: str) -> None:
        host.ask(207, {"groupName": group, "removeOffset": "true"})
        self.begin_to_settle(host.member, "group", group)

    def begin_to_settle(self, leader: int, kind: str, name: str) -> None:
        self.unsettled[kind, name] = {one.member for one in self.brokers} - {leader}

    def _begin_to_lead(self, broker: Broker, epoch: int) -> None:
        super()._begin_to_lead(broker, epoch)
        host = self.hosts[broker.member]
        self.unsettled.clear()                   # the former leader's word, which others lack
        host.lead()
        self.hold(broker)
        self.hold_settled(host)

    # -- who follows -------------------------------------------------------------------------------

    def take(self, broker: Broker, entries: list[Entry]) -> None:
        super().take(broker, entries)
        disk = self.hosts[broker.member].disk
        for entry in entries:
            for piece in self.pieces[entry]:
                assert put(disk.loop, disk.probe, piece) == 0

    def looked(self, follower: Broker, leader: Broker) -> None:
        if self.dice.random() > LOOKS:
            return
        host = self.hosts[follower.member]
        host.at(self.now)
        host.look(self.hosts[leader.member])
        host.tick()
        if self.dice.random() < HELD:
            self.hold(follower)
        for name, members in list(self.unsettled.items()):
            members.discard(follower.member)
            if not members:
                del self.unsettled[name]
                self.settled.add(name)

    def cut(self, broker: Broker, end: int) -> None:
        host = self.hosts[broker.member]
        host.end_run(clean=self.dice.random() < 0.5)
        at = max((start + len(data) for entry in broker.log[:end]
                  for start, data in self.pieces[entry][-1:]), default=0)
        rejoined(host.disk, at)
        host.begin()
        self.cuts += 1
        self.hold(broker, broker.log[:end])

    # -- disks -------------------------------------------------------------------------------------

    def crash(self, broker: Broker, for_ms: float) -> None:
        super().crash(broker, for_ms)
        host = self.hosts[broker.member]
        if self.dice.random() < 0.5:
            host.end_run(clean=self.dice.random() < 0.5)
        host.begin()
        self.hold(broker)

    def lose_queues(self, broker: Broker, for_ms: float) -> None:
        super().lose_queues(broker, for_ms)
        host = self.hosts[broker.member]
        shutil.rmtree(host.disk.run.queue_folder)
        host.begin()
        self.hold(broker)

    def lose_disk(self, broker: Broker, for_ms: float) -> None:
        before = broker.store
        super().lose_disk(broker, for_ms)
        if broker.store != before:
            self.replace(broker, None)

    def take_snapshot(self, broker: Broker) -> None:
        super().take_snapshot(broker)
        host = self.hosts[broker.member]
        shutil.rmtree(host.snapshot, ignore_errors=True)
        shutil.copytree(host.root, host.snapshot)

    def set_back(self, broker: Broker, for_ms: float) -> None:
        before = self.set_backs
        super().set_back(broker, for_ms)
        if self.set_backs > before:
            self.replace(broker, self.hosts[broker.member].snapshot)

    def replace(self, broker: Broker, folder: Path | None) -> None:
        """Its disk is another one, which may not have heard what all have heard."""
        host = self.hosts[broker.member]
        shutil.rmtree(host.root)
        if folder is not None:
            shutil.copytree(folder, host.root)
        host.begin()
        for name in self.settled:
            self.unsettled[name] = {broker.member}
        self.settled.clear()
        self.hold(broker)

    # -- verdicts ----------------------------------------------------------------------------------

    def hold(self, broker: Broker, log: list[Entry] | None = None) -> None:
        """A broker's queues are those of its log."""
        disk, wanted = self.hosts[broker.member].disk, kept(broker.log if log is None else log)
        assert disk.bodies() == wanted, f"member {broker.member}: queues are others than its log's"
        assert disk.nexts() == {queue: len(bodies) for queue, bodies in wanted.items()}

    def hold_settled(self, host: Host) -> None:
        """A removal that all had heard is for good."""
        here = host.tables()
        for kind, name in self.settled:
            assert name not in here[f"{kind}s"], f"{kind} {name} is back at member {host.member}"
            assert not [key for key in here["offsets"] if name in key], (
                f"offsets of {kind} {name} are back at member {host.member}")

    def hold_all(self) -> None:
        """All is well again: all members have one log, its queues, and the leader's tables."""
        leader = next(one for one in self.brokers if one.leads)
        for broker in self.brokers:
            if broker is not leader:
                self.take(broker, leader.log[len(broker.log):])
                self.hosts[broker.member].look(self.hosts[leader.member])
            self.hold(broker)
            self.hold_settled(self.hosts[broker.member])
            assert self.hosts[broker.member].tables() == self.hosts[leader.member].tables(), (
                f"member {broker.member}: tables are others than the leader's")
