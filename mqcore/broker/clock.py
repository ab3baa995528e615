"""The coordinator's clock: it begins at the wall clock and runs with the steady one."""
from __future__ import annotations

import time

STEP_MS = 1_000                  # less is how clocks are kept
BELIEVED_S = 86_400.0


class RunningClock:
    """
    Epoch ms for everything that waits: clients, locks, calls, filters, timers, samples.

    Whatever the wall clock is set to meanwhile, the difference of two of its times is how long it
    really took. What others compare with their own clocks takes `wall_ahead_ms` into account.
    """

    def __init__(self) -> None:
        self._ahead_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._ahead_ns) // 1_000_000

    def wall_ahead_ms(self) -> int:
        """How far the wall clock is ahead of this one: what it was set forward since the start."""
        return (time.time_ns() - time.monotonic_ns() - self._ahead_ns) // 1_000_000


def not_ahead() -> int:
    return 0


class CautiousClock:
    """
    The wall clock for the age of files: a step forward is believed when it has stood for a day.

    A file's time is what the wall clock showed when it was written; a clock that is wrong for an
    hour must not make all files old. One that was wrong before is right after a day.
    """

    def __init__(self) -> None:
        self._running = RunningClock()
        self._ahead_since_s: float | None = None

    def now_ms(self) -> int:
        ahead_ms = self._running.wall_ahead_ms()
        if ahead_ms <= STEP_MS:
            self._ahead_since_s = None
        elif self._ahead_since_s is None:
            self._ahead_since_s = time.monotonic()
        elif time.monotonic() - self._ahead_since_s >= BELIEVED_S:
            self._running, self._ahead_since_s = RunningClock(), None
            return self._running.now_ms()
        return self._running.now_ms() + min(ahead_ms, 0)
