"""What `mqcore up` prints: the line for scripts, and the screen for a person."""
from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from mqcore.admin.screen import WIDTH, screen
from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import Settings
from tests.support.mqcore_process import MQCORE, start
from tests.support.stock import free_broker_port, free_port

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
LOOK_MS = 100
ROLES = ("supervisor", "writer", "dispatcher", "coordinator", "namesrv", "pull-serving-0")
READY = re.compile(
    r"^mqcore ready broker=127\.0\.0\.1:\d+ namesrv=127\.0\.0\.1:\d+ store=\S+ flush=async$")


def up_arguments(folder: Path) -> list[str]:
    given = {
        "store.path": folder / "store", "store.segment_size_bytes": 16 << 20,
        "broker.listen_port": free_broker_port(), "broker.advertised_ip": "127.0.0.1",
        "namesrv.listen_host": "127.0.0.1", "namesrv.listen_port": free_port(),
    }
    return ["up", *(word for key, value in given.items() for word in ("--set", f"{key}={value}"))]


def settings(folder: Path, **given: object) -> Settings:
    values = {"store.path": folder / "store", "broker.advertised_ip": "10.0.0.7", **given}
    return load(None, {}, [f"{key}={value}" for key, value in values.items()])


def readable(file: int | IO[bytes]) -> bool:
    """Whether something can be read, within a moment."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(LOOK_MS))


def run_up(folder: Path, *more: str, until: str) -> list[str]:
    """Lines on stdout of `mqcore up` until it says `until`; it is then stopped, and ends with 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mqcore.admin.cli", *up_arguments(folder), *more],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    text, deadline = b"", time.monotonic() + START_TIMEOUT_S
    try:
        while until.encode() not in text and time.monotonic() < deadline:
            if readable(process.stdout):
                text += os.read(process.stdout.fileno(), 65536)
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=STOP_TIMEOUT_S)
    assert process.returncode == 0
    return (text + rest).decode().splitlines()


def test_without_a_terminal_up_prints_the_ready_line_and_nothing_else(tmp_path: Path) -> None:
    lines = run_up(tmp_path, until="mqcore ready")

    assert len(lines) == 1
    assert READY.match(lines[0])


def test_with_verbose_the_ready_line_stays_first_and_the_screen_names_every_process(
    tmp_path: Path
) -> None:
    lines = run_up(tmp_path, "--verbose", until="Ctrl-C")

    assert READY.match(lines[0])
    shown = " ".join(lines[1:])
    assert [role for role in ROLES if not re.search(rf"\b{role} \d+", shown)] == []
    assert str(tmp_path / "store") in shown
    assert "mqcore status" in shown


def warnings(said: str) -> list[str]:
    """Lines of warnings; not those that say that a slow machine takes its time to stop."""
    return [line for line in said.splitlines()
            if "WARNING" in line and "stopping since" not in line]


def test_on_a_terminal_the_screen_comes_by_itself_and_ctrl_c_stops_in_order(
    tmp_path: Path
) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "mqcore.admin.cli",
                                  *up_arguments(tmp_path)])
    try:
        said = read_terminal(terminal, until="Ctrl-C")
        os.write(terminal, b"\x03")             # to every process of the terminal's group
        said += read_terminal(terminal, until=None)
    finally:
        os.kill(pid, signal.SIGTERM)            # it has ended, or the test has failed
        _, status = os.waitpid(pid, 0)
        os.close(terminal)

    assert os.waitstatus_to_exitcode(status) == 0, said
    assert "stopping on SIGINT" in said
    assert warnings(said) == []                 # the name server waits until the broker is gone
    assert "ERROR" not in said


def test_a_signal_to_all_processes_at_once_stops_in_order(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+") as out:
        process = subprocess.Popen([sys.executable, "-m", "mqcore.admin.cli",
                                    *up_arguments(tmp_path)],
                                   stdout=subprocess.PIPE, stderr=out, start_new_session=True)
        assert process.stdout is not None
        with process.stdout:
            first = process.stdout.readline().decode()
            os.killpg(process.pid, signal.SIGTERM)      # as service managers do
            assert process.wait(STOP_TIMEOUT_S) == 0
        assert READY.match(first)
        out.seek(0)
        said = out.read()
    assert "stopping on SIGTERM" in said
    assert warnings(said) == []
    assert "ERROR" not in said


def read_terminal(terminal: int, *, until: str | None) -> str:
    """What comes until `until`, or until its last process has closed it."""
    text, deadline = b"", time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and (until is None or until.encode() not in text):
        if not readable(terminal):
            continue
        try:
            text += os.read(terminal, 65536)
        except OSError:                         # how a terminal says that nobody holds it any more
            break
    return text.decode(errors="replace")


def test_a_start_that_fails_says_so_in_one_line_without_a_screen(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    process = start(["up", "-v", "--set", f"store.path={blocked}/store"], tmp_path, MQCORE)

    assert process.process.wait(START_TIMEOUT_S) == 1
    assert process.tail().startswith("mqcore: the store ")
    assert process.tail().count("\n") == 1
    assert "Ctrl-C" not in process.tail()


# -- the text --------------------------------------------------------------------------------------


def test_commands_leave_out_the_default_name_server(tmp_path: Path) -> None:
    default = settings(tmp_path, **{"broker.namesrv_addrs": "127.0.0.1:9876"})
    other = settings(tmp_path, **{"broker.namesrv_addrs": "127.0.0.1:9999"})

    assert "mqcore message send -t orders" in screen(default, {})
    assert "mqcore message send -n 127.0.0.1:9999 -t orders" in screen(other, {})


def test_other_machines_are_told_the_advertised_address(tmp_path: Path) -> None:
    opened = {"broker.namesrv_addrs": "127.0.0.1:9876", "broker.listen_host": "0.0.0.0",
              "namesrv.listen_host": "0.0.0.0"}
    text = screen(settings(tmp_path, **opened), {})

    assert 'setNamesrvAddr("10.0.0.7:9876")' in text
    assert "open to" not in text


def test_who_listens_to_this_machine_alone_is_told_how_to_open_it(tmp_path: Path) -> None:
    text = screen(settings(tmp_path), {})

    assert "programs on this machine; other hosts: set broker.listen_host" in text


def test_a_broker_without_name_server_shows_no_commands_that_need_one(tmp_path: Path) -> None:
    text = screen(settings(tmp_path, **{"namesrv.embedded": "false"}), {})

    assert "name server none" in text
    assert "mqcore message send" not in text


@pytest.mark.parametrize(("flush", "promise"), [
    ("async", "survives a kill, not a power cut"), ("sync", "survives a power cut"),
    ("transient-pool", "a kill may lose the last moments"),
])
def test_the_screen_says_what_an_acknowledgement_promises(
    tmp_path: Path, flush: str, promise: str
) -> None:
    assert promise in screen(settings(tmp_path, **{"store.flush": flush}), {})


def test_many_processes_are_wrapped(tmp_path: Path) -> None:
    run = {"processes": [{"role": f"pull-serving-{i}", "pid": 10_000 + i} for i in range(16)]}
    text = screen(settings(tmp_path), run)

    assert max(len(line) for line in text.splitlines() if "serving" in line) <= WIDTH
    assert "pull-serving-15 10015" in text
