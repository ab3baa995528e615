"""Fixtures: a disk that hangs when a test says so, in this process or below a whole broker."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path

import pytest

from mqcore.store.probes.io_stall import Stall
from tests.support.mqcore_process import MqcoreProcess, mqcore_up

PAGE = 4096
StallingBroker = Callable[
    [dict[str, object]], contextlib.AbstractContextManager[tuple[MqcoreProcess, Stall]]]

STALLING_BROKER = """
import mmap, sys
from mqcore.store.probes.io_stall import Stall
with open(sys.argv.pop(1), "r+b") as words:
    Stall(mmap.mmap(words.fileno(), 0)).install()
from mqcore.admin.cli import main
main()
"""


@pytest.fixture
def stall() -> Iterator[Stall]:
    """A disk that hangs when told, beneath everything in this process."""
    disk = Stall(mmap(-1, PAGE))
    disk.install()
    yield disk
    disk.syncs(False)
    disk.writes(False)
    disk.reads(False)
    disk.remove()


@pytest.fixture
def stalling_broker(tmp_path: Path) -> StallingBroker:
    """Starts a broker whose disk hangs when the test says so."""

    @contextlib.contextmanager
    def start(settings: dict[str, object]) -> Iterator[tuple[MqcoreProcess, Stall]]:
        words.write_bytes(bytes(PAGE))
        with words.open("r+b") as file:
            disk = Stall(mmap(file.fileno(), 0))
        program = (sys.executable, "-c", STALLING_BROKER, str(words))
        with mqcore_up(tmp_path, settings, program=program) as broker:
            try:
                yield broker, disk
            finally:
                disk.syncs(False)
                disk.writes(False)

    words = tmp_path / "words"
    return start
