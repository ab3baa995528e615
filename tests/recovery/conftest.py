"""Small stores of ours at rest, as after a clean stop or a crash; and ways to break one."""
from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqcore.store.index import files as index_files
from mqcore.store.recovery import queue_ends
from mqcore.store.recovery.compare import queue_ends as ends_of
from mqcore.store.recovery.queue_ends import QueueEnds
from mqcore.store.recovery.start import Recovered
from tests.store.harness import Run

FILE_ENTRIES = 40
QUEUES = 3
MESSAGES = 651                  # the last file of each queue is neither empty nor full
TOPIC = "rebuilt"
SIZES = {"segment_size": 16384, "file_entries": FILE_ENTRIES, "index_slots": 50,
         "index_entries": 101}


@dataclass
class Store:
    """A store at rest: MESSAGES in QUEUES queues of TOPIC, each with a key."""

    root: Path
    end: int

    @property
    def ends(self) -> Path:
        return self.root / "config" / queue_ends.NAME

    def queue(self, number: int) -> Path:
        return self.root / "consumequeue" / TOPIC / str(number)

    def files(self, number: int) -> list[Path]:
        return sorted(self.queue(number).iterdir())

    def content(self) -> dict[str, bytes]:
        """Every queue file by name."""
        return {str(path.relative_to(self.root)): path.read_bytes()
                for path in sorted(self.root.glob("consumequeue/*/*/*"))}

    def start(self, *, clean: bool = True, ends: QueueEnds | None = None, **more: int,
              ) -> tuple[Run, Recovered]:
        """A start's recovery, and the dispatch of what it says."""
        run = Run(self.root, **SIZES)
        found = run.recover(clean=clean, ends=ends, **more)
        run.segment.publish_for_test(found.end)
        run.dispatch_all(found.end, index_enabled=False)
        return run, found

    def changed(self, path: Path, position: int, content: bytes) -> None:
        """Other bytes in a file, which says so by its time."""
        with path.open("r+b") as file:
            file.seek(position)
            file.write(content)
        later = time.time_ns() + 1_000_000_000
        os.utime(path, ns=(later, later))


def send(run: Run, end: int, count: int, queues: int = QUEUES) -> int:
    """Append messages; the log's end."""
    loop, probe = run.writer("async", end), run.probe()
    for number in range(count):
        assert probe.send(TOPIC, number % queues, [f"body {number}".encode()],
                          properties=f"KEYS\x01key{number}".encode(), opaque=number)
        loop.run(1000)
        probe.take()
    return int(run.segment.log_state()["published"])


def stopped_store(root: Path) -> Store:
    run = Run(root, **SIZES)
    end = send(run, 0, MESSAGES)
    run.dispatch_all(end)
    store = Store(root, end)
    queue_ends.write(store.ends, ends_of(run.segment, index_files.ends(run.index_folder)),
                     time.time_ns())
    return store


@pytest.fixture(scope="session")
def first_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return stopped_store(tmp_path_factory.mktemp("recovery") / "store")


@pytest.fixture
def store(first_store: Store, tmp_path: Path) -> Store:
    """A fresh copy, with its times."""
    return Store(shutil.copytree(first_store.root, tmp_path / "store"), first_store.end)

