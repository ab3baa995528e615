"""Starts, watches, kills and ends the processes of the demo, and reads what they saw."""
from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqcore.admin.status import describe
from mqcore.parents import end_with_parent
from mqcore.shm.segment import stale_segments

POLL_S = 0.01
STILL_S = 120.0               # nothing moves for so long: it is given up
STOP_TIMEOUT_S = 60.0

# Small files: the demo's store costs megabytes.
SMALL_STORE = (
    "store.segment_size_bytes=16777216", "store.queue_file_entry_count=20000",
    "store.index_slot_count=50000", "store.index_entry_count=200000",
)


class DemoError(RuntimeError):
    """The demo cannot continue; the text says what did not happen."""


def wait_until(what: str, condition: Callable[[], bool], moved: Callable[[], object],
               still_s: float = STILL_S) -> float:
    """
    Seconds until `condition` held. On a slow machine they may be many: it is given up, with a
    DemoError that names `what`, when for `still_s` nothing has changed in what `moved` returns.
    """
    began = changed = time.monotonic()
    before = moved()
    while not condition():
        now = time.monotonic()
        if (after := moved()) != before:
            before, changed = after, now
        elif now - changed > still_s:
            raise DemoError(f"nothing moved for {still_s:g} s, and not seen: {what}")
        time.sleep(POLL_S)
    return time.monotonic() - began


def free_ports(count: int) -> list[int]:
    """TCP ports of the loopback address that nobody listened at a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Actor:
    """One process of the demo; `log` is the file with its output, for when something goes wrong."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
                cwd=folder, start_new_session=True, preexec_fn=end_with_parent,
                env={**os.environ, "PYTHONUNBUFFERED": "1"})

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM, and the exit status; what does not end is killed."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.returncode

    def said(self) -> int:
        """How many bytes of what it does can be read."""
        return self.log.stat().st_size

    def finish(self) -> None:
        """Wait for an end with status 0. Raises DemoError."""
        wait_until(f"the end of {self.name}", lambda: not self.running, self.said)
        if self.process.returncode:
            raise DemoError(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


class Writer(Actor):
    """A process that writes one JSON line for each thing it saw (clients.py)."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self._path = folder / f"{name}.jsonl"
        self._path.touch()
        self._position = 0
        self._seen: list[dict[str, Any]] = []
        super().__init__(name, [*command, "--out", str(self._path)], folder)

    def said(self) -> int:
        return super().said() + self._path.stat().st_size

    def lines(self) -> list[dict[str, Any]]:
        """All whole lines so far."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            new = file.read()
        whole = new[:new.rfind(b"\n") + 1]
        self._position += len(whole)
        self._seen += [json.loads(line) for line in whole.splitlines()]
        return self._seen

    def of(self, key: str) -> list[dict[str, Any]]:
        """The lines that have `key`."""
        return [line for line in self.lines() if key in line]


def role(name: str, kind: str, folder: Path, **options: object) -> Writer:
    """Start a role of clients.py."""
    command = [sys.executable, "-m", "mqcore.admin.demo.clients", kind]
    for option, value in options.items():
        command += [f"--{option.replace('_', '-')}", str(value)]
    return Writer(name, command, folder)


class Broker(Actor):
    """`mqcore up` on free ports, with its store below `folder`."""

    def __init__(self, folder: Path) -> None:
        port, namesrv_port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.namesrv = f"127.0.0.1:{namesrv_port}"
        self.store = folder / "store"
        given = (
            *SMALL_STORE, f"store.path={self.store}", "broker.name=demo",
            "broker.listen_host=127.0.0.1", "broker.advertised_ip=127.0.0.1",
            "broker.fast_port_enable=false", f"broker.listen_port={port}",
            "namesrv.listen_host=127.0.0.1", f"namesrv.listen_port={namesrv_port}",
        )
        settings = [word for one in given for word in ("--set", one)]
        super().__init__("broker", [sys.executable, "-m", "mqcore.admin.cli", "up", *settings],
                         folder)

    def wait_ready(self) -> float:
        """Seconds until clients could connect. Raises DemoError."""
        def ready() -> bool:
            if not self.running:
                raise DemoError(f"the broker did not start:\n{self.tail()}")
            return "mqcore ready" in self.log.read_text(errors="replace")

        return wait_until("the broker's line `mqcore ready`", ready, self.said)

    def segments(self) -> list[str]:
        """Names of its shared memory."""
        return [name for name in stale_segments("mqcore-") if name.endswith(f"-{self.pid}")]

    def status(self) -> dict[str, Any]:
        """What `mqcore status --json` says about it."""
        for name in self.segments():
            found = describe(name)
            if found is not None:
                return found
        raise DemoError(f"the broker has no shared memory:\n{self.tail()}")

    def processes(self) -> dict[str, dict[str, Any]]:
        """By role: pid, state, starts."""
        return {process["role"]: process for process in self.status()["processes"]}
