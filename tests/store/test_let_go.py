"""Services that are let go of leave no open file and no bell behind."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.store.harness import Run


def open_files() -> set[str]:
    """Numbers of this process's descriptors, that of the listing aside."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        found.add(number)
    return found


@pytest.mark.parametrize("mode", ["async", "sync", "transient-pool"])
def test_writer_and_dispatcher_close_what_they_opened(tmp_path: Path, mode: str) -> None:
    run = Run(tmp_path / "store")
    before = open_files()
    loop, probe = run.writer(mode, 0), run.probe()
    for number in range(20):
        assert probe.send("topic", number % 4, [b"x" * 8000], opaque=number)
        loop.run(0)
    loop.finish()
    dispatcher = run.dispatcher()
    dispatcher.run(1000)
    assert open_files() - before                 # log, queues, index, epolls, bells
    del loop, dispatcher
    assert open_files() <= before


def test_a_writer_that_cannot_start_leaves_nothing_open(tmp_path: Path) -> None:
    run = Run(tmp_path / "store")
    run.log_folder.rmdir()
    before = open_files()
    with pytest.raises(OSError, match="commit log cannot be opened"):
        run.writer("async", 100)
    assert open_files() <= before
