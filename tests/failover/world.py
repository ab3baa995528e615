"""
A world of one etcd and some brokers, in a time of its own: what etcd does with leases and
transactions is modelled, and so are logs, links and crashes; the elections are the real ones.
"""
from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mqcore.failover.election import (
    MS,
    RESIGNED_LEASES,
    Ask,
    Election,
    Grant,
    Look,
    Transact,
    Words,
)
from mqcore.failover.etcd import Key
from mqcore.failover.here import Here, Me, Report, Rules
from mqcore.failover.keys import Names, View, view_of
from mqcore.failover.storing import Storing
from mqcore.layout import (
    REFUSAL_DISK_FULL,
    REFUSAL_FLUSH_FAILED,
    REFUSAL_NONE,
    REFUSAL_WRITE_FAILED,
)
from mqcore.shm.members import member_number

NAMES = Names.of("c", "b")
RULES = Rules(lease_ms=2000, in_sync_timeout_ms=3000, min_in_sync=1)
EXPIRY_LOOK_MS = 500              # etcd looks so often which leases ran out
TICK_MS = 20
WELL_MS = 5_000                   # it would have been elected by then
STRANGERS = [member_number(member, "invented") for member in range(1, 8)]
COPIED_A_TICK = 2                 # entries: who comes back is behind for a while


class Entry(NamedTuple):
    """
    One of a log. kind: a message of `topic`; "removed": the topic's queues end there; "": of a
    world that does not ask.
    """

    epoch: int
    serial: int
    kind: str = ""
    topic: str = ""


def common_end(one: list[Entry], other: list[Entry]) -> int:
    """Up to where two logs have the same entries."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


class FakeEtcd:
    """Keys, revisions and leases, at a time that its callers give, in ms."""

    def __init__(self) -> None:
        self.revision = 1
        self.keys: dict[str, Key] = {}
        self.leases: dict[int, float] = {}
        self._looked = 0.0

    def grant(self, now: float) -> int:
        self.revision += 1
        self.leases[self.revision] = now + RULES.lease_ms
        return self.revision

    def transact(self, asked: Transact) -> bool:
        """KeyError: a lease that is not there."""
        if any((self.keys[name].revision if name in self.keys else 0) != revision
               for name, revision in asked.compared):
            return False
        for change in asked.changes:
            if change.lease and change.lease not in self.leases:
                raise KeyError(change.lease)
        self.revision += 1
        for change in asked.changes:
            if change.value is None:
                self.keys.pop(change.name, None)
            else:
                self.keys[change.name] = Key(change.name, change.value, self.revision, change.lease)
        return True

    def expire(self, now: float) -> None:
        if now - self._looked < EXPIRY_LOOK_MS:
            return
        self._looked = now
        for lease in [one for one, end in self.leases.items() if end <= now]:
            self.revoke(lease)

    def revoke(self, lease: int) -> None:
        del self.leases[lease]
        for name in [name for name, key in self.keys.items() if key.lease == lease]:
            self.revision += 1
            del self.keys[name]

    def view(self) -> View:
        return view_of(NAMES, list(self.keys.values()))


@dataclass(frozen=True)
class Snapshot:
    """A disk at one moment; the fields of Broker."""

    store: str
    log: list[Entry]
    heard: int
    shown: int
    first: int


@dataclass
class Broker:
    """
    One member: its election, its log, and the epoch that it leads in.

    heard   the newest epoch in its table; of that one its log may have nothing yet
    said    the words that its processes go by: a process that dies may have known more
    """

    member: int
    store: str = ""
    host: str = ""
    drift: float = 1.0
    offset_ms: float = 0.0
    log: list[Entry] = field(default_factory=list)
    heard: int = 0
    said: Words = field(default_factory=Words)
    leads: int = 0
    alive: bool = True
    cut_off: bool = False             # from etcd
    unlinked: bool = False            # from the other brokers
    lied_to: bool = False             # strangers at its port of slaves report more than its log
    refusal: int = REFUSAL_NONE       # of its disk
    applied: tuple[int, ...] = ()
    replicated: int = 0
    begun: int = 0
    told: int = 0                     # by who led, or by its own election
    shown: int = 0                    # what its queues have: a crash takes nothing of it
    acked: int = 0
    reports: dict[int, Report] = field(default_factory=dict)
    called_at: float = -1.0
    up_at: float = 0.0
    first: int = 0                    # its log begins there
    well_since: float = 0.0           # alive, with etcd, and with a log that takes messages
    snapshot: Snapshot | None = None  # of its disk
    rules: Rules = RULES

    def __post_init__(self) -> None:
        self.store = self.store or f"store{self.member}"
        self.host = self.host or f"h{self.member}"
        self.storing = Storing()
        self.election = self.begin()

    @property
    def number(self) -> int:
        return member_number(self.member, self.store)

    @property
    def words(self) -> Words:
        return self.election.words() or Words()

    @property
    def epoch(self) -> int:
        return max(self.heard, self.log[-1][0] if self.log else 0)

    def begin(self, leads: int = 0, before: Words | None = None) -> Election:
        """before: the last words of the process before, of the same run."""
        before = before or Words()
        return Election(NAMES, Me(self.member, f"{self.host}:1", f"{self.host}:2", self.store),
                        self.rules, leads=leads, claimed=before.leads, former=before.former,
                        deadline_ns=before.deadline_ns, waited_for=before.waited_for)

    def begin_anew(self, before: Words | None = None) -> None:
        """The process of the election died, and its successor goes on. before: what it had said."""
        self.election = self.begin(self.leads, before or self.words)

    def clock(self, now: float) -> float:
        """This host's, in ms."""
        return self.offset_ms + now * self.drift

    def here(self, now: float) -> Here:
        clock = self.clock(now)
        waited = self.words.waited_for
        unable = self.storing.look(int(clock), self.refusal, len(self.log), waits=False,
                                   patience_ms=self.rules.in_sync_timeout_ms)
        return Here(int(clock * MS), int(clock), self.leads,
                    self.epoch, len(self.log), self.replicated,
                    self.begun, dict(self.reports), self.applied == waited, unable,
                    self.refusal == REFUSAL_FLUSH_FAILED,
                    min(len(self.log), max(self.replicated, self.told)), self.first,
                    starts=tuple(self.starts()))

    def starts(self) -> Iterator[tuple[int, int]]:
        """The epochs of its log, as Here has them."""
        at = 0
        while at < len(self.log):
            epoch = self.log[at][0]
            yield epoch, at
            at = bisect.bisect_right(self.log, epoch, key=lambda one: one[0])

    def ask(self, etcd: FakeEtcd, now: float, outcome: str = "answered") -> Ask | None:
        """
        One question, at a time, if one is due. outcome: answered; unasked or unanswered: the answer
        is lost, and the question did not arrive, or did.
        """
        asked = self.election.next(self.here(now))
        if asked is not None:
            self.put(asked, etcd, now, outcome)
        return asked

    def put(self, asked: Ask, etcd: FakeEtcd, now: float, outcome: str) -> None:
        now_ns = int(self.clock(now) * MS)
        if isinstance(asked, Transact) and asked.what == "resign":
            self.well_since = now + RESIGNED_LEASES * self.rules.lease_ms
        if outcome == "unasked":
            self.election.lost(asked)
            return
        try:
            answer = self._done(asked, etcd, now)
        except KeyError:
            self.election.lost(asked)
            return
        if outcome == "unanswered":
            self.election.lost(asked)
        elif isinstance(answer, View):
            self.election.seen(answer, now_ns)
        elif isinstance(asked, Transact):
            self.election.transacted(asked, bool(answer))
        else:
            self.election.granted(answer, now_ns)

    @staticmethod
    def _done(asked: Ask, etcd: FakeEtcd, now: float) -> View | int:
        if isinstance(asked, Grant):
            return etcd.grant(now)
        return etcd.view() if isinstance(asked, Look) else etcd.transact(asked)

    def may_acknowledge(self, now: float) -> bool:
        return self.clock(now) * MS < self.words.deadline_ns


class World:
    """Brokers that follow, lead, crash and come back; every acknowledged message is remembered."""

    def __init__(self, dice: random.Random, count: int = 3, drift: float = 0.02,
                 min_in_sync: int = 1) -> None:
        self.dice = dice
        self.now = 0.0
        self.etcd = FakeEtcd()
        self.rules = replace(RULES, min_in_sync=min_in_sync)
        self.brokers = [Broker(member, rules=self.rules, drift=dice.uniform(1 - drift, 1 + drift),
                               offset_ms=dice.uniform(0, 1e6)) for member in range(1, count + 1)]
        self.acknowledged: list[Entry] = []
        self.shown: list[Entry] = []       # what anybody has read, by position
        self.late: list[tuple[float, Transact]] = []
        self.lossy_at = 0.0           # when an answer may have been lost last
        self.changes = 0
        self.set_backs = 0
        self.lost = 0.0               # share of lost answers
        self.deaths = 0.0             # of questions behind which the process dies
        self.serial = 0

    def run(self, ms: float, each: Callable[[], None] | None = None) -> None:
        until = self.now + ms
        while self.now < until:
            self.tick()
            if each is not None:
                each()

    def tick(self) -> None:
        self.now += TICK_MS
        self.etcd.expire(self.now)
        for at, asked in [one for one in self.late if one[0] <= self.now]:
            self.late.remove((at, asked))
            try:
                self.etcd.transact(asked)
            except KeyError:
                continue
        self.lossy_at = self.now if self.lost else self.lossy_at
        for broker in self.brokers:
            if not broker.alive or broker.cut_off or broker.refusal != REFUSAL_NONE:
                broker.well_since = max(broker.well_since, self.now)
        for broker in self.dice.sample(self.brokers, len(self.brokers)):
            if not broker.alive and broker.up_at <= self.now:
                broker.alive, broker.election = True, broker.begin()
            if broker.alive:
                self._turn(broker)
        for broker in self.brokers:
            if broker.alive and broker.leads:
                self._lead(broker)
        for broker in self.brokers:
            if broker.alive:
                self._show(broker)

    def crash(self, broker: Broker, for_ms: float) -> None:
        broker.alive, broker.up_at = False, self.now + for_ms
        broker.leads, broker.replicated, broker.acked, broker.applied = 0, 0, 0, ()
        broker.begun = broker.told = 0
        broker.said = Words()
        broker.reports, broker.called_at = {}, -1.0
        broker.storing = Storing()
        if broker.refusal == REFUSAL_FLUSH_FAILED:   # final, for a run
            broker.refusal = REFUSAL_NONE

    def fail_disk(self, broker: Broker) -> None:
        """It takes no writes any more; what it has taken stays, as with store.flush = "sync"."""
        broker.refusal = self.dice.choice(
            (REFUSAL_DISK_FULL, REFUSAL_WRITE_FAILED, REFUSAL_FLUSH_FAILED))

    def lose_queues(self, broker: Broker, for_ms: float) -> None:
        """It dies, and the files of its queues are not there when it comes back."""
        self.crash(broker, for_ms)
        broker.shown = 0

    def lose_disk(self, broker: Broker, for_ms: float) -> None:
        """It begins with an empty one; not where nobody else would have what was acknowledged."""
        state = self.etcd.view().state
        stores = {} if state is None else state.stores
        if not any(stores.get(other.member) == other.store
                   for other in self.brokers if other is not broker):
            return
        self.crash(broker, for_ms)
        self.serial += 1
        broker.store = f"{broker.store}-{self.serial}"
        broker.log, broker.heard, broker.shown, broker.first = [], 0, 0, 0
        broker.refusal = REFUSAL_NONE

    def set_back(self, broker: Broker, for_ms: float) -> None:
        """
        Its disk has the state of a snapshot, which is younger than the store. Not where no other
        member has what was acknowledged, nor where etcd has not heard of what it lacks then: a
        member that does not reach etcd is believed for so long.
        """
        taken, view = broker.snapshot, self.etcd.view()
        stores = {} if view.state is None else view.state.stores
        if taken is None or taken.store != broker.store or not any(
                stores.get(other.member) == other.store
                and set(self.acknowledged) <= set(other.log)     # it may be set back itself
                for other in self.brokers if other is not broker):
            return
        kept = view.kept.get(broker.member)
        common = common_end(taken.log, broker.log)
        if common < len(broker.log) and (
                kept is None or kept.store != broker.store or kept.position <= common):
            return
        self.crash(broker, for_ms)
        broker.log, broker.heard = list(taken.log), taken.heard
        broker.shown, broker.first = taken.shown, taken.first
        self.set_backs += 1

    def take_snapshot(self, broker: Broker) -> None:
        broker.snapshot = Snapshot(broker.store, list(broker.log), broker.heard, broker.shown,
                                   broker.first)

    def retain(self, broker: Broker) -> None:
        """Its disk is full: it deletes young segments, but none that others still have to fetch."""
        most = min(len(one.log) for one in self.brokers)
        if not broker.leads and not broker.words.leads and most > broker.first:
            broker.first = self.dice.randint(broker.first + 1, most)

    def forget(self) -> None:
        """Deleted messages are now too old for all brokers."""
        first = max(broker.first for broker in self.brokers)
        for broker in self.brokers:
            broker.first = min(first, len(broker.log))

    def be_well(self) -> None:
        """All troubles end."""
        self.lost = self.deaths = 0.0
        for broker in self.brokers:
            broker.cut_off = broker.unlinked = False
            broker.refusal = REFUSAL_NONE
            broker.up_at = min(broker.up_at, self.now)
        self.forget()

    def _turn(self, broker: Broker) -> None:
        if self.dice.random() < 0.8:
            self._ask(broker)
            if broker.election.set_back_from:
                self.serial += 1
                broker.store = f"{broker.store}-{self.serial}"
                self.crash(broker, self.dice.uniform(20, 500))       # its run begins anew
                return
            if self.dice.random() < self.deaths:
                broker.begin_anew(broker.said)
        words = broker.said = broker.words
        broker.applied = words.waited_for if self.dice.random() < 0.7 else broker.applied
        if broker.leads and words.leads != broker.leads:
            self.crash(broker, self.dice.uniform(20, 500))       # its run begins anew
        elif words.leads and not broker.leads:
            broker.called_at = self.now if broker.called_at < 0 else broker.called_at
            if self.now - broker.called_at > self.dice.uniform(0, 300):
                self._begin_to_lead(broker, words.leads)
        elif not words.leads:
            broker.called_at = -1.0

    def _ask(self, broker: Broker) -> None:
        outcome = "answered"
        if broker.cut_off:
            outcome = "unasked"
        elif self.dice.random() < self.lost:
            outcome = self.dice.choice(("unasked", "unanswered", "late"))
        asked = broker.election.next(broker.here(self.now))
        if asked is None:
            return
        if outcome == "late":
            if isinstance(asked, Transact):
                self.late.append((self.now + self.dice.uniform(20, 3000), asked))
            outcome = "unasked"
        broker.put(asked, self.etcd, self.now, outcome)

    def _begin_to_lead(self, broker: Broker, epoch: int) -> None:
        assert epoch > broker.epoch, "an epoch that the log has had"
        missing = [one for one in self.acknowledged if one not in set(broker.log)]
        assert missing == [], f"member {broker.member} leads without {missing[:3]}"
        self._look_for_whole(broker)
        broker.leads, broker.heard, broker.called_at = epoch, epoch, -1.0
        broker.reports, broker.replicated = {}, 0
        broker.acked, broker.begun = 0, len(broker.log)
        self.changes += 1

    def _look_for_whole(self, broker: Broker) -> None:
        """FO12: the new leader has deleted nothing that a healthy member of the set has."""
        state = self.etcd.view().state
        if state is None or state.whole_from is None or broker.first <= state.whole_from:
            return
        for other in self.brokers:
            since = self.now - max(other.well_since, self.lossy_at)
            if state.stores.get(other.member) == other.store and since > WELL_MS:
                assert other.first > state.whole_from, (
                    f"member {broker.member} leads, and has deleted what member {other.member} has")

    def _lead(self, leader: Broker) -> None:
        clock = int(leader.clock(self.now))
        if self.dice.random() < 0.5 and leader.refusal == REFUSAL_NONE:
            self.store(leader)
        for other in self.brokers:
            if other is leader:
                continue
            linked = self._follows(other, leader)
            before = leader.reports.get(other.number)
            if linked and self.dice.random() < 0.7 and other.refusal == REFUSAL_NONE:
                self._copy(leader, other)
            linked = linked and other.log == leader.log[:len(other.log)]     # HS7
            if linked:
                other.heard = leader.heard
                self.looked(other, leader)
                other.told = max(other.told, leader.replicated, leader.told)
                end = len(other.log)
                even = clock if end >= len(leader.log) or before is None else before.even_ms
                leader.reports[other.number] = Report(end, even, True)
            elif before is not None:
                leader.reports[other.number] = Report(before.acked, before.even_ms, False)
        for number in STRANGERS:
            leader.reports.pop(number, None)
            if leader.lied_to:
                leader.reports[number] = Report(len(leader.log) + 1000, clock, True)
        self._acknowledge(leader)

    def store(self, leader: Broker) -> None:
        """It takes something into its log."""
        self.serial += 1
        leader.log.append(Entry(leader.leads, self.serial))

    def cut(self, _broker: Broker, _end: int) -> None:
        """Its log is about to lose what lies behind so many entries."""

    def take(self, broker: Broker, entries: list[Entry]) -> None:
        """They come from who leads, behind what is there."""
        broker.log = [*broker.log, *entries]

    def looked(self, _follower: Broker, _leader: Broker) -> None:
        """It is linked with who leads, and may ask it for its tables."""

    def _follows(self, other: Broker, leader: Broker) -> bool:
        words = other.words
        return (other.alive and not other.leads and not words.leads and not other.unlinked
                and not leader.unlinked and words.leader is not None
                and words.leader.member == leader.member)

    def _copy(self, leader: Broker, other: Broker) -> None:
        """As the real one: what the log of who leads has not is cut."""
        common = common_end(other.log, leader.log)
        acked = set(self.acknowledged)
        assert not acked & (set(other.log[common:]) - set(leader.log)), "acknowledged, and cut"
        assert other.shown <= common, f"member {other.member} has shown what it cuts"
        if not other.log:
            other.first = leader.first
        if common < len(other.log):
            self.cut(other, common)
            other.log = other.log[:common]
        if len(leader.log) > common:
            self.take(other, leader.log[common:common + COPIED_A_TICK])

    def _show(self, broker: Broker) -> None:
        """An offset means one message for ever (FO10)."""
        if broker.leads:
            broker.told = max(broker.told, broker.words.shown)
        broker.shown = max(broker.shown, min(len(broker.log), max(broker.told, broker.replicated)))
        seen = broker.log[:broker.shown]
        assert seen[:len(self.shown)] == self.shown[:len(seen)], (
            f"member {broker.member} shows another message at an offset")
        self.shown += seen[len(self.shown):]

    def _acknowledge(self, leader: Broker) -> None:
        if len(leader.applied) < self.rules.min_in_sync:
            return
        reports = [leader.reports.get(number) for number in leader.applied]
        if any(one is None or not one.connected for one in reports):
            return
        leader.replicated = max(leader.replicated, min(
            one.acked for one in reports if one is not None))
        if not leader.may_acknowledge(self.now):
            return
        for entry in leader.log[leader.acked:leader.replicated]:
            if entry not in self.acknowledged[-200:] and entry[0] == leader.leads:
                self.acknowledged.append(entry)
        leader.acked = max(leader.acked, leader.replicated)
