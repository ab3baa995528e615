"""A process that waits for a processor or a disk is not one that hangs (children.py)."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from mqcore.workers.supervisor.children import STARVED_S_MAX, Starved, doing
from tests.support.mqcore_process import MQCORE, mqcore_up
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


def children_of(pid: int) -> list[int]:
    return [int(one) for one in
            Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def test_time_of_a_wait_that_no_signal_ends_is_counted() -> None:
    """vfork makes one: its caller waits so, as for a disk, until the child has ended."""
    blocked = subprocess.Popen([sys.executable, "-c", dedent("""
        import ctypes, time
        ctypes.PyDLL(None).vfork()
        time.sleep(600)
    """)])
    try:
        wait_until(lambda: children_of(blocked.pid), "its child")
        starved = Starved([blocked.pid])
        wait_until(lambda: starved.seconds() > ENOUGH_S, "it has waited", 30)
        assert doing(blocked.pid).startswith("D")
    finally:
        kids = children_of(blocked.pid)
        blocked.kill()
        for pid in kids:
            os.kill(pid, signal.SIGKILL)
        blocked.wait()
    assert doing(blocked.pid) == "gone"


def test_a_child_that_it_never_started_is_reaped(tmp_path: Path) -> None:
    """As process 1 of a container it gets every orphan."""
    program = [sys.executable, "-c", dedent("""
        import os, sys
        if os.fork() == 0:
            os._exit(0)
        os.execv(sys.argv[1], sys.argv[1:])
    """), *MQCORE]
    with mqcore_up(tmp_path, program=program) as broker:
        wait_until(lambda: all(doing(pid) != "gone" and not doing(pid).startswith("Z")
                               for pid in children_of(broker.pid)), "the end of the stranger")
        assert len(children_of(broker.pid)) == len(broker.family()) - 1
