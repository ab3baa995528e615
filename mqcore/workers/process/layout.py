"""Where the files of a store are."""
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mqcore.store import clock_file
from mqcore.store.paths import RESTARTS_FILE
from mqcore.store.recovery import queue_ends


@dataclass(frozen=True)
class StoreFiles:
    """The paths below a store's root (store.md 1)."""

    root: Path

    @property
    def commit_log(self) -> Path:
        return self.root / "commitlog"

    @property
    def queues(self) -> Path:
        return self.root / "consumequeue"

    @property
    def queue_extensions(self) -> Path:
        return self.root / "consumequeue_ext"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def restarts(self) -> Path:
        return self.root / "config" / RESTARTS_FILE

    @property
    def queue_ends(self) -> Path:
        return self.root / "config" / queue_ends.NAME

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def clock(self) -> Path:
        return self.root / clock_file.NAME

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        return self.root / "lock"


def memory_bytes(ratio_percent: int) -> int:
    """How far behind the log's end a record still counts as in memory (broker.md 6.2)."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * ratio_percent // 100
