"""`mqcore status` beside runs that it cannot read."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import posix_ipc
import pytest

from mqcore.layout import numbers
from mqcore.shm import memory
from mqcore.shm.segment import Segment

NAME = f"/mqcore-test-status-{os.getpid()}"
OWN = f"/mqcore-test-own-{os.getpid()}"
SMALL = {"run_id": 9, "serving_count": 1, "segment_size": 65536, "message_bytes_max": 4096,
         "topics": 64, "groups": 64, "subscriptions": 64, "queues": 64}
VERSION_AT = 8
NEXT = (numbers()["SHM_LAYOUT_VERSION"] + 1).to_bytes(4, "little")


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
