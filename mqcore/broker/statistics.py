"""
What was put and got: by topic, by group, by the whole broker, over minute, hour and day.

broker.md 11.1, 11.2 (RocketMQ 4.9.8: BrokerStatsManager, StatsItem, BrokerStats). Nothing is
counted while messages are stored or pulled. Every ten seconds the coordinator compares what is
known anyway with what was known before:

    TOPIC_PUT_NUMS    how far the ends of the topic's queues moved
    GROUP_GET_NUMS    how far the offsets that an online group committed moved
    BROKER_PUT_NUMS   the writer's counter of records
    BROKER_GET_NUMS   the serving processes' counters of messages handed out

Items that would need more than that are not kept, so asking for them says that there are none.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

SAMPLE_INTERVAL_MS = 10_000
HOUR_PART_MS = 600_000
DAY_PART_MS = 3_600_000
MINUTE_PARTS, HOUR_PARTS, DAY_PARTS = 6, 6, 24      # one less than stock keeps snapshots
ITEM_COUNT_MAX = 100_000                            # names beyond that are not counted

Item = tuple[str, str]                              # name and key, as VIEW_BROKER_STATS_DATA asks


@dataclass(slots=True, frozen=True)
class Window:
    """What happened in the full parts of a minute, an hour or a day."""

    total: int = 0
    elapsed_ms: int = 0

    @property
    def tps(self) -> float:
        return self.total * 1000 / self.elapsed_ms if self.elapsed_ms > 0 else 0.0


@dataclass(slots=True, frozen=True)
class Windows:
    minute: Window
    hour: Window
    day: Window


@dataclass(slots=True)
class _Part:
    begin_ms: int
    end_ms: int = 0
    counts: dict[Item, int] = field(default_factory=dict)


class _Series:
    """The newest full parts, and the one that is being filled. Items that rest cost nothing."""

    def __init__(self, part_ms: int, part_count: int, now_ms: int) -> None:
        self._part_ms = part_ms
        self._parts: deque[_Part] = deque(maxlen=part_count)
        self._open = _Part(now_ms)

    def add(self, counts: Mapping[Item, int], now_ms: int) -> None:
        """What was counted until `now_ms`; the open part is full when it is long enough."""
        for item, count in counts.items():
            self._open.counts[item] = self._open.counts.get(item, 0) + count
        if not 0 <= now_ms - self._open.begin_ms < self._part_ms:
            self._open.end_ms = now_ms
            self._parts.append(self._open)
            self._open = _Part(now_ms)

    def window(self, item: Item, since_ms: int) -> Window:
        """Of an item that is known since `since_ms`."""
        parts = [part for part in self._parts if part.end_ms > since_ms]
        if not parts:
            return Window()
        return Window(
            sum(part.counts.get(item, 0) for part in parts),
            parts[-1].end_ms - parts[0].begin_ms,
        )


class Statistics:
    """All items. `sample` them every SAMPLE_INTERVAL_MS."""

    def __init__(self) -> None:
        self._known: dict[Item, int] = {}           # since when
        self._series: tuple[_Series, _Series, _Series] | None = None
        self._last_ms = 0
        self._broker_totals = (0, 0)
        self._day: date | None = None
        self.totals_at_midnight = ((0, 0), (0, 0))  # (stored, handed out): yesterday's, today's

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for a sample; also after the clock was set back."""
        return not 0 <= now_ms - self._last_ms < SAMPLE_INTERVAL_MS

    def sample(
        self, now_ms: int, cluster: str, stored: Mapping[str, int],
        consumed: Mapping[tuple[str, str], int], broker_totals: tuple[int, int],
    ) -> None:
        """
        Take what happened since the last sample; the first one only starts the clock.

        stored         topic -> messages; consumed: (topic, group) -> messages
        broker_totals  messages stored and handed out since the broker's start
        """
        begin_ms, self._last_ms = self._last_ms, now_ms
        before, self._broker_totals = self._broker_totals, broker_totals
        self._roll_day(now_ms, before)
        if self._series is None:
            self._series = (
                _Series(SAMPLE_INTERVAL_MS, MINUTE_PARTS, now_ms),
                _Series(HOUR_PART_MS, HOUR_PARTS, now_ms),
                _Series(DAY_PART_MS, DAY_PARTS, now_ms),
            )
            return
        counts: dict[Item, int] = {
            (TOPIC_PUT_NUMS, topic): count for topic, count in stored.items()
        }
        for (topic, group), count in consumed.items():
            counts[GROUP_GET_NUMS, f"{topic}@{group}"] = count
        counts[BROKER_PUT_NUMS, cluster] = max(broker_totals[0] - before[0], 0)
        counts[BROKER_GET_NUMS, cluster] = max(broker_totals[1] - before[1], 0)
        for item in list(counts):
            if item not in self._known:
                if len(self._known) >= ITEM_COUNT_MAX or not counts[item]:
                    del counts[item]
                    continue
                self._known[item] = begin_ms
        for series in self._series:
            series.add(counts, now_ms)

    def windows(self, name: str, key: str) -> Windows | None:
        """The item's three windows; None for one that was never counted."""
        item = (name, key)
        since_ms = self._known.get(item)
        if since_ms is None or self._series is None:
            return None
        minute, hour, day = (series.window(item, since_ms) for series in self._series)
        return Windows(minute, hour, day)

    def _roll_day(self, now_ms: int, totals: tuple[int, int]) -> None:
        """At the first sample of a local day, remember the totals of the one before it."""
        today = date.fromtimestamp(now_ms / 1000)
        if self._day is not None and today != self._day:
            self.totals_at_midnight = (self.totals_at_midnight[1], totals)
        self._day = today
