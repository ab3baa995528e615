"""The words that a service manager hears (sd_notify), and the unit that starts a broker."""
from __future__ import annotations

import configparser
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.broker.settings.model import ProcessSettings
from tests.support.ci import unavailable
from tests.support.mqcore_process import MQCORE, mqcore_up
from tests.support.waiting import WAIT_S, wait_until
from tests.workers.processes import pid_of

UNIT = Path(__file__).parents[2] / "docs" / "service" / "mqcore.service"
WATCHDOG_S = 1.0


class Manager:
    """A service manager's end of the socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))

    def hear(self, within_s: float = WAIT_S) -> str:
        """The next word, "" if there is none."""
        self.socket.settimeout(within_s)
        with contextlib.suppress(TimeoutError):
            return self.socket.recv(4096).decode()
        return ""

    def hear_until(self, word: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.hear() != word:
            assert time.monotonic() < deadline, f"no {word}"


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    path = tmp_path / "notify"
    found = Manager(path)
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    yield found
    found.socket.close()


def test_it_hears_of_the_start_and_of_the_stop(manager: Manager, tmp_path: Path) -> None:
    with mqcore_up(tmp_path, program=MQCORE):
        assert manager.hear() == "READY=1"
    assert manager.hear() == "STOPPING=1"
    assert manager.hear(0.1) == ""


def test_a_watchdog_hears_only_while_all_processes_turn(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG_S * 1e6)))
    with mqcore_up(tmp_path, program=MQCORE) as broker:
        manager.hear_until("READY=1")
        for _ in range(3):
            manager.hear_until("WATCHDOG=1")
        pid = pid_of(broker, "dispatcher")
        os.kill(pid, signal.SIGSTOP)
        try:
            deadline = time.monotonic() + WAIT_S
            while manager.hear(4 * WATCHDOG_S):
                assert time.monotonic() < deadline, "words although a process is stopped"
        finally:
            os.kill(pid, signal.SIGCONT)
        manager.hear_until("WATCHDOG=1")       # now as old as a process that never turned may be
    manager.hear_until("STOPPING=1")


def test_a_manager_that_has_gone_is_a_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    with mqcore_up(tmp_path, program=MQCORE) as broker:
        wait_until(lambda: "the service manager does not hear READY=1: No such file"
                   in broker.tail(), "the line")


def test_another_processs_watchdog_is_left_alone(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    with mqcore_up(tmp_path, program=MQCORE):
        assert manager.hear() == "READY=1"
    assert manager.hear() == "STOPPING=1"


def test_the_unit_waits_longer_than_a_stop_takes() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str                           # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["KillMode"] == "mixed"
    seconds = int(service["TimeoutStopSec"].removesuffix("s"))
    assert seconds > ProcessSettings().stop_timeout_ms / 1000


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    command = shutil.which("systemd-analyze")
    if command is None:
        unavailable("needs systemd-analyze")
    program = tmp_path / "mqcore"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    files = [tmp_path / unit.name for unit in (UNIT, UNIT.with_suffix(".socket"))]
    for file in files:
        file.write_text((UNIT.parent / file.name).read_text(encoding="utf-8").replace(
            "/usr/local/bin/mqcore", str(program)), encoding="utf-8")
    done = subprocess.run([command, "verify", *map(str, files)], capture_output=True, text=True,
                          check=False, timeout=60)
    said = [line for line in done.stderr.splitlines() if UNIT.stem in line]
    assert (done.returncode, said) == (0, []), done.stderr
