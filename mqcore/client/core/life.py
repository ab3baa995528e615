"""The states of a role: made, running, closed; each start is the only one (client.md 1.3)."""
from __future__ import annotations

import os
from enum import Enum

from mqcore.client.errors import ClosedError


class State(Enum):
    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    CLOSED = "closed"


class _Process:
    """Which process this is, without asking the system each time: a fork makes another one."""

    number = 0


def _count_fork() -> None:
    _Process.number += 1


os.register_at_fork(after_in_child=_count_fork)


class Life:
    """Which state a role is in, and which process started it."""

    def __init__(self, name: str) -> None:
        """`name` is what errors call the role."""
        self.name = name
        self.state: State = State.CREATED
        self._pid = 0
        self._process = _Process.number

    @property
    def is_running(self) -> bool:
        """Whether it runs, and in this process."""
        return self.state is State.RUNNING and self._process == _Process.number

    @property
    def is_foreign(self) -> bool:
        """Whether the process that started it forked this one: its connections are not ours."""
        return self._pid != 0 and self._process != _Process.number

    def start(self) -> None:
        """From created to starting; raises ClosedError when it was started or closed before."""
        if self.is_foreign:
            raise self._forked()
        if self.state is State.CLOSED:
            raise ClosedError(f"{self.name} is closed: make a new one")
        if self.state is not State.CREATED:
            raise ClosedError(f"{self.name} is started already")
        self.state = State.STARTING
        self._pid, self._process = os.getpid(), _Process.number

    def started(self) -> None:
        """From starting to running, unless it was closed meanwhile (ClosedError)."""
        if self.state is not State.STARTING:
            raise ClosedError(f"{self.name} was closed while it started")
        self.state = State.RUNNING

    def close(self) -> bool:
        """To closed. Whether the caller has something to take down."""
        was, self.state = self.state, State.CLOSED
        return was in (State.STARTING, State.RUNNING) and not self.is_foreign

    def check(self) -> None:
        """Raises ClosedError, saying why, unless the role runs in this process."""
        if self.state is State.RUNNING and self._process == _Process.number:
            return
        if self.is_foreign:
            raise self._forked()
        if self.state is State.CLOSED:
            raise ClosedError(f"{self.name} is closed")
        raise ClosedError(f"{self.name} is not started: use it as a context manager, or start()")

    def _forked(self) -> ClosedError:
        return ClosedError(
            f"{self.name} was started in process {self._pid}, which forked this one: make one here")
