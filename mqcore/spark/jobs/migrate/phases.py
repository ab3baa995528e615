"""
The phases of a migration, each of which can be run again at any time.

copy     settings, and all messages that are there when it begins
cutover  until nothing more comes: the rest of the messages, then groups' offsets
verify   whether what was copied is the same on both clusters
"""
from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mqcore.client.message import MessageQueue
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.jobs.frame import EXIT_FINE, EXIT_MISMATCH, Outcome
from mqcore.spark.jobs.migrate.clusters import Cluster, Settings, paired
from mqcore.spark.jobs.migrate.copying import Copying
from mqcore.spark.jobs.migrate.table import MigrationTable
from mqcore.spark.jobs.reconcile import ORIGIN, reconcile
from mqcore.spark.session import own_session
from mqcore.wire.codes import DLQ_PREFIX, RETRY_PREFIX

MESSAGES_MAX: Final = 1_000_000
QUIET_S: Final = 45.0               # clients ask for routes every 30 s
WAIT_S: Final = 600.0
LOOK_S: Final = 1.0
WRITES_MAX: Final = 3               # of groups' offsets, until the new cluster shows them
_NEVER_MS: Final = 1 << 60


@dataclass
class Migration:
    """
    One cluster on its way to another.

    source, target  options of the source and the sink `rocketmq`: nameServer, rocketmq.*
    state           a folder for the table of offsets, of this migration alone
    topics, groups  regular expressions of whole names; None: all but the brokers' own
    brokers         old name -> new name, where they are not the same and not one each
    messages_max    of a round
    sink            more options of the sink
    broken          of bodies that nobody can decompress: `fail`, or `raw`: copied as they are
    """

    source: Mapping[str, str]
    target: Mapping[str, str]
    state: Path
    topics: str | None = None
    groups: str | None = None
    brokers: Mapping[str, str] = field(default_factory=dict)
    messages_max: int = MESSAGES_MAX
    sink: Mapping[str, str] = field(default_factory=dict)
    broken: str = "fail"

    # -- the phases -------------------------------------------------------------------------------

    def copy(self, spark: Any, *, open_dead_letters: bool = False) -> Outcome:
        """
        Settings and messages, up to what is there when it begins.

        open_dead_letters  make dead letters' topics readable on the old cluster
        Raises SparkSourceError, and what Spark says of a task that failed.
        """
        with self._under_way(spark) as way:
            if open_dead_letters:
                way.settings.open_dead_letters(DLQ_PREFIX)
            made = way.prepare()
            copied = way.copy_all(way.copying.ends(way.queues))
            said = way.said()
            return Outcome(way.status(said), {
                "phase": "copy", **made, "copied": copied,
                "behind": way.copying.behind(way.queues), **said})

    def cutover(
        self, spark: Any, *, stop_writes: bool = False, drain: Sequence[str] = (),
        quiet_s: float = QUIET_S, wait_s: float = WAIT_S,
    ) -> Outcome:
        """
        The rest, once nothing more comes, and where groups go on.

        stop_writes  let name servers show the old brokers as not writable
        drain        wait until these groups have consumed all on the old cluster
        quiet_s      nothing is stored, delayed or undecided for so long: nothing more comes
        wait_s       for that, and for groups, at most
        Raises as `copy`.
        """
        with self._under_way(spark) as way:
            made = way.prepare()
            deadline = time.monotonic() + wait_s
            copied, still_s, last = 0, time.monotonic(), None
            while True:
                if stop_writes:             # what a broker registers makes it writable again
                    for broker in way.table.brokers:
                        way.source.admin.wipe_write_perm(broker)
                made = {name: made[name] + count for name, count in way.prepare().items()}
                copied += way.copy_all(None)
                waiting, ends = way.settings.waiting(), way.copying.ends(way.queues)
                now = time.monotonic()
                if ends != last or any(waiting.values()):
                    still_s, last = now, ends
                drained = way.drained(drain, ends)
                is_over = now - still_s >= quiet_s and drained
                if is_over or now >= deadline:
                    break
                time.sleep(LOOK_S)
            way.settings.settle_topics()
            groups = way.move_groups()
            said = way.said()
            behind = way.copying.behind(way.queues)
            clean = is_over and not behind and not any(waiting.values())
            return Outcome(way.status(said) if clean else EXIT_MISMATCH, {
                "phase": "cutover", **made, "copied": copied, "behind": behind, "quiet": is_over,
                "drained": drained, "waiting": waiting, "groups": groups, **said})

    def verify(self, spark: Any) -> Outcome:
        """Compare what was copied, message by message. Raises as `copy`."""
        with self._under_way(spark) as way:
            way.prepare_nothing()
            if not any(one.segments for one in way.table.queues.values()):
                raise SparkSourceError(f"--state: {self.state} knows of no message that was copied")
            way.copying.read_back([queue for queue in way.queues if queue in way.table.queues])
            left, right, ends = way.copying.frames()
            found = reconcile(left, right, by=ORIGIN, until=_NEVER_MS, fence=ends)
            return Outcome(found.status, {"phase": "verify", **way.said(), **found.figures})

    # -- inside -----------------------------------------------------------------------------------

    @contextmanager
    def _under_way(self, spark: Any) -> Iterator[_Way]:
        with own_session(spark) as own, Cluster("source", self.source).running() as source, Cluster(
                "target", self.target).running() as target:
            yield _Way(self, own, source, target)


class _Way:
    """A run of one phase."""

    def __init__(self, migration: Migration, spark: Any, source: Cluster, target: Cluster) -> None:
        self._state = migration.state
        self.source, self.target = source, target
        self.table = MigrationTable.load(migration.state)
        brokers = paired(source.masters(), target.masters(), migration.brokers)
        if self.table.brokers and self.table.brokers != brokers:
            raise OptionError(f"--state: {migration.state} is of brokers {self.table.brokers}, not"
                              f" of {brokers}: give each migration a folder of its own")
        self.table.brokers = brokers
        self.settings = Settings(source, target, brokers, _pattern("--topics", migration.topics),
                                 _pattern("--groups", migration.groups))
        self.copying = Copying(spark, source, target, self.table,
                               messages_max=migration.messages_max, sink=migration.sink,
                               broken=migration.broken)
        self.queues: list[MessageQueue] = []
        self.closed: list[str] = []

    def prepare(self) -> dict[str, int]:
        """Settings, and the queues that there are now; how much the new cluster got."""
        self.prepare_nothing()
        return {"topicsMade": self.settings.prepare_topics(),
                "groupsMade": self.settings.prepare_groups()}

    def prepare_nothing(self) -> None:
        """Look at what there is."""
        self.settings.look()
        self.queues, self.closed = self.settings.queues()

    def copy_all(self, until: dict[MessageQueue, int] | None) -> int:
        """Rounds until nothing is left; the table is kept after each. How many messages."""
        total = 0
        while True:
            done = self.copying.round(self.queues, until)
            self.table.save(self._state)
            total += done.messages
            if not done.left:
                return total

    def drained(self, groups: Sequence[str], ends: Mapping[MessageQueue, int]) -> bool:
        """
        Whether these groups have consumed all that the old cluster has: all of every topic of
        which they have an offset, and of their retries. A group without any has consumed nothing.
        """
        offsets: dict[str, dict[MessageQueue, int]] = {group: {} for group in groups}
        for broker in self.table.brokers if groups else ():
            for one in self.source.admin.all_offsets(broker):
                if one.group in offsets:
                    offsets[one.group][one.queue] = one.offset
        return all(has_consumed(group, offsets[group], ends) for group in offsets)

    def move_groups(self) -> dict[str, Any]:
        """
        Let groups go on behind what they consumed; forwards only: they may be at work there.

        Raises SparkSourceError when the new cluster does not keep what it was told.
        """
        wanted: dict[tuple[str, MessageQueue], int] = {}
        lags: dict[str, int] = {}
        ends = self.copying.ends(self.queues)
        for broker in self.table.brokers:
            for one in self.source.admin.all_offsets(broker):
                if one.queue in ends and one.offset >= 0 and self.settings.has_group(one.group):
                    place = self.table.of(one.queue).translate(one.offset)
                    wanted[one.group, self.table.target(one.queue)] = place
                    lags[one.group] = lags.get(one.group, 0) + max(ends[one.queue] - one.offset, 0)
        moved: dict[str, int] = dict.fromkeys(sorted(lags), 0)
        for _ in range(WRITES_MAX):
            there = {(one.group, one.queue): one.offset
                     for target in sorted(set(self.table.brokers.values()))
                     for one in self.target.admin.all_offsets(target)}
            due = {key: place for key, place in wanted.items() if there.get(key, -1) < place}
            if not due:
                return {group: {"queues": sum(1 for name, _ in wanted if name == group),
                                "moved": count, "lag": lags[group]}
                        for group, count in moved.items()}
            for (group, queue), place in due.items():
                self.target.admin.set_offset(group, queue, place)
                moved[group] += 1
        raise SparkSourceError(f"the new cluster does not keep the offsets of group"
                               f" {next(iter(due))[0]}: is it running?")

    def said(self) -> dict[str, Any]:
        """What a report says of all queues."""
        maps = self.table.queues.values()
        readable = self.copying.ends(self.queues)
        closed = {*self.closed, *(one.topic for one in self.queues if one not in readable)}
        return {"queues": len(self.queues), "there": sum(one.copied for one in maps),
                "broken": sum(one.broken for one in maps),
                "duplicates": sum(one.duplicates for one in maps),
                "expired": sum(one.expired for one in maps),
                "foreign": sum(one.foreign is not None for one in maps),
                "unreadable": sorted(closed),
                "sameBrokerNames": any(old == new for old, new in self.table.brokers.items())}

    def status(self, said: Mapping[str, Any]) -> int:
        """Whether something is not as it was on the old cluster."""
        wrong = said["duplicates"] or said["expired"] or said["unreadable"]
        return EXIT_MISMATCH if wrong else EXIT_FINE


def has_consumed(group: str, offsets: Mapping[MessageQueue, int],
                 ends: Mapping[MessageQueue, int]) -> bool:
    """Whether offsets of a group, of some queues, are those of one that has all (`drained`)."""
    topics = {queue.topic for queue in offsets} | {RETRY_PREFIX + group}
    return bool(offsets) and all(offsets.get(queue, 0) >= end for queue, end in ends.items()
                                 if queue.topic in topics)


def _pattern(name: str, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise OptionError(f"{name} {text!r}: {error}") from None
