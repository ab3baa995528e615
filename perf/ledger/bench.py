"""One path after the other over a running broker: a closed loop of requests, counted."""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from perf.ledger.counts import FIGURES, Counts, look
from perf.ledger.table import IDLE, Table
from tests.support.mqcore_process import MqcoreProcess
from tests.workers.processes import by_role

# Messages are counted in parts. Other programs on the processor make two of our processes meet; it
# saves wake-ups and adds none, so for these figures the largest part counts; for the others,
# to which such programs add, the least.
PARTS = 6
IDLE_SECONDS = 3
MOST = ("clocks", "calls", "switches")
HOT = ("pull-serving-0", "writer")
PERIODIC = ("allocations", "clocks", "calls", "switches")


def alone() -> None:
    """
    This process, and what it starts, on one processor, where no process preempts another: so
    they run one after the other, and each wake-up is a sleep before.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@dataclass
class Bench:
    """numbers: the folder of the counters."""

    broker: MqcoreProcess
    numbers: Path
    idle_seconds: int = IDLE_SECONDS
    table: Table = field(default_factory=dict)
    _idle: dict[str, Counts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pids = by_role(self.broker)
        seconds = [self._idle_second() for _ in range(self.idle_seconds)]
        self._idle = {role: Counts(*(min(getattr(second[role], name) for second in seconds)
                                     for name in FIGURES)) for role in self._pids}

    def _idle_second(self) -> dict[str, Counts]:
        began, before = time.monotonic(), self._look()
        time.sleep(1.0)
        seconds, after = time.monotonic() - began, self._look()
        return {role: (after[role] - before[role]) * (1 / seconds) for role in before}

    def _look(self) -> dict[str, Counts]:
        return {role: look(self.numbers, pid) for role, pid in self._pids.items()}

    def idle(self) -> None:
        """An idle second, of each process."""
        self.table |= rows(IDLE, self._idle.items(), PERIODIC)

    def path(self, name: str, items: int, run: Callable[[int], object],
             roles: tuple[str, ...] = HOT, *, figures: tuple[str, ...] = FIGURES) -> None:
        """The cost of one item; `run` does a number of items, the first ones uncounted."""
        items = max(items // PARTS, 1)
        run(items)
        tables = []
        for _ in range(PARTS):
            began, before = time.monotonic(), self._look()
            run(items)
            seconds, after = time.monotonic() - began, self._look()
            tables.append(rows(name, (
                (role, (after[role] - before[role] - self._idle[role] * seconds) * (1 / items))
                for role in roles), figures))
        self.table |= {row: (max if row[2] in MOST else min)(table[row] for table in tables)
                       for row in tables[0]}


def rows(path: str, found: Iterable[tuple[str, Counts]], figures: tuple[str, ...]) -> Table:
    return {(path, role, figure): max(getattr(counts, figure), 0.0)
            for role, counts in found for figure in figures}
