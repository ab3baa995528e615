"""
One JVM that runs many commands of the Java program, several at a time.

    task = desk.start(["produce", "--namesrv", ...], folder / "output.txt")
    code = task.wait(timeout_s)

A JVM takes more of a processor until it runs than most commands do in it. Each command has clients
of its own in it, with connections of their own. One that is killed takes the JVM with it, and the
next one starts another: what is to be killed has a process of its own (`apart` in
tests/interop/runner.py).
"""
from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.interop.toolchain import require_client
from tests.support.stock import die_with_parent, end_input

END_TIMEOUT_S = 20
MEMORY = "-Xmx256m"                 # for several commands at a time


class Task:
    """One command: as much of a `subprocess.Popen` as its users need."""

    def __init__(self, desk: Desk) -> None:
        self.returncode: int | None = None
        self._desk = desk
        self._ended = threading.Event()

    def end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; subprocess.TimeoutExpired when it still runs."""
        if not self._ended.wait(timeout) or self.returncode is None:
            raise subprocess.TimeoutExpired("a task of the desk", timeout or 0)
        return self.returncode

    def kill(self) -> None:
        """End it, and with it all that its JVM does."""
        self._desk.kill()


class Desk:
    """The JVM, which the first command starts; its files are below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._tasks: dict[int, Task] = {}
        self._count = 0

    def start(self, words: Sequence[str], log: Path) -> Task:
        """Begin a command; what it prints goes to `log`."""
        log.touch()
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            self._begin()
        assert self._process is not None
        assert self._process.stdin is not None
        self._count += 1
        task = self._tasks[self._count] = Task(self)
        told = {"number": self._count, "log": str(log), "words": list(words)}
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        self._process.stdin.flush()
        return task

    def kill(self) -> None:
        """End the JVM at once, and all that it does."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def close(self) -> None:
        """The end of its input ends it."""
        if self._process is not None:
            end_input(self._process, END_TIMEOUT_S)
            self._end()

    def _begin(self) -> None:
        java, *rest = require_client("java")
        environment = {**os.environ, "HOME": str(self._folder)}
        with (self._folder / "errors.txt").open("ab") as sink:
            self._process = subprocess.Popen(
                [java, f"-Duser.home={self._folder}", *rest[:-1], MEMORY, rest[-1], "desk"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, cwd=self._folder,
                env=environment, preexec_fn=die_with_parent)
        self._tasks = {}
        self._reader = threading.Thread(
            target=_read, args=(self._process, self._tasks), daemon=True)
        self._reader.start()

    def _end(self) -> None:
        """When the JVM has ended or will: all of its tasks have then, too."""
        assert self._process is not None
        assert self._reader is not None
        self._process.wait()
        self._reader.join()
        self._process = None


def _read(process: subprocess.Popen[bytes], tasks: dict[int, Task]) -> None:
    """In a thread: what the JVM says of its tasks, until it ends."""
    assert process.stdout is not None
    for line in process.stdout:
        answer = json.loads(line)
        tasks.pop(answer["number"]).end(answer["code"])
    code = process.wait()
    for task in tasks.values():
        task.end(code)
