"""
Programs that are killed at each of their steps.

A step is a statement of SQL, a commit (before it and after it), or what the program calls a step by
`Kills.around`. `killed_everywhere` runs a program in processes of their own: the first is killed
(SIGKILL) at its first step, the next at its second, until one comes to its end.
"""
from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event

from tests.patterns.databases import open_engine

STEPS_MAX = 200
RUN_S = 120.0
_context = multiprocessing.get_context("forkserver")
# -- what each program would else import for itself
_context.set_forkserver_preload([
    "tests.patterns.programs", "mqcore.client.names", "sqlalchemy.dialects.sqlite.pysqlite",
    "sqlalchemy.dialects.postgresql.psycopg", "psycopg"])


class Kills:
    """Counts the steps of this process, and kills it at one of them."""

    def __init__(self, at: int) -> None:
        self._left = at

    def step(self, *_: object) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, with a step before it and one after it."""
        def counted(*arguments: Any, **options: Any) -> Any:
            self.step()
            result = function(*arguments, **options)
            self.step()
            return result
        return counted

    def engine(self, url: str) -> Engine:
        """An engine whose statements and commits are steps."""
        made = open_engine(url)
        # -- what SQLAlchemy itself does with the first connection is none of the program's steps
        made.connect().close()
        event.listen(made, "before_cursor_execute", self.step)
        made.dialect.do_commit = self.around(made.dialect.do_commit)  # type: ignore[method-assign]
        return made


def killed_everywhere(program: Callable[..., None], *arguments: object) -> int:
    """Run `program(kills, number, *arguments)` with the numbers 1, 2, ..., each killed at the step
    of its number; how many were killed before one ended by itself."""
    for number in range(1, STEPS_MAX):
        process = _context.Process(target=_run, args=(program, number, *arguments))
        process.start()
        process.join(RUN_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise AssertionError(f"program {number} did not end within {RUN_S} s")
        if process.exitcode == 0:
            return number - 1
        assert process.exitcode == -signal.SIGKILL, f"program {number}: {process.exitcode}"
    raise AssertionError(f"more than {STEPS_MAX} steps")


def _run(program: Callable[..., None], number: int, *arguments: object) -> None:
    program(Kills(number), number, *arguments)
