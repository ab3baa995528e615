"""
Attacks in processes of their own, so that they take no time of the honest client's interpreter.

    with Attackers() as attackers:
        attackers.attack(NAME, BROKER, NAMESRV, SECONDS, SEED)

They are forked of one process that has loaded their code: an interpreter of its own would take
longer for that than most of them attack. NAME is a module of this folder that has

    def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None

which attacks for that long, closes what it opened and returns; it asserts nothing about others.
Attackers stand for other machines: they take what is left of this one (tests/support/idle.py),
unless they are `busy`. What they sent is counted, so that one can see how far they came.
"""
from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests import attacks
from tests.support.idle import take_what_is_left
from tests.support.mqcore_process import die_with_parent

END_S = 60.0                    # what an attack may take beyond its time, on a busy machine


@dataclass
class Effort:
    """What an attack did: calls that sent something, connections, bytes, and how long it took."""

    sends: int = 0
    connections: int = 0
    sent_bytes: int = 0
    seconds: float = 0.0

    def add(self, other: Effort) -> None:
        self.sends += other.sends
        self.connections += other.connections
        self.sent_bytes += other.sent_bytes
        self.seconds += other.seconds

    def line(self) -> str:
        seconds = self.seconds or 1.0
        return (f"{self.sends / seconds:,.0f} sends/s, {self.connections / seconds:,.1f} "
                f"connections/s, {self.sent_bytes / seconds / 1e6:,.2f} MB/s")


def names() -> list[str]:
    """All attacks that can run as long as asked."""
    found = sorted(one.name for one in pkgutil.iter_modules(attacks.__path__)
                   if not one.name.startswith("test_"))
    return [name for name in found if "\ndef run(" in _source(name) and name != "run"]


class Attackers:
    """The process that makes them; it ends with the block."""

    def __enter__(self) -> Attackers:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.run"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def attack(self, name: str, broker_addr: str, namesrv_addr: str, seconds: float, seed: int, *,
               idle: bool = True) -> Effort:
        """Run one attack to its end; AssertionError with what it said when it failed itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(
            [name, broker_addr, namesrv_addr, seconds, seed, idle]).encode() + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], seconds + END_S)
        assert ready, f"{name}, seed {seed}: not within {END_S} s of its time"
        answer = json.loads(self._process.stdout.readline())
        assert isinstance(answer, dict), f"{name}, seed {seed}:\n{answer}"
        return Effort(**answer)


def _source(name: str) -> str:
    return (Path(attacks.__path__[0]) / f"{name}.py").read_text(encoding="utf-8")


def _counted(effort: Effort) -> None:
    """Counts what sockets of this process do from now on."""
    lock = threading.Lock()

    def counting(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def count(self: socket.socket, data: Any, *others: Any) -> Any:
            with lock:
                if name == "connect":
                    effort.connections += 1
                else:
                    effort.sends += 1
                    effort.sent_bytes += len(data)
            return call(self, data, *others)

        return count

    for name in ("send", "sendall", "connect"):
        setattr(socket.socket, name, counting(getattr(socket.socket, name), name))


def attacked(name: str, broker_addr: str, namesrv_addr: str, seconds: float, seed: int,
             idle: bool) -> dict[str, float]:
    """In a process for this attack alone."""
    if idle:
        take_what_is_left()
    effort, began = Effort(), time.monotonic()
    _counted(effort)
    importlib.import_module(f"tests.attacks.{name}").run(
        broker_addr, namesrv_addr, seconds, random.Random(seed))
    effort.seconds = time.monotonic() - began
    return asdict(effort)


def in_child(words: list[Any]) -> None:
    """One attack; a line says what it did, or why it failed."""
    said: object = None
    try:
        die_with_parent(signal.SIGKILL)
        said = attacked(*words)
    except BaseException:
        said = traceback.format_exc()[-4000:]
    finally:
        os.write(1, json.dumps(said).encode() + b"\n")
        os._exit(0)


def main() -> None:
    for name in names():
        importlib.import_module(f"tests.attacks.{name}")
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            in_child(json.loads(line))
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
