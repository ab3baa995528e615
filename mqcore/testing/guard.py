"""
The process beside a test's broker: it starts `mqcore up`, and cleans up whatever becomes of the
test.

Ends     when its standard input ends, its parent is gone, on SIGTERM, SIGINT or SIGHUP
Owns     a folder with the settings, the store and the log; locked (so is the broker's end), so that
         what a killed guard left is found and removed by the next one
"""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from mqcore.parents import end_with_parent

PREFIX = "mqcore-testing-"
LOCK_NAME = "lock"
LOG = "broker.log"
PORTS = range(20_000, 32_000)       # below the ephemeral range: no client's socket sits there
START_TIMEOUT_S = 110.0            # of a machine that does much else
STOP_TIMEOUT_S = 50.0
PARENT_LOOK_S = 1.0
TRIES_MAX = 5                       # another process may take a port that was free
SAID_BYTES = 4_000
READY = re.compile(rb"^mqcore ready .*\n", re.MULTILINE)
PORT_TAKEN = b"in use"
SHARED_MEMORY = Path("/dev/shm")

# Small files: a test's store costs megabytes, not gigabytes.
SMALL_STORE = (
    "store.segment_size_bytes=67108864", "store.queue_file_entry_count=20000",
    "store.index_slot_count=50000", "store.index_entry_count=200000",
)


class GuardError(Exception):
    """The broker did not start, or ended by itself; the text has its last lines."""


class Guard:
    """
    One broker from start to end: use as `with Guard(...) as guard: guard.wait()`.

    overrides  SECTION.KEY=VALUE each, over those of a test's broker
    """

    def __init__(self, overrides: Sequence[str]) -> None:
        self._overrides = list(overrides)
        self._parent = os.getppid()
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folder = Path()
        self._lock = -1
        self._broker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Guard:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        remove_left_over()
        self._folder, self._lock = locked_folder()
        return self

    def __exit__(self, *_: object) -> None:
        if self._broker is not None:
            end(self._broker)
        shutil.rmtree(self._folder)
        os.close(self._lock)
        os.close(self._wake)
        os.close(self._woken)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._woken, b".")

    @property
    def log(self) -> bytes:
        """The end of what the broker printed."""
        return (self._folder / LOG).read_bytes()[-SAID_BYTES:]

    def start(self) -> dict[str, object] | None:
        """
        Start the broker: its addresses, store and process; None when it is to end before it began.

        Raises GuardError.
        """
        for left in reversed(range(TRIES_MAX)):
            port, own = free_ports()
            try:
                if not self._start(port, own):
                    return None
            except GuardError:
                if left and PORT_TAKEN in self.log:
                    continue
                raise
            break
        assert self._broker is not None
        return {
            "namesrv": f"127.0.0.1:{own}", "broker": f"127.0.0.1:{port}",
            "store": str(self._folder / "store"), "pid": self._broker.pid,
        }

    def _start(self, port: int, namesrv_port: int) -> bool:
        given = [
            *SMALL_STORE, "broker.name=mqcore-testing", "broker.listen_host=127.0.0.1",
            "broker.advertised_ip=127.0.0.1", f"broker.listen_port={port}",
            f"store.path={self._folder / 'store'}", "namesrv.embedded=true",
            "namesrv.listen_host=127.0.0.1", f"namesrv.listen_port={namesrv_port}",
            *self._overrides,
        ]
        with (self._folder / LOG).open("wb") as log:
            self._broker = subprocess.Popen(
                [sys.executable, "-m", "mqcore.admin.cli", "up",
                 *(f"--set={one}" for one in given)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True, preexec_fn=end_with_parent, pass_fds=(self._lock,))
        return self._wait_ready(self._broker, time.monotonic() + START_TIMEOUT_S)

    def _wait_ready(self, broker: subprocess.Popen[bytes], deadline: float) -> bool:
        assert broker.stdout is not None
        said = b""
        while not READY.search(said):
            left = deadline - time.monotonic()
            if left <= 0:
                raise GuardError(f"not ready after {START_TIMEOUT_S} s:\n{self._text()}")
            if self._ended(left, broker.stdout.fileno()):
                return False
            if _readable(broker.stdout.fileno()):
                part = os.read(broker.stdout.fileno(), 65_536)
                if not part:
                    broker.wait()
                    raise GuardError(f"status {broker.returncode}:\n{self._text()}")
                said += part
        return True

    def wait(self) -> None:
        """Until it is time to end. Raises GuardError when the broker ends by itself."""
        broker = self._broker
        assert broker is not None
        assert broker.stdout is not None
        out = broker.stdout.fileno()
        while not self._ended(PARENT_LOOK_S, out):
            if _readable(out) and not os.read(out, 65_536):
                broker.wait()
                raise GuardError(f"status {broker.returncode}:\n{self._text()}")

    def _ended(self, timeout: float, *others: int) -> bool:
        """Whether it is time to end, after at most `timeout` seconds, or when `others` speak."""
        own = sys.stdin.fileno()
        ready, _, _ = select.select([own, self._wake, *others], [], [],
                                    min(timeout, PARENT_LOOK_S))
        if self._wake in ready or os.getppid() != self._parent:
            return True
        return own in ready and not os.read(own, 4_096)

    def _text(self) -> str:
        return self.log.decode(errors="replace")


def guard_broker(overrides: Sequence[str], *, as_json: bool) -> int:
    """Run a broker until it is time to end; the exit status."""
    try:
        with Guard(overrides) as guard:
            said = guard.start()
            if said is not None:
                print(json.dumps(said) if as_json else "\n".join(
                    f"{name:8} {value}" for name, value in said.items()), flush=True)
                guard.wait()
    except GuardError as error:
        print(f"mqcore testing: the broker ended: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


# -- folders --------------------------------------------------------------------------------------


def locked_folder() -> tuple[Path, int]:
    """
    A new folder and the descriptor that locks it; the lock lives as long as one holder does.

    It gets its name when it is locked: another guard finds it held, or not at all.
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    unnamed = folder / f"{LOCK_NAME}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(folder / LOCK_NAME)
    return folder, lock


def remove_left_over() -> None:
    """Remove the folders of guards and brokers that are both gone; others' stay."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
        except OSError:                     # not ours, just being made, or gone meanwhile
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue                        # somebody uses it
        finally:
            os.close(lock)


# -- ports ----------------------------------------------------------------------------------------


def free_ports() -> tuple[int, int]:
    """A broker's port, free with those that go with it (-2 and +1), and one for a name server."""
    broker = next(port for port in _some_ports() if all(map(_is_free, (port - 2, port, port + 1))))
    return broker, next(port for port in _some_ports()
                        if abs(port - broker) > 2 and _is_free(port))


def _some_ports() -> Iterator[int]:
    for _ in range(200):
        yield random.choice(PORTS)
    raise GuardError(f"no free ports in {PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


# -- the end --------------------------------------------------------------------------------------


def end(broker: subprocess.Popen[bytes]) -> None:
    """Stop a broker: in order, or if it does not within STOP_TIMEOUT_S, by force."""
    assert broker.stdout is not None
    if broker.poll() is None:
        broker.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            broker.wait(STOP_TIMEOUT_S)
    if broker.poll() != 0:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(broker.pid, signal.SIGKILL)
        broker.wait()
        for path in SHARED_MEMORY.glob(f"mqcore-*-{broker.pid}"):
            path.unlink(missing_ok=True)
    broker.stdout.close()
