"""
A run's clock, from the run before and for the next one (mqcore/shm/store_clock.pxd, T10 to T12).

The supervisor begins it before the first process. The writer's process keeps it: its second thread,
which wakes for other reasons, writes the file when the clock has learnt something, and each hour.
"""
from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path

from mqcore.shm.run_clock import RunClock
from mqcore.shm.segment import Segment
from mqcore.store import clock_file
from mqcore.store.clock_file import ClockFileError
from mqcore.store.log.folders import LogFolders

KEPT_MS = 3_600_000

log = logging.getLogger("mqcore.writer")


def begin(segment: Segment, path: Path, folders: LogFolders) -> None:
    """Continue the clock of the store's last run, as far as the file `path` tells."""
    try:
        known = clock_file.read(path)
    except (ClockFileError, OSError) as error:
        log.warning("the clock of the last run is not believed, and a new one begins: what has "
                    "passed before counts after a day: %s", error)
        known = None
    if known is None:
        RunClock(segment).begin(None, False, _youngest_ms(folders))
        return
    state, boot = known
    ahead_ms = clock_file.ahead_ms(state)
    if ahead_ms > clock_file.AHEAD_MAX_MS:
        log.warning("%s: the store clock was %.1f days ahead of the wall clock: it continues with "
                    "the last message or the wall clock, whichever is later", path,
                    ahead_ms / clock_file.AHEAD_MAX_MS)
        state = clock_file.caught(state)
    same_boot = clock_file.is_of_this_boot(state, boot, time.monotonic_ns() // 1_000_000)
    RunClock(segment).begin(state, same_boot, 0)


def _youngest_ms(folders: LogFolders) -> int:
    """When a segment of the log was written last; 0: there is none."""
    times = []
    for _, path in folders.segments():
        try:
            times.append(path.stat().st_mtime_ns // 1_000_000)
        except OSError:                # the start says so of what it cannot read
            continue
    return max(times, default=0)


class KeptClock:
    """The writer's: `passed_ms` for what is deleted by its age, `keep` now and then."""

    def __init__(self, segment: Segment, path: Path) -> None:
        self._clock, self._path = RunClock(segment), path
        self._kept: dict[str, object] = {}
        self._kept_at_ms = 0
        self._said = ""

    def save(self, *, last: bool = False) -> None:
        """Write the file if there is something new; last: the run ends."""
        state = self._clock.state()
        now_ms = state["steady"]
        news = {name: value for name, value in state.items() if name not in ("wall", "steady")}
        if not last and news == self._kept and now_ms - self._kept_at_ms < KEPT_MS:
            return
        try:
            clock_file.write(self._path, state)
        except OSError as error:
            if str(error) != self._said:
                log.error("the clock cannot be kept for the next run: %s", error)
            self._said = str(error)
            return
        self._kept, self._kept_at_ms, self._said = news, now_ms, ""

    def passed_ms(self, file_ms: int, wanted_ms: int) -> int:
        """
        How long ago, at least, a file of the store was written last. A file system of the network
        has a clock of its own, which is asked too before this is `wanted_ms`.
        """
        passed = self._clock.passed_ms(file_ms)
        if passed >= wanted_ms:
            with contextlib.suppress(FileNotFoundError):   # it could not be written: one clock less
                os.utime(self._path)
                passed = min(passed, self._path.stat().st_mtime_ns // 1_000_000 - file_ms)
        return passed
