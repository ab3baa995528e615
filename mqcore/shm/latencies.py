"""The histograms of a run, by the names of mqcore/figures.py."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import add

from mqcore.figures import LATENCIES
from mqcore.layout import LATENCY_BUCKETS
from mqcore.participants import processes
from mqcore.shm.latency import LatencySlots
from mqcore.shm.segment import Segment

SHARES = (0.5, 0.9, 0.99, 0.999)
BY_NAME = {latency.name: latency for latency in LATENCIES}


def edge_us(bucket: int) -> int:
    """Where a bucket begins: what is in it took at least so long (latency.pxd)."""
    if bucket < 4:
        return bucket
    return (4 + bucket % 4) << (bucket // 4 - 1)


EDGES_US = tuple(edge_us(bucket) for bucket in range(LATENCY_BUCKETS))


@dataclass(frozen=True)
class Histogram:
    """How long things took: their sum, and how many are in each bucket."""

    sum_us: int
    counts: list[int]

    @property
    def count(self) -> int:
        return sum(self.counts)

    def below(self, us: int) -> int:
        """How many took less than `us`, one of EDGES_US."""
        return sum(self.counts[:EDGES_US.index(us)])

    def quantile_us(self, share: float) -> float:
        """What this share of all took at most, 0.0 of none: a bucket's end, up to 25 % more."""
        left = share * self.count
        for bucket, count in enumerate(self.counts):
            left -= count
            if count and left <= 0:
                return float(edge_us(bucket + 1))
        return 0.0

    def summary(self) -> dict[str, float]:
        """How many, their mean and quantiles, in seconds. There is at least one."""
        return {"count": self.count, "mean": self.sum_us / self.count / 1e6,
                **{f"p{share * 100:g}": self.quantile_us(share) / 1e6 for share in SHARES}}

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self.sum_us + other.sum_us, list(map(add, self.counts, other.counts)))

    def since(self, before: Histogram) -> Histogram:
        """What came after `before`, an earlier look at the same."""
        return Histogram(self.sum_us - before.sum_us,
                         [now - then for now, then in zip(self.counts, before.counts, strict=True)])


NONE = Histogram(0, [0] * LATENCY_BUCKETS)


class Latencies:
    """Reads histograms of all processes. A name that is not in the table is a KeyError."""

    def __init__(self, segment: Segment) -> None:
        self._slots = LatencySlots(segment)
        self._processes = list(processes(segment.serving_count))

    def each(self, name: str) -> dict[str, Histogram]:
        """Of every process of the role, by the process's name."""
        latency = BY_NAME[name]
        return {row.process_name(index): Histogram(*self._slots.read(row.slot + index, latency.id))
                for row, index in self._processes if row is latency.role}

    def total(self, name: str) -> Histogram:
        return total(self.each(name).values())

    def totals(self) -> dict[str, Histogram]:
        """Of each name."""
        return {latency.name: self.total(latency.name) for latency in LATENCIES}


def summaries(times: Mapping[str, Histogram]) -> dict[str, dict[str, float]]:
    """By name; one that has counted nothing is left out."""
    return {name: one.summary() for name, one in times.items() if one.count}


def summary_line(name: str, summary: Mapping[str, float]) -> str:
    """For people, in ms."""
    return f"{name}: {summary['count']:.0f} times, " + ", ".join(
        f"{what} {1000 * value:.2f} ms" for what, value in summary.items() if what != "count")


def total(histograms: Iterable[Histogram]) -> Histogram:
    return sum(histograms, start=NONE)
