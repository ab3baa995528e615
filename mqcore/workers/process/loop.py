"""
The one life that every worker process leads: start, turn until a stop is asked for, stop.

A turn is native and long: it sleeps and works without the GIL for up to TURN_MS, or until the stop
word or a failure ends it. What a worker has to say in Python (log lines) it says between turns.
"""
from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from setproctitle import setproctitle

from mqcore.broker.settings.model import Settings
from mqcore.layout import WorkerState
from mqcore.parents import end_with_parent
from mqcore.shm.allocations import count_into, count_turn
from mqcore.shm.segment import Segment
from mqcore.thread_times import stat_words
from mqcore.workers.process import signals
from mqcore.workers.process.live import SettingsNow

TURN_MS = 1000
COUNT_ALLOCATIONS = "MQCORE_COUNT_ALLOCATIONS"      # "1": tests count the objects that are made


class Worker(Protocol):
    name: str
    slot: int

    def start(self) -> None: ...
    def work(self, turn_ms: int) -> None: ...   # at most turn_ms, less when asked to stop
    def reconfigure(self, settings: Settings) -> None: ...      # between turns
    def stop(self) -> None: ...


def fork() -> tuple[int, int, set[int]]:
    """
    os.fork: its answer, the parent's process id, and the signals that were blocked before.

    In the child the parent's signals wait until `become` has set its own handlers: the parent's
    would take them for its own. Raises OSError.
    """
    parent = os.getpid()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signals.HANDLED)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return pid, parent, blocked


def become(name: str, segment: Segment, slot: int, parent: int, blocked: set[int]) -> None:
    """
    Make a freshly forked process the worker `name`; parent, blocked: from `fork`.

    When its parent dies the kernel sends SIGTERM, and SIGTERM means: stop in order.
    """
    end_with_parent()
    if os.getppid() != parent:                      # it died before prctl
        os._exit(1)
    setproctitle(f"mqcore: {name}")

    def on_terminate(_number: int, _frame: FrameType | None) -> None:
        segment.request_stop(slot)

    if os.environ.get(COUNT_ALLOCATIONS) == "1":
        count_into(segment, slot)
    signal.signal(signal.SIGTERM, on_terminate)
    signals.ignore_as_child()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def run(make: Callable[[Settings], Worker], settings: Settings, segment: Segment) -> None:
    """
    Make a worker and turn it until its slot in shared memory says stop.

    settings: those that the run was started with; the worker gets them as they are now.

    Errors are not handled here, and nothing is tidied after one: the process ends, the supervisor
    sees the exit code and starts a fresh one, whose `start` rebuilds from the store. Every crash
    takes that road, so it is the tested one; `stop` only makes the next start quicker.
    """
    live = SettingsNow(settings, segment)
    worker = make(live.settings)
    log = logging.getLogger(f"mqcore.{worker.name}")
    worker.start()
    segment.set_state(worker.slot, WorkerState.WORKER_RUNNING)
    log.debug("running, pid %d", os.getpid())
    while not segment.stop_requested(worker.slot):
        segment.beat(worker.slot, time.time_ns() // 1_000_000)
        count_turn(segment, worker.slot)
        if live.look():
            worker.reconfigure(live.settings)
        worker.work(TURN_MS)
    worker.stop()
    segment.set_state(worker.slot, WorkerState.WORKER_STOPPED)
    leave(segment)
    log.debug("stopped")


def leave(segment: Segment) -> None:
    """The end of a process whose supervisor is gone: nobody else takes the segment's name away."""
    if os.getppid() != supervisor_of(segment.name):
        segment.unlink()


def supervisor_of(segment_name: str) -> int:
    """The process id in a segment's name."""
    return int(segment_name.rpartition("-")[2])


def alive(pid: int) -> bool:
    """Whether there is a process with this id that has not ended; nobody may have buried it yet."""
    try:
        return stat_words(pid)[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
