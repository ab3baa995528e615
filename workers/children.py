"""The processes of a run, as their supervisor keeps them."""
from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from mqcore.participants import Participant


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


def spoken(code: int) -> str:
    """An exit code as a log line has it."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
