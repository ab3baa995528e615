"""How long puts and gets take, as GET_BROKER_RUNTIME_INFO (28) says it (remoting.md 5.5)."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from mqcore.shm.latencies import EDGES_US, Histogram

WINDOW_S = 60
# Where the buckets of putMessageDistributeTime end, in ms, without the last one.
BUCKETS = {"[<=0ms]": 1, "[0~10ms]": 10, "[10~50ms]": 50, "[50~100ms]": 100, "[100~200ms]": 200,
           "[200~500ms]": 500, "[500ms~1s]": 1_000, "[1~2s]": 2_000, "[2~3s]": 3_000,
           "[3~4s]": 4_000, "[4~5s]": 5_000, "[5~10s]": 10_000}
REST = "[10s~]"


class LatencyFigures:
    """
    The distribution and the quantiles are those of the last whole minute, until there is one those
    since the start; the maxima are those since the start.
    """

    def __init__(self, now: float, total: Callable[[str], Histogram]) -> None:
        """total: of all processes, by the name of the histogram."""
        self._total = total
        self._began = now
        self._before = total("send")
        self._minute: Histogram | None = None

    def sample(self, now: float) -> None:
        """To be called about once a second; now: a steady clock, in seconds."""
        if now - self._began >= WINDOW_S:
            sends = self._total("send")
            self._minute, self._before, self._began = sends.since(self._before), sends, now

    def keys(self) -> Mapping[str, str]:
        sends = self._total("send")
        minute = sends if self._minute is None else self._minute
        return {
            "putMessageEntireTimeMax": str(longest_ms(sends)),
            "getMessageEntireTimeMax": str(longest_ms(self._total("pull"))),
            "putLatency99": f"{minute.quantile_us(0.99) / 1000:.2f}",
            "putLatency999": f"{minute.quantile_us(0.999) / 1000:.2f}",
            "putMessageDistributeTime": distribution(minute),
        }


def longest_ms(times: Histogram) -> int:
    """In whole milliseconds; a bucket's begin, so up to a fifth less."""
    return max((edge for edge, count in zip(EDGES_US, times.counts, strict=True) if count),
               default=0) // 1000


def distribution(times: Histogram) -> str:
    """A bucket that lies across an end of a stock bucket counts where it begins."""
    below = [sum(count for edge, count in zip(EDGES_US, times.counts, strict=True)
                 if edge < 1000 * end) for end in BUCKETS.values()]
    counts = [below[0], *(after - before for before, after in pairwise(below)),
              times.count - below[-1]]
    return " ".join(f"{name}:{count}" for name, count in zip((*BUCKETS, REST), counts, strict=True))
