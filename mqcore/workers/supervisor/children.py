"""The processes of a run, as their supervisor keeps them."""
from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mqcore.participants import Participant
from mqcore.thread_times import stat_words, threads_ns

STARVED_S_MAX = 10.0             # that a deadline is put off for want of a processor or a disk
BLOCKED = "D"                    # a process's state while it waits for a disk


@dataclass
class Child:
    """One process: how it is made, and what it is now."""

    row: Participant
    index: int
    body: Callable[[], None]
    pid: int = 0
    started: float = 0.0
    deaths: int = 0
    restart_at: float = 0.0       # 0: it runs
    cannot_start: bool = False    # it ended by itself, or again and again, or in its recovery
    rests: bool = False           # it belongs to the other role of a broker that is elected

    @property
    def name(self) -> str:
        return self.row.process_name(self.index)

    @property
    def slot(self) -> int:
        return self.row.slot + self.index


class Starved:
    """
    How long processes could not do what they are to: they stood in line for a processor, or waited
    for a disk, for a page of their own program too.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._before = {pid: _queued_s(pid) for pid in pids if pid}
        self._blocked = dict.fromkeys(self._before, 0.0)
        self._looked = time.monotonic()

    def seconds(self) -> float:
        """
        Since the beginning, of the one that waited longest; STARVED_S_MAX at most. Who waits for a
        disk now is taken to have done so since the last call.
        """
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        for pid in self._blocked:
            if _state(pid) == BLOCKED:
                self._blocked[pid] += passed
        waits = (_queued_s(pid) - before + self._blocked[pid]
                 for pid, before in self._before.items())
        return min(max(0.0, *waits), STARVED_S_MAX) if self._before else 0.0


def ended(children: Iterable[Child]) -> Iterator[tuple[Child, int]]:
    """
    The children that have ended since the last call, with their exit codes. Others may end too: as
    process 1 of a container the supervisor is parent of all that lost theirs.
    """
    known = {child.pid: child for child in children if child.pid}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if pid in known:
            yield known[pid], os.waitstatus_to_exitcode(status)


def doing(pid: int) -> str:
    """What a process does, as the kernel says it: "S in ep_poll", "gone"."""
    state = _state(pid)
    if not state:
        return "gone"
    try:
        place = Path(f"/proc/{pid}/wchan").read_text(encoding="ascii", errors="replace")
    except OSError:                    # not to be seen here
        place = ""
    return f"{state} in {place}" if place.strip("0") else state


def _state(pid: int) -> str:
    """R, S, D, T, Z ...; empty: it has ended."""
    try:
        return stat_words(pid)[0]
    except OSError:
        return ""


def _queued_s(pid: int) -> float:
    """Of its main thread; 0: it has ended, or this kernel does not count."""
    return threads_ns(pid).get(str(pid), (0, 0))[1] / 1e9


def spoken(code: int) -> str:
    """An exit code as a log line has it."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
