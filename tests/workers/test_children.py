"""A process that stands in line for a processor is not one that hangs (workers/children.py)."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from mqcore.workers.children import STARVED_S_MAX, Starved
from tests.support.waiting import wait_until

ENOUGH_S = 0.2


@contextmanager
def turning(count: int) -> Iterator[list[int]]:
    """As many processes that only turn, all on one processor."""
    pids = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                try:
                    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
                    while True:
                        pass
                finally:
                    os._exit(1)
            pids.append(pid)
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_time_in_line_for_a_processor_is_counted() -> None:
    with turning(2) as pids:
        starved = Starved(pids)
        wait_until(lambda: starved.seconds() > ENOUGH_S, "one has stood in line", 30)
        assert starved.seconds() <= STARVED_S_MAX


def test_who_stands_still_is_not_in_line() -> None:
    with turning(2) as pids:
        os.kill(pids[0], signal.SIGSTOP)
        os.waitpid(pids[0], os.WUNTRACED)
        stopped = Starved(pids[:1])
        with turning(2) as others:
            line = Starved(others)
            wait_until(lambda: line.seconds() > ENOUGH_S, "others have stood in line", 30)
        assert stopped.seconds() == 0.0


def test_who_has_ended_puts_nothing_off() -> None:
    with turning(1) as pids:
        starved = Starved(pids)
    assert starved.seconds() == 0.0
    assert Starved([0]).seconds() == 0.0
