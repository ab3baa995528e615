"""
One attack in a process of its own, so that it takes no time of the honest client's interpreter.

    python -m tests.attacks.run NAME BROKER NAMESRV SECONDS SEED idle|busy

NAME is a module of this folder that has

    def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None

which attacks for that long, closes what it opened and returns; it asserts nothing about others.
Attackers stand for other machines: they take what is left of this one (tests/support/idle.py),
unless they are `busy`. What they sent is counted, so that one can see how far they came.
"""
from __future__ import annotations

import importlib
import json
import pkgutil
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests import attacks
from tests.support.idle import take_what_is_left

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


def attack(name: str, broker_addr: str, namesrv_addr: str, seconds: float, seed: int, *,
           idle: bool = True) -> Effort:
    """Run one attack to its end; AssertionError with its output when it failed itself."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.attacks.run", name, broker_addr, namesrv_addr, str(seconds),
         str(seed), "idle" if idle else "busy"],
        capture_output=True, text=True, timeout=seconds + END_S, check=False)
    assert done.returncode == 0, f"{name}, seed {seed}:\n{done.stderr[-4000:]}"
    return Effort(**json.loads(done.stdout.splitlines()[-1]))


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


def main(name: str, broker_addr: str, namesrv_addr: str, seconds: str, seed: str,
         priority: str) -> None:
    if priority == "idle":
        take_what_is_left()
    effort, began = Effort(), time.monotonic()
    _counted(effort)
    importlib.import_module(f"tests.attacks.{name}").run(
        broker_addr, namesrv_addr, float(seconds), random.Random(int(seed)))
    effort.seconds = time.monotonic() - began
    print(json.dumps(asdict(effort)))


if __name__ == "__main__":
    main(*sys.argv[1:])
