"""
A real broker for a test: `with broker() as b: b.namesrv, b.broker, b.store`.

The guard (mqcore/testing/guard.py) owns the broker's processes and folder; this end holds the
guard's standard input, whose end is the broker's end.
"""
from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 120.0            # more than the guard's own
STOP_TIMEOUT_S = 60.0


class TestingError(RuntimeError):
    """The broker did not start, or did not end as it should; the text has its last lines."""

    __test__ = False


@dataclass(frozen=True)
class Broker:
    """
    A running broker and its name server.

    namesrv  "host:port" of the name server, for clients
    broker   "host:port" of the broker itself
    store    its store directory, which goes with it
    pid      of its supervisor process; a MemoryBroker has none: 0
    """

    namesrv: str
    broker: str
    store: Path
    pid: int


@contextlib.contextmanager
def broker(
    settings: Mapping[str, object] | None = None, *, timeout: float = START_TIMEOUT_S,
) -> Iterator[Broker]:
    """
    A broker with its name server, on free ports of 127.0.0.1, its store in a folder of its own.

    settings  over those of a test's broker: "section.key" -> value (docs/configuration.md)
    timeout   seconds that it may take until clients can connect

    At the end of the block all of it is gone: processes, folder, shared memory; the same when this
    process is killed. Raises TestingError when it does not start, or ended by itself meanwhile.
    """
    guard = subprocess.Popen(
        [sys.executable, "-m", "mqcore.admin.cli", "testing", "up", "--json",
         *(f"--set={key}={as_text(value)}" for key, value in (settings or {}).items())],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,         # Ctrl-C is this process's: it ends the broker in its time
    )
    with guard:
        try:
            yield _read(_first_line(guard, timeout))
        finally:
            _end(guard)
        if guard.returncode != 0:
            raise TestingError(f"the broker ended by itself:\n{_said(guard)}")


def as_text(value: object) -> str:
    """As --set takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ";".join(map(str, value))
    return str(value)


def _read(line: bytes) -> Broker:
    said = json.loads(line)
    return Broker(said["namesrv"], said["broker"], Path(said["store"]), said["pid"])


def _first_line(guard: subprocess.Popen[bytes], timeout: float) -> bytes:
    assert guard.stdout is not None
    ready, _, _ = select.select([guard.stdout], [], [], timeout)
    if not ready:
        raise TestingError(f"no broker within {timeout} s")
    line = guard.stdout.readline()
    if not line:
        guard.wait(STOP_TIMEOUT_S)
        raise TestingError(f"the broker did not start:\n{_said(guard)}")
    return line


def _said(guard: subprocess.Popen[bytes]) -> str:
    assert guard.stderr is not None
    return guard.stderr.read().decode(errors="replace")[-4000:]


def _end(guard: subprocess.Popen[bytes]) -> None:
    """Close its standard input and wait: the guard cleans up by itself."""
    assert guard.stdin is not None
    guard.stdin.close()
    try:
        guard.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        guard.kill()
        raise TestingError(f"the broker did not end within {STOP_TIMEOUT_S} s") from None
