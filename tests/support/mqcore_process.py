"""
The mqcore broker and name server as processes under test.

    with mqcore_up(tmp_path, {"store.flush": "sync"}) as broker:
        broker.namesrv_addr, broker.broker_addr, broker.pid

Starts `mqcore up` on free ports with a store below `tmp_path`, waits for its line `mqcore ready`,
and at the end asks it to stop (SIGTERM) and checks that it did: exit code 0 within STOP_TIMEOUT_S,
no process of its own left, nothing new left in /dev/shm.
"""
from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.nursery import Forked, nursery
from tests.support.stock import free_broker_port, free_port

START_TIMEOUT_S = 120            # on a busy machine; what ends before says so at once
STOP_TIMEOUT_S = 60              # what a stop costs is measured elsewhere
KILL_TIMEOUT_S = 60
POLL_INTERVAL_S = 0.02
PR_SET_PDEATHSIG = 1
SHARED_MEMORY = Path("/dev/shm")
MQCORE = (sys.executable, "-m", "mqcore.admin.cli")
READY = re.compile(r"^mqcore ready\b.*$", re.MULTILINE)

# Small files: a test's store costs megabytes, not gigabytes.
SMALL_STORE: dict[str, object] = {
    "store.segment_size_bytes": 64 << 20,
    "store.queue_file_entry_count": 20_000,
    "store.index_slot_count": 50_000,
    "store.index_entry_count": 200_000,
}
# A memfd takes the pages that are touched. The 90 MiB that named memory reserves are a fifth of
# what a start and a stop take; tests/workers and tests/attacks have it, as brokers do
# (`named_memory`).
MEMORY: dict[str, object] = {"processes.shared_memory": "memfd"}


class MqcoreError(AssertionError):
    """mqcore did not start, or did not stop as it should."""


@dataclass
class MqcoreProcess:
    """A running `mqcore` command: the supervisor, parent of all its processes."""

    process: subprocess.Popen[bytes] | Forked
    folder: Path
    output: Path
    broker_addr: str = ""
    namesrv_addr: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def family(self) -> list[int]:
        """The process ids of the supervisor and of all that runs below it; parents come first."""
        return _family(self.pid)

    def shared_memory(self) -> set[str]:
        """The shared memory files that it has mapped; its processes have no others."""
        return _mapped(self.pid)

    def segment_name(self) -> str:
        """The name of its present run's shared memory, named or not (mqcore/shm/memory.py)."""
        (name,) = _segments(self.pid)
        return name

    def tail(self) -> str:
        """The end of its output, for a failure's message."""
        return self.output.read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """
        Stop it cleanly.

        MqcoreError unless it ends with 0 within STOP_TIMEOUT_S and leaves neither a process nor
        shared memory.
        """
        family, shared = self.family(), self.shared_memory()
        self.process.terminate()
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._kill(family)
            raise MqcoreError(self._said(f"no end within {STOP_TIMEOUT_S} s of SIGTERM")) from None
        left = [pid for pid in family if _is_running(pid)]
        if left:
            self._kill(left)
            raise MqcoreError(self._said(f"left running: {left}"))
        if code != 0:
            raise MqcoreError(self._said(f"ended with {code}"))
        remains = sorted(path for path in shared if Path(path).exists())
        if remains:
            raise MqcoreError(self._said(f"left behind: {remains}"))

    def kill(self) -> None:
        """End the supervisor and all its processes at once, as a power cut would."""
        shared = self.shared_memory()
        self._kill(self.family())
        for path in shared:                   # the next start would do it; a test leaves nothing
            Path(path).unlink(missing_ok=True)

    def _kill(self, family: list[int]) -> None:
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(KILL_TIMEOUT_S)

    def _said(self, what: str) -> str:
        return f"mqcore: {what}\n{self.tail()}"


@contextlib.contextmanager
def mqcore_up(
    folder: Path, settings: Mapping[str, object] | None = None, *, namesrv_addr: str | None = None,
    program: Sequence[str] = (),
) -> Iterator[MqcoreProcess]:
    """
    Run `mqcore up`: a broker, with its own name server unless `namesrv_addr` names another one.

    settings: `section.key` to value, as for --set, on top of free ports, 127.0.0.1, a store at
    `folder/store`, SMALL_STORE and MEMORY; None leaves one out. program: as for `start`.
    Raises MqcoreError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    broker_port = free_broker_port()
    given: dict[str, object] = {
        **SMALL_STORE,
        **MEMORY,
        "broker.name": "mqcore-a",
        "broker.listen_host": "127.0.0.1",
        "broker.advertised_ip": "127.0.0.1",
        "broker.listen_port": broker_port,
        "store.path": folder / "store",
        "namesrv.embedded": namesrv_addr is None,
        "namesrv.listen_host": "127.0.0.1",
        "namesrv.listen_port": next(
            port for port in iter(free_port, None) if abs(port - broker_port) > 2),
    }
    if namesrv_addr is not None:
        given["broker.namesrv_addrs"] = [namesrv_addr]
    given.update(settings or {})
    given = {path: value for path, value in given.items() if value is not None}
    config = folder / "broker.toml"
    config.write_text(_toml(given), encoding="utf-8")
    started = start(["up", "-c", str(config)], folder, program)
    started.broker_addr = f"127.0.0.1:{given['broker.listen_port']}"
    started.namesrv_addr = namesrv_addr or f"127.0.0.1:{given['namesrv.listen_port']}"
    with _running(started):
        yield started


@contextlib.contextmanager
def mqcore_namesrv(
    folder: Path, settings: Mapping[str, object] | None = None, *, ip: str = "127.0.0.1",
    program: Sequence[str] = (),
) -> Iterator[MqcoreProcess]:
    """
    Run only a name server, on a free port; settings: of its file, section.key. ip: where it
    listens. program: as for `start`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config = folder / "namesrv.toml"
    config.write_text(_toml({
        "namesrv.listen_host": ip, "namesrv.listen_port": port,
        "namesrv.kv_config_path": folder / "kvConfig.json", **(settings or {}),
    }), encoding="utf-8")
    started = start(["namesrv", "run", "-c", str(config)], folder, program)
    started.namesrv_addr = f"{ip}:{port}"
    with _running(started):
        yield started


def start(arguments: list[str], folder: Path, program: Sequence[str] = ()) -> MqcoreProcess:
    """
    Start the `mqcore` command with `arguments`; its output goes to `folder/mqcore.out`.

    program: what to execute for it: MQCORE, a command that runs another one with MQCORE behind it
    (`prlimit --nofile=256`), a script that does what MQCORE does. Empty: a process of the
    nursery for this environment, or MQCORE if there is none.
    """
    output = folder / "mqcore.out"
    with output.open("wb") as sink:
        if not program and (forking := nursery()) is not None:
            return MqcoreProcess(forking.start(arguments, sink), folder, output)
        process = subprocess.Popen(
            [*(program or MQCORE), *arguments], stdin=subprocess.DEVNULL,
            stdout=sink, stderr=subprocess.STDOUT, preexec_fn=die_with_parent,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    return MqcoreProcess(process, folder, output)


@contextlib.contextmanager
def _running(started: MqcoreProcess) -> Iterator[None]:
    """Wait for the start; at the end of the block stop and check, or after an error only end it."""
    try:
        _wait_ready(started)
        yield
    except BaseException:
        started.kill()
        raise
    if started.process.poll() is None:          # a test may have stopped or killed it
        started.stop()


def _wait_ready(started: MqcoreProcess) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not READY.search(started.tail()):
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = started.process.wait(POLL_INTERVAL_S)
            raise MqcoreError(f"mqcore ended with {code} at start:\n{started.tail()}")
        if time.monotonic() > deadline:
            raise MqcoreError(f"not ready after {START_TIMEOUT_S} s:\n{started.tail()}")


def _family(top: int) -> list[int]:
    """
    The processes that run below `top`, and it; parents come first. The kernel lists each one's
    children: those of a whole machine are looked at many times as long.
    """
    found = [top] if _is_running(top) else []
    for pid in found:
        # -- glob finds nothing where a process has ended; Path.glob fails
        for children in glob.glob(f"/proc/{pid}/task/*/children"):
            with contextlib.suppress(OSError):          # it ended meanwhile
                found += map(int, Path(children).read_text().split())
    return found


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _mapped(pid: int) -> set[str]:
    return {path for path in _maps(pid) if path.startswith(f"{SHARED_MEMORY}/")}


def _segments(pid: int) -> set[str]:
    """`/mqcore-...` of what it has mapped; a memfd counts as deleted from the beginning."""
    found = set()
    for path in _maps(pid):
        memfd = path.removeprefix("/memfd:").removesuffix(" (deleted)")
        name = memfd if path.startswith("/memfd:") else path.removeprefix(f"{SHARED_MEMORY}/")
        if name.startswith("mqcore-"):
            found.add(f"/{name}")
    return found


def _maps(pid: int) -> set[str]:
    """The paths of all files that a process has mapped."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return set()
    fields = (line.split(maxsplit=5) for line in maps.splitlines())
    return {one[5] for one in fields if len(one) == 6}


@contextlib.contextmanager
def named_memory() -> Iterator[None]:
    """Brokers that begin within the block have shared memory with a name, where it has room."""
    before = MEMORY["processes.shared_memory"]
    MEMORY["processes.shared_memory"] = "auto"
    try:
        yield
    finally:
        MEMORY["processes.shared_memory"] = before


def _toml(settings: Mapping[str, object]) -> str:
    """`section.key` settings as a TOML file."""
    sections: dict[str, list[str]] = {}
    for path, value in settings.items():
        section, key = path.split(".", 1)
        sections.setdefault(section, []).append(f"{key} = {_toml_value(value)}")
    return "\n".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(one) for one in value) + "]"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def die_with_parent(by: signal.Signals = signal.SIGTERM) -> None:
    """A test run that is killed must not leave a broker, or a child that turns for ever."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
