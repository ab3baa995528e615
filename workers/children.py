"""The processes of a run, as their supervisor keeps them."""
from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from mqcore.participants import Participant

STARVED_S_MAX = 10.0             # that a deadline is put off for want of a processor


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
    rests: bool = False           # it belongs to the other role of a broker that is elected

    @property
    def name(self) -> str:
        return self.row.process_name(self.index)

    @property
    def slot(self) -> int:
        return self.row.slot + self.index


class Starved:
    """How long processes have stood in line for a processor, and could not do what they are to."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._before = {pid: _queued_s(pid) for pid in pids if pid}

    def seconds(self) -> float:
        """Since the beginning, of the one that stood longest; STARVED_S_MAX at most."""
        waits = (_queued_s(pid) - before for pid, before in self._before.items())
        return min(max(0.0, *waits), STARVED_S_MAX) if self._before else 0.0


def _queued_s(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):      # it has ended, or this kernel does not count
        return 0.0


def spoken(code: int) -> str:
    """An exit code as a log line has it."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
