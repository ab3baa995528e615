"""
The history behind charts: 15 minutes by the second, and 24 hours by the minute.

In memory only, and bounded: each series has a fixed size, and there are at most SERIES_MAX. A
series without a value for as long as a chart shows makes room for a new one.
"""
from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

SECONDS, MINUTES = 900, 1_440
SERIES_MAX = 400                       # 19 KB each
NOTHING = math.nan


class Ring:
    """The last values at a fixed step; time that passed without one is a gap."""

    def __init__(self, count: int, step_s: int) -> None:
        self._values = array("d", [NOTHING]) * count
        self._step_s = step_s
        self._last = -1                # step of the newest value

    def put(self, now_s: float, value: float) -> None:
        """The value at a time, in place of one of the same step; steps between are empty."""
        step = int(now_s // self._step_s)
        if step < self._last:          # the clock was put back: what was newer is void
            self._last = step - 1
        count = len(self._values)
        for missing in range(max(self._last + 1, step - count + 1), step):
            self._values[missing % count] = NOTHING
        self._values[step % count] = value
        self._last = step

    def points(self, now_s: float, span_s: float) -> list[tuple[int, float | None]]:
        """(time, value) of each step of the last `span_s` seconds, the oldest first."""
        end = int(now_s // self._step_s)
        count = len(self._values)
        first = max(end - min(count, int(span_s // self._step_s)) + 1, 0)
        found: list[tuple[int, float | None]] = []
        for step in range(first, end + 1):
            known = self._last - count < step <= self._last
            value = self._values[step % count] if known else NOTHING
            found.append((step * self._step_s, None if math.isnan(value) else value))
        return found


class Series:
    """One number over time; the value of a minute is the mean over its seconds."""

    def __init__(self) -> None:
        self.seconds = Ring(SECONDS, 1)
        self.minutes = Ring(MINUTES, 60)
        self.used_s = 0.0
        self._minute, self._sum, self._count = -1, 0.0, 0

    def put(self, now_s: float, value: float) -> None:
        """A value at a time."""
        self.seconds.put(now_s, value)
        minute = int(now_s // 60)
        if minute != self._minute:
            self._minute, self._sum, self._count = minute, 0.0, 0
        self._sum += value
        self._count += 1
        self.minutes.put(now_s, self._sum / self._count)
        self.used_s = now_s


class History:
    """Series by name."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self._series: dict[str, Series] = {}
        self._series_max = series_max

    def __len__(self) -> int:
        return len(self._series)

    def put(self, now_s: float, values: Mapping[str, float]) -> None:
        """Values of one moment. Those that find no room are left out."""
        for name, value in values.items():
            found = self._series.get(name)
            if found is None:
                if len(self._series) >= self._series_max and not self._make_room(now_s):
                    continue
                found = self._series[name] = Series()
            found.put(now_s, value)

    def _make_room(self, now_s: float) -> bool:
        """Whether a series went that has had no value for as long as a chart shows."""
        oldest = min(self._series, key=lambda name: self._series[name].used_s)
        if now_s - self._series[oldest].used_s < SECONDS:
            return False
        del self._series[oldest]
        return True

    def chart(self, names: Iterable[str], now_s: float, span_s: float) -> dict[str, Any]:
        """Times, and for each name its values at them; None where there is none."""
        columns: dict[str, list[float | None]] = {}
        times: list[int] = []
        for name in names:
            found = self._series.get(name) or Series()
            ring = found.seconds if span_s <= SECONDS else found.minutes
            points = ring.points(now_s, span_s)
            times = [at for at, _ in points]
            columns[name] = [value for _, value in points]
        return {"times": times, "values": columns}
