"""
Work on data of others in a process of its own, within bounds of processor time and memory.

An expression or a body may cost any time in code that holds the interpreter's lock, so a deadline
of the event loop would not come. The kernel ends the process instead; the caller gets an error.
"""
from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from types import TracebackType

from mqcore.admin.shell.exits import Exit, Failure
from mqcore.admin.shell.limited_child import HEAD, MEMORY_BYTES_MAX

RUNNING_MAX = 4                        # of one kind of work

_running: set[Limited] = set()


class LimitedError(Failure):
    """The work was refused, or took more than it may; the text says which."""


class Limited:
    """One process, from its first request to the end of `async with`."""

    def __init__(self, work: str, what: str, seconds: float) -> None:
        """
        work      "module:function" from bytes to bytes; a ValueError is an answer too
        what      names the data in errors, e.g. "--grep '(a+)+'"
        seconds   of processor time that one request may take
        """
        self._work = work
        self._what = what
        self._seconds = seconds
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Limited:
        if sum(one._work == self._work for one in _running) >= RUNNING_MAX:
            raise LimitedError(f"{self._what}: {RUNNING_MAX} others are worked on; try again")
        _running.add(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        _running.discard(self)
        process = self._process
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def ask(self, request: bytes) -> bytes:
        """The answer to one request. Raises LimitedError."""
        async with self._turn:
            process = self._process or await self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(HEAD.pack(len(request), 0))
                process.stdin.write(request)
                await process.stdin.drain()
                size, failed = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
                answer = await process.stdout.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                raise LimitedError(
                    f"{self._what}: ended after {self._seconds:g} s of processor time or"
                    f" {MEMORY_BYTES_MAX >> 20} MiB of memory", Exit.USAGE) from None
            if failed:
                raise LimitedError(f"{self._what}: {answer.decode(errors='replace')}", Exit.USAGE)
            return answer

    async def _started(self) -> Process:
        # It imports what this process can import, and reads no settings of the user.
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-P", "-W", "ignore", "-m", "mqcore.admin.shell.limited_child",
            self._work, str(self._seconds), stdin=PIPE, stdout=PIPE,
            env={"PYTHONPATH": os.pathsep.join(sys.path), "LC_ALL": "C.UTF-8"})
        return self._process
