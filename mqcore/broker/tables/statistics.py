"""
What was put and got: by topic, by group, by the whole broker, over minute, hour and day.

broker.md 11.1, 11.2 (RocketMQ 4.9.8: BrokerStatsManager, StatsItem, BrokerStats). Every ten seconds
the counts since the last time are handed to `Statistics.sample` (statistics_sources.py says where
they come from). This module keeps them: for each item the sum, and how many calls made it.
"""
from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
GROUP_GET_FALL_SIZE = "GROUP_GET_FALL_SIZE"        # these two are last values, without windows
GROUP_GET_FALL_TIME = "GROUP_GET_FALL_TIME"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

SAMPLE_INTERVAL_MS = 10_000
HOUR_PART_MS = 600_000
DAY_PART_MS = 3_600_000
MINUTE_PARTS, HOUR_PARTS, DAY_PARTS = 6, 6, 24      # one less than stock keeps snapshots
ITEM_COUNT_MAX = 100_000                            # names beyond that are not counted
WORDS = 2                                           # of an item in a part: its sum, its calls

Item = tuple[str, str]                              # name and key, as VIEW_BROKER_STATS_DATA asks


class Count(NamedTuple):
    """A sum, and how many calls made it."""

    total: int
    calls: int

    def plus(self, other: Count) -> Count:
        return Count(self.total + other.total, self.calls + other.calls)


NOTHING = Count(0, 0)


@dataclass(slots=True, frozen=True)
class Window:
    """What happened in the full parts of a minute, an hour or a day."""

    total: int = 0
    elapsed_ms: int = 0
    calls: int = 0

    @property
    def tps(self) -> float:
        return self.total * 1000 / self.elapsed_ms if self.elapsed_ms > 0 else 0.0

    @property
    def per_call(self) -> float:
        return self.total / self.calls if self.calls > 0 else 0.0


@dataclass(slots=True, frozen=True)
class Windows:
    minute: Window
    hour: Window
    day: Window


@dataclass(slots=True, frozen=True)
class _Known:
    place: int                                      # in the parts
    since_ms: int


@dataclass(slots=True)
class _Part:
    begin_ms: int
    end_ms: int = 0
    words: array[int] = field(default_factory=lambda: array("q"))     # WORDS by place

    def add(self, place: int, count: Count) -> None:
        at = WORDS * place
        if len(self.words) < at + WORDS:
            self.words.frombytes(bytes(8 * (at + WORDS - len(self.words))))
        self.words[at] += count.total
        self.words[at + 1] += count.calls

    def count(self, place: int) -> Count:
        at = WORDS * place
        return Count(self.words[at], self.words[at + 1]) if at < len(self.words) else NOTHING


class _Series:
    """The newest full parts, and the one that is being filled. Items that rest cost little."""

    def __init__(self, part_ms: int, part_count: int, now_ms: int) -> None:
        self._part_ms = part_ms
        self._parts: deque[_Part] = deque(maxlen=part_count)
        self._open = _Part(now_ms)

    def add(self, counts: Mapping[int, Count], now_ms: int) -> None:
        """What was counted until `now_ms`, by place; a part is full when it is long enough."""
        for place, count in counts.items():
            self._open.add(place, count)
        if not 0 <= now_ms - self._open.begin_ms < self._part_ms:
            self._open.end_ms = now_ms
            self._parts.append(self._open)
            self._open = _Part(now_ms)

    def window(self, item: _Known) -> Window:
        parts = [part for part in self._parts if part.end_ms > item.since_ms]
        if not parts:
            return Window()
        counts = [part.count(item.place) for part in parts]
        return Window(
            sum(count.total for count in counts), parts[-1].end_ms - parts[0].begin_ms,
            sum(count.calls for count in counts),
        )


class Statistics:
    """All items. `sample` them every SAMPLE_INTERVAL_MS."""

    def __init__(self) -> None:
        self._known: dict[Item, _Known] = {}
        self._series: tuple[_Series, _Series, _Series] | None = None
        self._last_ms = 0
        self._noted: dict[Item, Count] = {}         # since the last sample
        self._broker_totals = (0, 0)
        self._day: date | None = None
        self.totals_at_midnight = ((0, 0), (0, 0))  # (stored, handed out): yesterday's, today's
        self.delay_offsets: Mapping[int, int] | None = None     # at the last sample

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for a sample; also after the clock was set back."""
        return not 0 <= now_ms - self._last_ms < SAMPLE_INTERVAL_MS

    def note(self, name: str, key: str) -> None:
        """One event that nothing else counts; it is in the next sample."""
        self.take_in({(name, key): Count(1, 1)})

    def take_in(self, counts: Mapping[Item, Count]) -> None:
        """Counts before the next sample, which has them, too. Their items are known at once."""
        for item, count in counts.items():
            known = item in self._noted or len(self._noted) < ITEM_COUNT_MAX
            if known and count != NOTHING:
                self._noted[item] = self._noted.get(item, NOTHING).plus(count)

    def sample(
        self, now_ms: int, cluster: str, counts: Mapping[Item, Count],
        broker_totals: tuple[int, int], wall_ms: int | None = None,
    ) -> None:
        """
        Take what happened since the last sample; the first one only starts the clock.

        counts         by item; those of the whole broker are added here
        broker_totals  messages stored and handed out since the broker's start
        wall_ms        by which days begin, if that is another clock
        """
        begin_ms, self._last_ms = self._last_ms, now_ms
        before, self._broker_totals = self._broker_totals, broker_totals
        self._roll_day(now_ms if wall_ms is None else wall_ms, before)
        if self._series is None:
            self._series = (
                _Series(SAMPLE_INTERVAL_MS, MINUTE_PARTS, now_ms),
                _Series(HOUR_PART_MS, HOUR_PARTS, now_ms),
                _Series(DAY_PART_MS, DAY_PARTS, now_ms),
            )
            return
        noted, self._noted = self._noted, {}
        stored, handed_out = (max(now - then, 0)
                              for now, then in zip(broker_totals, before, strict=True))
        everything = {
            **counts,
            **{item: counts.get(item, NOTHING).plus(count) for item, count in noted.items()},
            (BROKER_PUT_NUMS, cluster): Count(stored, 0),           # calls: not counted
            (BROKER_GET_NUMS, cluster): Count(handed_out, 0),
        }
        placed = self._placed(everything, begin_ms)
        for series in self._series:
            series.add(placed, now_ms)

    def windows(self, name: str, key: str) -> Windows | None:
        """The item's three windows, empty before its first sample; None: it was never counted."""
        item = self._known.get((name, key))
        if item is None or self._series is None:
            return Windows(Window(), Window(), Window()) if (name, key) in self._noted else None
        minute, hour, day = (series.window(item) for series in self._series)
        return Windows(minute, hour, day)

    def _placed(self, counts: Mapping[Item, Count], begin_ms: int) -> dict[int, Count]:
        """Counts by place; new items that are more than nothing get one while there is room."""
        placed = {}
        for item, count in counts.items():
            known = self._known.get(item)
            if known is None:
                if count == NOTHING or len(self._known) >= ITEM_COUNT_MAX:
                    continue
                known = self._known[item] = _Known(len(self._known), begin_ms)
            placed[known.place] = count
        return placed

    def _roll_day(self, now_ms: int, totals: tuple[int, int]) -> None:
        """At the first sample of a local day, remember the totals of the one before it."""
        today = date.fromtimestamp(now_ms / 1000)
        if self._day is not None and today != self._day:
            self.totals_at_midnight = (self.totals_at_midnight[1], totals)
        self._day = today

