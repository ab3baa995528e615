"""The thread that reads ahead, by itself: J1 to J3 of serving/cold.pxd."""
from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.net.probes.cold_probe import ColdProbe
from tests.support.waiting import WAIT_S, wait_until


class Reader:
    """The thread and its bell; `stop` makes it wait at a pipe, `resume` lets it continue."""

    def __init__(self, folder: Path) -> None:
        self._pipe = folder / "pipe"
        os.mkfifo(self._pipe)
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.probe = ColdProbe(self.bell)
        self._waits = False

    def stop(self) -> int:
        """The job's number."""
        self._waits = True
        return self.probe.ask(bytes(self._pipe), 1)

    def resume(self) -> None:
        """It opens the pipe, of which it cannot read: the job is done."""
        if self._waits:
            self._waits = False
            os.close(os.open(self._pipe, os.O_WRONLY))

    def rung(self) -> bool:
        return bool(select.select([self.bell], [], [], WAIT_S)[0])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.resume()
    del made.probe
    os.close(made.bell)


def test_a_file_that_was_deleted_since_it_was_asked_for_is_nothing_to_read(        # J1
    reader: Reader, tmp_path: Path
) -> None:
    """Else it would read and close another file: here standard input."""
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 10_000)
    standard_input = os.dup(0)
    try:
        reader.stop()
        assert reader.probe.ask(bytes(path), 10_000) == 2
        path.unlink()
        reader.resume()
        wait_until(lambda: reader.probe.finished == 2, "both jobs are done")
        assert os.path.sameopenfile(0, standard_input)
    finally:
        os.dup2(standard_input, 0)
        os.close(standard_input)


def test_256_jobs_wait_and_a_further_one_is_refused(reader: Reader, tmp_path: Path) -> None:  # J2
    path = bytes(tmp_path / "none")
    assert reader.stop() == 1
    assert [reader.probe.ask(path, 1) for _ in range(255)] == list(range(2, 257))
    assert reader.probe.ask(path, 1) == 0
    assert reader.probe.finished == 0
    reader.resume()
    wait_until(lambda: reader.probe.finished == 256, "all 256 are done")
    assert reader.probe.ask(path, 1) == 257


def test_the_bell_rings_after_each_job(reader: Reader, tmp_path: Path) -> None:      # J3
    for number in range(1, 4):
        assert reader.probe.ask(bytes(tmp_path / "none"), 1) == number
        assert reader.rung()
        assert os.eventfd_read(reader.bell) == 1
        assert reader.probe.finished == number
