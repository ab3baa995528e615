"""`mqcore status` beside runs that it cannot read."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import posix_ipc
import pytest
from click.testing import CliRunner

from mqcore.admin.status import status as status_command
from mqcore.figures import FIGURES
from mqcore.layout import (
    REFUSAL_DISK_FULL,
    REFUSAL_NONE,
    REFUSAL_WRITE_FAILED,
    SHM_LAYOUT_VERSION,
    WORKER_STOPPED,
)
from mqcore.participants import COORDINATOR, WRITER
from mqcore.shm import memory
from mqcore.shm.refused import refusal
from mqcore.shm.segment import Segment
from tests.support.mqcore_process import mqcore_up

NAME = f"/mqcore-test-status-{os.getpid()}"
OWN = f"/mqcore-test-own-{os.getpid()}"
SMALL = {"run_id": 9, "serving_count": 1, "segment_size": 65536, "message_bytes_max": 4096,
         "topics": 64, "groups": 64, "subscriptions": 64, "queues": 64}
VERSION_AT = 8
NEXT = (SHM_LAYOUT_VERSION + 1).to_bytes(4, "little")


@pytest.fixture
def another_version() -> Iterator[None]:
    """A run of a broker whose layout we do not know; this process is its supervisor."""
    Segment.create(NAME, **SMALL, kind="named")
    held = posix_ipc.SharedMemory(NAME)
    os.pwrite(held.fd, NEXT, VERSION_AT)
    held.close_fd()
    yield
    memory.unlink(NAME)


@pytest.fixture
def readable() -> Iterator[Segment]:
    made = Segment.create(OWN, **SMALL, kind="named")
    yield made
    made.unlink()


def status(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mqcore.admin.cli", "status", *options],
                          capture_output=True, text=True)


def test_a_broker_of_another_version_is_a_line_and_the_others_are_shown(
    another_version: None, readable: Segment,
) -> None:
    done = status()

    assert done.returncode == 0, done.stderr
    assert f"a broker of another version of mqcore runs as process {os.getpid()}" in done.stdout
    assert f"broker {OWN[1:]}" in done.stdout


def test_json_holds_what_can_be_read_and_the_line_goes_to_standard_error(
    another_version: None, readable: Segment,
) -> None:
    done = status("--json")

    assert done.returncode == 0, done.stderr
    assert OWN[1:] in json.loads(done.stdout)
    assert NAME[1:] not in json.loads(done.stdout)
    assert "a broker of another version" in done.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize(("names", "said"), [
    ([], "no broker runs on this machine"),
    (["/mqcore-0123456789ab-999999999"], "no broker runs on this machine"),      # it has ended
])
def test_no_broker_is_an_error(
    monkeypatch: pytest.MonkeyPatch, options: list[str], names: list[str], said: str
) -> None:
    monkeypatch.setattr("mqcore.admin.status.stale_segments", lambda _prefix: names)
    done = CliRunner().invoke(status_command, options)

    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stdout == ""


def test_brokers_of_another_version_alone_are_an_error(
    monkeypatch: pytest.MonkeyPatch, another_version: None
) -> None:
    monkeypatch.setattr("mqcore.admin.status.stale_segments", lambda _prefix: [NAME])
    for options in ([], ["--json"]):
        done = CliRunner().invoke(status_command, options)
        assert done.exit_code == 1
        assert "a broker of another version" in done.stderr


def shown_of(segment: Segment) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(status("--json").stdout)[segment.name[1:]]
    return run


def test_every_figure_of_the_table_that_is_to_be_shown_is_shown(readable: Segment) -> None:
    for value, figure in enumerate(FIGURES, 1000):
        if figure.role is not None:
            readable.put_figure(figure.role.slot, figure.id, value)
    run = shown_of(readable)

    for value, figure in enumerate(FIGURES, 1000):
        if figure.shown:
            section, key = figure.shown.split(".")
            assert run[section][key] == value, figure.name


def test_each_figure_that_is_shown_is_explained() -> None:
    explained = status("--explain").stdout

    assert [figure.name for figure in FIGURES if figure.shown and not (
        figure.shown in explained and figure.help in explained)] == []


def test_processes_say_their_state_in_words(readable: Segment) -> None:
    readable.begin_incarnation(WRITER.slot)
    readable.begin_incarnation(COORDINATOR.slot)
    readable.set_state(COORDINATOR.slot, WORKER_STOPPED)

    assert {process["role"]: process["state"] for process in shown_of(readable)["processes"]} == {
        "supervisor": "running", "writer": "starting", "coordinator": "stopped"}


@pytest.mark.parametrize(("state", "said"), [
    ({}, "none"), ({"refusal": REFUSAL_DISK_FULL}, "disk full"),
    ({"refusal": REFUSAL_WRITE_FAILED, "queue_error": 5}, "write failed"),
    ({"queue_error": 28}, "queues failed"),
    ({"refusal": REFUSAL_DISK_FULL, "unreadable": 1}, "dispatcher behind"),
    ({"refusal": REFUSAL_DISK_FULL, "unreadable": 1, "elsewhere": 1}, "store moved")])
def test_why_writes_are_refused_is_said_in_words(state: dict[str, int], said: str) -> None:
    none = {"refusal": REFUSAL_NONE, "queue_error": 0, "unreadable": 0, "elsewhere": 0}
    assert refusal(none | state) == said


def test_a_broker_says_how_long_its_coordinators_longest_turn_was(tmp_path: Path) -> None:
    with mqcore_up(tmp_path) as broker:
        deadline = time.monotonic() + 20
        while True:
            done = status("--json")
            runs = [run for run in json.loads(done.stdout).values()
                    if run["processes"][0]["pid"] == broker.pid]
            if runs and runs[0]["coordinator"]["longest_turn_us"] > 0:
                break
            assert time.monotonic() < deadline, done.stdout
