"""
`mqcore` commands in processes that have loaded their code before they begin.

A fresh interpreter spends more on loading mqcore than a broker on its start and stop. So each
process of a test run keeps a child, the nursery, which loads what brokers and name servers need,
has one thread, and forks once for each command. That process then is what `python -m
mqcore.admin.cli` would be: file descriptors 0 to 2 alone, the handlers of signals of a new
interpreter, its own end (exit status, what runs at exit). Its parent is the nursery, which tells
the test how it ended; it gets SIGTERM when the nursery, or the test's process, has gone.
"""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO, NoReturn

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1
REQUEST_BYTES_MAX = 1 << 16
WORD = struct.Struct("=q")            # what the nursery says of a process: its id, how it ended
NURSERIES_MAX = 3                     # each has the code in memory of its own
PRELOADED = "LD_PRELOAD"
VOLATILE = "PYTEST_CURRENT_TEST"      # the one variable that differs from test to test

Environment = frozenset[tuple[str, str]]


class NurseryError(RuntimeError):
    """The nursery does not answer."""


class Forked:
    """A process that the nursery made; what subprocess.Popen has, as far as tests use it."""

    def __init__(self, arguments: list[str], words: socket.socket) -> None:
        self.args = arguments
        self._words = words
        self.returncode: int | None = None
        self.pid = self._word()

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status once it has ended. subprocess.TimeoutExpired after `timeout` seconds."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._words], [], [], timeout_s)[0]:
            self.returncode = self._word()
            self._words.close()
        return self.returncode

    def _word(self) -> int:
        word = self._words.recv(WORD.size)
        if len(word) != WORD.size:
            raise NurseryError(f"the nursery has gone; what it made was {self.args}")
        return int(WORD.unpack(word)[0])


class Nursery:
    """The child that forks; it ends when this object, or its process, has gone."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, cwd=ROOT, pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONUNBUFFERED": "1"})

    def start(self, arguments: list[str], sink: BinaryIO) -> Forked:
        """Run `mqcore arguments` here and now, its output into `sink`. Raises NurseryError."""
        words, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps({"folder": str(Path.cwd()), "arguments": arguments}).encode()
        with theirs:
            socket.send_fds(self._requests, [request], [sink.fileno(), theirs.fileno()])
        return Forked(arguments, words)


def environment() -> Environment:
    return frozenset((name, value) for name, value in os.environ.items() if name != VOLATILE)


_asked_for: set[Environment] = set()
_made: dict[Environment, Nursery] = {}


def nursery() -> Nursery | None:
    """
    The one of this process for its environment: a preloaded library needs a process that has begun
    with it. None: such an environment is asked for the first time, and one that never comes again
    is dear, or there are NURSERIES_MAX.
    """
    own = environment()
    if own not in _made and len(_made) < NURSERIES_MAX and (
            PRELOADED not in os.environ or own in _asked_for):
        _made[own] = Nursery()
    _asked_for.add(own)
    return _made.get(own)


# -- in the nursery --------------------------------------------------------------------------------


def load() -> None:
    """All code of brokers and name servers, and what is looked up once of settings."""
    from mqcore.broker.settings.load import load as load_settings
    from mqcore.participants import processes

    for module in ("mqcore.admin.cli", "mqcore.admin.run", "mqcore.admin.logs", "msgspec.structs",
                   "mqcore.workers.supervisor.supervisor", "mqcore.workers.serving.namesrv",
                   "mqcore.namesrv.settings",
                   *(row.module for row, _ in processes(1))):
        importlib.import_module(module)
    load_settings(environment={})
    gc.collect()
    gc.freeze()                   # no process looks through it again, or copies it for that


def serve(requests: socket.socket) -> list[str] | None:
    """
    Fork for each request, and say how the processes end, until nobody can ask any more: then None.
    In a process that was forked: the arguments of its command.
    """
    living: dict[int, tuple[int, int]] = {}           # pidfd: process id, whom to tell
    looked_at = select.poll()
    looked_at.register(requests, select.POLLIN)
    while True:
        for ready, _ in looked_at.poll():
            if ready != requests.fileno():
                looked_at.unregister(ready)
                bury(ready, *living.pop(ready))
                continue
            request, (sink, told), _, _ = received(requests)
            if not request:
                return None
            parent, pid = os.getpid(), os.fork()
            if pid == 0:
                given = json.loads(request)
                requests.close()
                become(parent, sink, given["folder"])
                return list(given["arguments"])
            os.close(sink)
            tell(told, pid)
            watched = os.pidfd_open(pid)
            living[watched] = (pid, told)
            looked_at.register(watched, select.POLLIN)


def received(requests: socket.socket) -> tuple[bytes, list[int], int, object]:
    request, fds, flags, address = socket.recv_fds(requests, REQUEST_BYTES_MAX, 2)
    return request, fds or [-1, -1], flags, address


def bury(watched: int, pid: int, told: int) -> None:
    tell(told, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.close(told)
    os.close(watched)


def tell(told: int, value: int) -> None:
    """The test may have lost interest."""
    with contextlib.suppress(BrokenPipeError):
        os.write(told, WORD.pack(value))


def become(parent: int, sink: int, folder: str) -> None:
    """Make a process that was just forked one that has nothing of its parent's but the code."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:                        # it ended before prctl
        os._exit(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)      # a terminal means the test
    load()
    arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        sys.argv[:] = ["mqcore", *arguments]
        end(run())


def run() -> object:
    """The command; what it ends with, as sys.exit has it."""
    from mqcore.admin.cli import main as command

    try:
        command()
    except SystemExit as ending:
        return ending.code
    return 0


def end(code: object) -> NoReturn:
    """
    What runs at exit, and the exit status. No object is taken apart, as an interpreter does at its
    end: each lies in memory that is the nursery's until it is written to.
    """
    if not isinstance(code, int):
        sys.exit(code)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
