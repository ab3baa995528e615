"""A process that was forked a moment ago ends with its parent, whenever that is."""
from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from mqcore.participants import SCHEDULER
from mqcore.shm.segment import Segment
from mqcore.workers.process import loop
from tests.store.harness import new_segment
from tests.support.waiting import wait_until

SLOT = SCHEDULER.slot


@pytest.fixture
def segment() -> Segment:
    made = new_segment()
    made.begin_incarnation(SLOT)
    return made


def life_of(body: Callable[[], int]) -> int:
    """The exit status of a child that does `body`, which answers its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = body()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_whose_parent_died_before_it_ran_ends(segment: Segment) -> None:
    reading, writing = os.pipe()

    def parent() -> int:
        pid, parent, blocked = loop.fork()
        if pid:
            return 0
        wait_until(lambda: os.getppid() != parent, "the parent's end")
        os.write(writing, b"forked ")
        loop.become("orphan", segment, SLOT, parent, blocked)
        os.write(writing, b"lives on")
        return 0

    assert life_of(parent) == 0
    os.close(writing)
    assert b"".join(iter(lambda: os.read(reading, 100), b"")) == b"forked "
    os.close(reading)


def test_a_stop_before_the_child_has_handlers_of_its_own_is_not_lost(segment: Segment) -> None:
    def parent() -> int:
        signal.signal(signal.SIGTERM, lambda _number, _frame: None)          # as the supervisor's
        pid, parent, blocked = loop.fork()
        if pid:
            assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.kill(os.getpid(), signal.SIGTERM)
        loop.become("stopped", segment, SLOT, parent, blocked)
        return 0 if segment.stop_requested(SLOT) else 1

    assert life_of(parent) == 0
