"""
One scrape's view: shared memory, /proc and the store's folders, summed up as the metrics need it.

A Watcher lives as long as its process and keeps what does not change: the names of queues, and
which topics and groups have series of their own. A Look is one scrape.
"""
from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from mqcore.broker.settings.model import Settings
from mqcore.http.lag import Pair, SavedOffsets, Times, UnreadTimes
from mqcore.http.processes import Process, of_run
from mqcore.shm.latencies import Latencies
from mqcore.shm.pull_counts import COLUMNS, PullCountReader
from mqcore.shm.retention import QueueLives
from mqcore.shm.segment import Segment
from mqcore.shm.tables import TableReader
from mqcore.wire.codes import DLQ_PREFIX

OTHER = "_other"                       # what has no series of its own
COUNTS = 3                             # of QueueLives.counts: offset, bytes, requests
MESSAGES, SIZE = 3, 4                  # of PullCountReader.rows, behind queue and group

Key = TypeVar("Key", bound=Hashable)


class Bounded(Generic[Key]):
    """The keys that have series of their own: the first ones, until they disappear."""

    def __init__(self, count_max: int, other: Key) -> None:
        self.count_max = count_max
        self._other = other
        self._own: dict[Key, None] = {}
        self._counted: dict[str, tuple[float, dict[Key, float]]] = {}
        self.folded = 0

    def admit(self, present: Mapping[Key, object]) -> None:
        """Take in new keys, in place of keys that have gone."""
        if len(self._own) >= self.count_max:
            self._own = {key: None for key in self._own if key in present}
        for key in present:
            if len(self._own) >= self.count_max:
                break
            self._own[key] = None
        self.folded = len(present) - sum(key in self._own for key in present)

    def summed(self, values: Iterable[tuple[Key, float]]) -> dict[Key, float]:
        """The values of keys that have series, and the sum of all others."""
        sums: dict[Key, float] = {}
        own, other = self._own, self._other
        for key, value in values:
            if key not in own:
                key = other
            sums[key] = sums.get(key, 0) + value
        return sums

    def counted(self, counter: str, values: Iterable[tuple[Key, float]]) -> dict[Key, float]:
        """
        The same of a counter, by its name: what the others have gained since the last look is added
        up. A key that disappears, or gets a series, takes nothing away: a counter that falls by one
        message would read as if all messages had come again.
        """
        total, before = self._counted.get(counter, (0, {}))
        found: dict[Key, float] = {}
        now: dict[Key, float] = {}
        for key, value in values:
            if key in self._own:
                found[key] = value
            else:
                last = before.get(key, 0)
                total += value - last if value >= last else value      # less: a new life
                now[key] = value
        self._counted[counter] = total, now
        if total:
            found[self._other] = total
        return found


class Watcher:
    """State that a process keeps between scrapes."""

    def __init__(self, settings: Settings, segment: Segment, times: Times | None = None) -> None:
        """times: of stored messages; without them no age is shown."""
        self.settings = settings
        self.segment = segment
        self.lives = QueueLives(segment)
        self.pulls = PullCountReader(segment)
        self.tables = TableReader(segment)
        self.latencies = Latencies(segment)
        self.topics: Bounded[str] = Bounded(settings.http.metrics_topics_max, OTHER)
        self.groups: Bounded[Pair] = Bounded(settings.http.metrics_groups_max, (OTHER, OTHER))
        self.lags: Bounded[Pair] = Bounded(settings.http.metrics_groups_max, (OTHER, OTHER))
        self.dead_letters: Bounded[str] = Bounded(settings.http.metrics_groups_max, OTHER)
        self.offsets = SavedOffsets(settings, self.lives)
        self.unread = UnreadTimes(times)
        self._groups: dict[int, str] = {}
        self._number: dict[str, int] = {}
        self.names: list[str] = []          # of topics, each once
        self.topic_of: list[int] = []       # by queue: which of the names; a queue keeps its own

    def learn(self) -> None:
        """The topics of queues that are new."""
        for topic in self.lives.topics(len(self.topic_of)):
            at = self._number.setdefault(topic, len(self.names))
            if at == len(self.names):
                self.names.append(topic)
            self.topic_of.append(at)

    def group(self, number: int) -> str:
        """A group's name by its number in shared memory."""
        name = self._groups.get(number)
        if name is None:
            name = self._groups[number] = self.pulls.group(number)
        return name


class Look:
    """The state at one moment; each part is read when a metric asks for it."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.settings = watcher.settings
        self.segment = watcher.segment
        self.began = time.perf_counter()
        self.now_ms = time.time_ns() // 1_000_000

    @cached_property
    def processes(self) -> list[Process]:
        return list(of_run(self.segment))

    @cached_property
    def log(self) -> dict[str, int]:
        return self.segment.log_state()

    @cached_property
    def _ends(self) -> tuple[list[int], list[int]]:
        """By topic: messages, bytes. Of topics that come later in this look there is neither."""
        watcher = self.watcher
        counts = watcher.lives.counts()
        watcher.learn()                    # more than are counted, when one has come meanwhile
        words = memoryview(counts).cast("q")
        messages = [0] * len(watcher.names)
        sizes = [0] * len(watcher.names)
        for topic, end, size in zip(watcher.topic_of, words[0::COUNTS].tolist(),
                                    words[1::COUNTS].tolist(), strict=False):
            messages[topic] += end
            sizes[topic] += size
        watcher.topics.admit({name: None for name, count in zip(
            watcher.names, messages, strict=True) if count})
        return messages, sizes

    def messages_in(self) -> dict[str, float]:
        return self._of_topics("messages", self._ends[0])

    def bytes_in(self) -> dict[str, float]:
        return self._of_topics("bytes", self._ends[1])

    def _of_topics(self, counter: str, values: list[int]) -> dict[str, float]:
        messages = self._ends[0]
        return self.watcher.topics.counted(
            counter, ((name, value) for name, value, count in zip(
                self.watcher.names, values, messages, strict=False) if count))

    def dead_letters(self) -> dict[str, float]:
        """By group, whether its topic is told apart or not."""
        counts = {name.removeprefix(DLQ_PREFIX): count for name, count in zip(
            self.watcher.names, self._ends[0], strict=False)
            if count and name.startswith(DLQ_PREFIX)}
        self.watcher.dead_letters.admit(counts)
        return self.watcher.dead_letters.counted("messages", counts.items())

    @cached_property
    def _pulled(self) -> dict[Pair, list[int]]:
        """
        Messages and bytes that groups took of topics that have messages. Pairs of deleted topics
        stay in shared memory, and would keep their series for good.
        """
        watcher, present = self.watcher, self._ends[0]
        sums: dict[Pair, list[int]] = {}
        for serving in range(self.segment.serving_count):
            table = watcher.pulls.rows(serving)
            watcher.learn()
            words = memoryview(table).cast("q").tolist()
            for at in range(0, len(words), COLUMNS):
                topic = watcher.topic_of[words[at]]
                if topic >= len(present) or not present[topic]:
                    continue
                pair = watcher.group(words[at + 1]), watcher.names[topic]
                sums_of = sums.setdefault(pair, [0, 0])
                sums_of[0] += words[at + MESSAGES]
                sums_of[1] += words[at + SIZE]
        watcher.groups.admit(sums)
        return sums

    def messages_out(self) -> dict[Pair, float]:
        return self.watcher.groups.counted(
            "messages", ((pair, sums[0]) for pair, sums in self._pulled.items()))

    def bytes_out(self) -> dict[Pair, float]:
        return self.watcher.groups.counted(
            "bytes", ((pair, sums[1]) for pair, sums in self._pulled.items()))

    @cached_property
    def _ends_of_queues(self) -> list[int]:
        """By number of queue."""
        return memoryview(self.watcher.lives.counts()).cast("q")[0::COUNTS].tolist()

    @cached_property
    def lag(self) -> dict[Pair, float]:
        """Messages that groups have not committed yet; nothing where offsets cannot be read."""
        ends = self._ends_of_queues
        lags = {row.pair: sum(max(0, ends[number] - offset) for number, _, offset in row.queues)
                for row in self.watcher.offsets.rows() or []}
        self.watcher.lags.admit(lags)
        return self.watcher.lags.summed(lags.items())

    @cached_property
    def lag_ms(self) -> dict[Pair, float]:
        """
        Age of the oldest message that a group has not committed, 0 without any; of pairs with a
        series of their own, as far as ages are known.
        """
        lags = self.lag
        if self.watcher.unread.times is None:
            return {}
        rows = [row for row in self.watcher.offsets.rows() or [] if row.pair in lags]
        return self.watcher.unread.ages(rows, self._ends_of_queues, self.segment.store_time_ms())

    @cached_property
    def disks(self) -> dict[str, tuple[int, float]]:
        """Folder of the store -> bytes that are free, share that is used."""
        folders = self.settings.log_folders
        found = {}
        for folder in dict.fromkeys((self.settings.store_root, *folders.all())):
            try:
                disk = os.statvfs(folder)
            except OSError:                # taken away: the writer says so
                continue
            used = disk.f_blocks - disk.f_bfree
            found[str(Path(folder))] = (disk.f_bavail * disk.f_frsize,
                                        used / max(1, used + disk.f_bavail))
        return found
