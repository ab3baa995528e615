"""The coordinator's clock: it begins at the wall clock and runs with the steady one."""
from __future__ import annotations

import time


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
