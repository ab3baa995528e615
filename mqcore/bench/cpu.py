"""CPU time that processes have used, exact to the scheduler's nanoseconds."""
from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

_CLOCK_SCHED = 2            # Linux: clock id of process `pid` is ~pid << 3 | CPUCLOCK_SCHED


def process_tree(pid: int) -> list[int]:
    """`pid` and all its living descendants; raises ProcessLookupError when `pid` is gone."""
    if not Path(f"/proc/{pid}").exists():
        raise ProcessLookupError(f"process {pid}: does not exist")
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):     # it ended while we were looking
            continue
        parent = int(text.rsplit(")", 1)[1].split()[1])
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for member in found:                                    # grows while it is walked
        found.extend(children.get(member, ()))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads, ended ones too, in seconds."""
    return time.clock_gettime((~pid << 3) | _CLOCK_SCHED)


def machine_cpu_seconds() -> float:
    """CPU time that the whole machine has spent since its start, exact to the kernel's tick."""
    with open("/proc/stat", encoding="ascii") as stat:
        fields = [int(text) for text in stat.readline().split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; pages shared with others count in full."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class CpuMeter:
    """
    The CPU time of some processes between `start` and `read`.

    pids: each stands for itself and its descendants. A process that appears in between counts from
    its start; one that ends in between is lost, and `read` then raises ProcessLookupError.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._started: dict[int, float] = {}

    def _members(self) -> list[int]:
        return list(dict.fromkeys(member for pid in self._pids for member in process_tree(pid)))

    def start(self) -> None:
        self._started = {pid: cpu_seconds(pid) for pid in self._members()}

    def read(self) -> float:
        """Seconds of CPU time since `start`; 0.0 when there is nothing to watch."""
        now = {pid: cpu_seconds(pid) for pid in self._members()}
        gone = set(self._started) - set(now)
        if gone:
            raise ProcessLookupError(f"processes {sorted(gone)} ended during the measurement")
        return sum(seconds - self._started.get(pid, 0.0) for pid, seconds in now.items())

    def resident(self) -> int:
        """Bytes of resident memory now, shared pages counted once for each process."""
        return sum(resident_bytes(pid) for pid in self._members())
