"""Looks at the processes of a broker: starts, private memory, descriptors, log lines."""
from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.admin.status import PREFIX, describe
from mqcore.shm.segment import stale_segments
from tests.support.mqcore_process import POLL_INTERVAL_S, MqcoreProcess

# what peers chose may stand in a line: audit names it
FAILURE = re.compile(r"\S+ \S+ ERROR |[\s|]*Traceback |\{.*\"level\": ?\"error\"")


class Watch:
    """
    Remembers a broker's processes as they are now.

    Memory is Pss_Anon of smaps_rollup: what a process has for itself, without files and shared
    memory; pages that forked processes share count by their share.
    """

    def __init__(self, target: MqcoreProcess) -> None:
        self._target = target
        self._before = {pid: anonymous_kib(pid) for pid in target.family()}
        self._log_bytes = target.output.stat().st_size

    @functools.cached_property
    def _segment(self) -> str:
        """Its shared memory, for which all processes of the machine are looked at: once."""
        return next(
            name for name in stale_segments(PREFIX) if name.endswith(f"-{self._target.pid}"))

    def starts(self) -> dict[str, int]:
        """How often each process was started, as `mqcore status --json` says it."""
        run = describe(self._segment)
        assert run is not None
        processes = run["processes"]
        assert isinstance(processes, list)
        return {process["role"]: process["starts"] for process in processes}

    def growth_kib_within(self, limit: int, deadline_s: float) -> dict[str, int]:
        """As growth_kib, once none is above `limit`: what is freed goes back within moments."""
        end = time.monotonic() + deadline_s
        pause = threading.Event()
        while max((growth := self.growth_kib()).values()) > limit and time.monotonic() < end:
            pause.wait(POLL_INTERVAL_S)
        return growth

    def growth_kib(self) -> dict[str, int]:
        """How much each process has grown since, by name; a process that is gone is an error."""
        return {
            f"{name_of(pid)} ({pid})": anonymous_kib(pid) - before
            for pid, before in self._before.items()
        }

    def new_lines(self) -> list[str]:
        """The log lines written since."""
        with self._target.output.open("rb") as log:
            log.seek(self._log_bytes)
            return log.read().decode(errors="replace").splitlines()

    def assert_unharmed(self) -> None:
        """The same processes run, none was started again, none reports a failure of its own."""
        assert set(self._target.family()) == set(self._before), self._target.tail()
        starts = self.starts()
        assert set(starts.values()) == {1}, starts
        assert [line for line in self.new_lines() if FAILURE.match(line)] == []


def anonymous_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1])
    raise AssertionError("this kernel has no Pss_Anon in smaps_rollup")


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.fixture
def watch(target: MqcoreProcess) -> Iterator[Watch]:
    """What must be as before when a test ends: the same processes, each started once."""
    made = Watch(target)
    yield made
    made.assert_unharmed()
