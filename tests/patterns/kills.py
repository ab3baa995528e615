"""
Programs that are killed at each of their steps.

A step is a statement of SQL, a commit (before it and after it), or what the program calls a step by
`Kills.around`. `killed_everywhere` runs a program in processes of their own: the first is killed
(SIGKILL) at its first step, the next at its second, until one comes to its end. All are forked from
one, which may have rehearsed the program: what SQLAlchemy makes of each statement the first time
takes longer than the statement.
"""
from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from sqlalchemy import Engine, event, make_url

from tests.patterns.databases import open_engine
from tests.support.mqcore_process import die_with_parent

STEPS_MAX = 200
RUN_S = 120.0
_context = multiprocessing.get_context("forkserver")
# -- what each program would else import for itself
_context.set_forkserver_preload([
    "tests.patterns.programs", "mqcore.client.names", "sqlalchemy.dialects.sqlite.pysqlite",
    "sqlalchemy.dialects.postgresql.psycopg", "psycopg"])
_made: list[Engine] = []            # by this process
_ready: deque[Engine] = deque()     # of the rehearsal, in the order in which a program asks


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
        made = _ready.popleft() if _ready else open_engine(url)
        assert made.url == make_url(url)
        # -- what SQLAlchemy itself does with the first connection is none of the program's steps
        made.connect().close()
        _made.append(made)
        event.listen(made, "before_cursor_execute", self.step)
        made.dialect.do_commit = self.around(made.dialect.do_commit)  # type: ignore[method-assign]
        return made


def killed_everywhere(
    program: Callable[..., None], *arguments: object, rehearse: bool = False,
) -> int:
    """
    Run `program(kills, number, *arguments)` with the numbers 1, 2, ..., each killed at the step of
    its number; how many were killed before one ended by itself. rehearse: number 0 comes to its
    end before them; for programs without threads.
    """
    ends, told = _context.Pipe(duplex=False)
    process = _context.Process(target=_run_all, args=(told, rehearse, program, *arguments))
    process.start()
    told.close()
    try:
        for number in range(1, STEPS_MAX):
            assert ends.poll(RUN_S), f"program {number} did not end within {RUN_S} s"
            code = ends.recv()
            if code == 0:
                return number - 1
            assert code == -signal.SIGKILL, f"program {number}: {code}"
    finally:
        if process.exitcode is None:
            process.kill()
        process.join()
        ends.close()
    raise AssertionError(f"more than {STEPS_MAX} steps")


def _run_all(
    told: Connection, rehearse: bool, program: Callable[..., None], *arguments: object,
) -> None:
    if rehearse:
        program(Kills(0), 0, *arguments)
        for made in _made:
            made.dispose()
        _ready.extend(_made)
    for number in range(1, STEPS_MAX):
        child = os.fork()
        if child == 0:
            die_with_parent(signal.SIGKILL)
            _run(program, number, *arguments)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        told.send(code)
        if code != -signal.SIGKILL:
            break


def _run(program: Callable[..., None], number: int, *arguments: object) -> NoReturn:
    try:
        program(Kills(number), number, *arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
