"""
The meaning of each signal to a supervisor, to its children and to `mqcore namesrv run`: the table
"Signals" of docs/operations.md.
"""
from __future__ import annotations

import errno
import faulthandler
import os
import signal
import sys
import time

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGPWR, signal.SIGXCPU)
AGAIN = signal.SIGUSR1            # to the supervisor: the run ends, and the next one begins at once
# A default action would end the process; to a broker they say nothing. SIGTTOU would suspend a
# background process that writes to its terminal.
IGNORED = (signal.SIGUSR2, signal.SIGPIPE, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF,
           signal.SIGIO, signal.SIGTTOU)
HANDLED = (*STOPS, signal.SIGHUP, AGAIN)
SECOND_SIGNAL_S = 0.5             # after the first: one key press may send two


def ignore_meaningless() -> None:
    """For every process; SIGQUIT writes what each thread does to standard error, as in stock."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if sys.stderr is not None:
        faulthandler.register(signal.SIGQUIT, file=2)


def ignore_as_child() -> None:
    """Signals that a terminal or `kill` sends to all processes are the supervisor's business."""
    for number in (*STOPS, signal.SIGHUP, AGAIN):
        if number is not signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)


class Terminal:
    """
    The terminal that a process was started at.

    hangs_up: whether SIGHUP reaches the process; not when it was started with the signal ignored,
    as by nohup.
    """

    def __init__(self) -> None:
        self._was_there = _is_there()
        self.hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    @property
    def is_gone(self) -> bool:
        """Whether there was one, and it was closed or its connection dropped."""
        return self._was_there and self.hangs_up and not _is_there()


def _is_there() -> bool:
    """Whether this process has a controlling terminal; the kernel takes it away at a hangup."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.ENOENT)
    return True


class Orders:
    """
    Requests of signals to one run of a supervisor.

    stop: the signal that asked for a stop, 0: none; is_hurried: a second one came; again: the run
    is to end and the next one to begin; hung_up: SIGHUP while the terminal, if any, is there.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._at = 0.0
        self.stop = 0
        self.is_hurried = self.again = self.hung_up = False

    def catch(self) -> int:
        """Take signals from now on; a descriptor that each signal makes readable."""
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in STOPS:
            signal.signal(number, self._on_stop)
        if self._terminal.hangs_up:
            signal.signal(signal.SIGHUP, self._on_hangup)
        signal.signal(signal.SIGCHLD, _only_wake)
        if self._terminal.is_gone:       # between two runs
            self._on_hangup(signal.SIGHUP, None)
        return reading

    def catch_again(self) -> None:
        """Take AGAIN, which may come before a run can take the others."""
        signal.signal(AGAIN, self._on_again)

    def let_go(self) -> None:
        """Nothing is left that a signal could hurt: until the next run catches it, it ends all."""
        signal.set_wakeup_fd(-1)
        for number in (AGAIN, signal.SIGHUP):            # the next run reads what there is to know
            signal.signal(number, signal.SIG_IGN)
        for number in STOPS:
            signal.signal(number, signal.SIG_DFL)

    def _on_stop(self, number: int, _frame: object) -> None:
        if not self.stop:
            self.stop, self._at = number, time.monotonic()
        elif time.monotonic() - self._at >= SECOND_SIGNAL_S:
            self.is_hurried = True

    def _on_hangup(self, number: int, _frame: object) -> None:
        if not self._terminal.is_gone:
            self.hung_up = True
        elif not self.stop:              # the kernel and a shell may both say so
            self.stop, self._at = number, time.monotonic()

    def _on_again(self, _number: int, _frame: object) -> None:
        self.again = True


def _only_wake(_number: int, _frame: object) -> None:
    """A signal that only has to wake the supervisor."""
