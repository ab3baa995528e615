"""How long a process that is asked to stop waits for what must not be lost, and what it says."""
from __future__ import annotations

import logging
import time

from mqcore.shm.segment import Segment

EXIT_UNFINISHED = 5              # of a process, and of the broker: the stop lost something
EXIT_OVERTAKEN = 6               # of ha-slave: the log has to be cut, at rest
FIRST_WORD_S = 1.0
WORD_INTERVAL_S = 5.0


class UnfinishedStop(RuntimeError):
    """A stop that ended before everything was where it belongs; what is lost has been logged."""


class OvertakenError(RuntimeError):
    """The log here is not that of a member of the set, which has been logged: a new run is."""


class StopWait:
    """
    One stop's patience: over after `timeout_s`, or when a second signal to the broker says so.

    log: where `say` says what is still to be done, from time to time.
    """

    def __init__(self, segment: Segment, slot: int, timeout_s: float, log: logging.Logger) -> None:
        self._segment = segment
        self._slot = slot
        self._log = log
        self._began = time.monotonic()
        self._timeout_s = timeout_s
        self._next_word = self._began + FIRST_WORD_S

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        return self.hurried or self.elapsed_s >= self._timeout_s

    @property
    def hurried(self) -> bool:
        return bool(self._segment.stop_hurried(self._slot))

    def say(self, what: str) -> None:
        """`what` is still to be done."""
        now = time.monotonic()
        if now >= self._next_word:
            self._next_word = now + WORD_INTERVAL_S
            self._log.warning("stopping since %.0f s, at most %.0f s: %s", self.elapsed_s,
                              self._timeout_s, what)
