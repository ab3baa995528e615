"""The processes of a broker as shared memory and the kernel show them, and whether they turn."""
from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from mqcore.layout import WORKER_ABSENT, WORKER_RUNNING, WORKER_STARTING
from mqcore.participants import HA_SLAVE, SUPERVISOR, Participant, processes
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.segment import Segment
from mqcore.thread_times import stat_words

BEAT_AGE_MS_MAX = 10_000               # of a process that turns at least once a second
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Process:
    """
    One process that was started in this run.

    beat_ms: when it last turned, wall clock, 0: not yet; doing: its state as the kernel says it, a
    letter, "": it is gone.
    """

    row: Participant
    name: str
    slot: int
    pid: int
    state: int
    starts: int
    beat_ms: int
    started_ms: int
    doing: str
    cpu_s: float
    resident_bytes: int

    def age_ms(self, now_ms: int) -> int:
        """Since it last turned, or died; a clock that was put back makes it no younger."""
        since_ms = max(self.beat_ms, self.started_ms) if self.state == WORKER_ABSENT \
            else self.beat_ms or self.started_ms
        return abs(now_ms - since_ms)

    def trouble(self, now_ms: int) -> str:
        """Why it does not do its work, "" when it does, or starts, or has stopped in order."""
        if self.state not in (WORKER_ABSENT, WORKER_RUNNING):
            return ""
        age_ms = self.age_ms(now_ms)
        if age_ms <= BEAT_AGE_MS_MAX:
            return ""
        if self.state == WORKER_ABSENT:
            return f"it ended {age_ms // 1000} s ago, and was not started again"
        return (f"process {self.pid} has not turned for {age_ms // 1000} s, its state is "
                f"{self.doing or 'gone'}")


def of_run(segment: Segment) -> Iterator[Process]:
    """Those that are to run: a slave's link to its master is not when it was elected."""
    supervisor = int(segment.name.rpartition("-")[2])
    leads = LeadershipPen(segment).leads
    for row, index in processes(segment.serving_count):
        slot = row.slot + index
        said = segment.slot(slot)
        if row is SUPERVISOR:
            said = {**said, "pid": supervisor, "incarnation": 1,
                    "state": WORKER_RUNNING if said["beat_ms"] else WORKER_STARTING}
        if not said["incarnation"] or (row is HA_SLAVE and leads):
            continue
        doing, cpu_s, resident = _of_kernel(said["pid"])
        yield Process(row, row.process_name(index), slot, said["pid"], said["state"],
                      said["incarnation"], said["beat_ms"], said["started_ms"], doing, cpu_s,
                      resident)


def _of_kernel(pid: int) -> tuple[str, float, int]:
    """State, seconds of a processor, bytes in memory; of a process that has ended nothing."""
    try:
        words = stat_words(pid)
    except OSError:
        return "", 0.0, 0
    return words[0], (int(words[11]) + int(words[12])) * TICK_S, int(words[21]) * PAGE_BYTES
