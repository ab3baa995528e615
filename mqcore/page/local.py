"""
Facts of the broker that serves the page, which need no request: its processes, its checks, its
latencies. Read from shared memory; a page that runs by itself has none.
"""
from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from mqcore.broker.settings.model import Settings
from mqcore.http import health
from mqcore.http.look import Look, Watcher
from mqcore.http.standing import standing
from mqcore.shm.segment import Segment


@dataclass
class Local:
    """One broker of this machine; settings: the present ones."""

    settings: Settings
    segment: Segment
    watcher: Watcher

    @property
    def address(self) -> str:
        """As it registers."""
        return self.settings.advertised_addr

    def checks(self) -> list[dict[str, Any]]:
        """What /readyz says."""
        return [{"name": one.name, "ok": one.ok, "detail": one.detail} for one in health.ready(
            self.segment, self.settings, time.time_ns() // 1_000_000)]

    def disks(self) -> list[dict[str, Any]]:
        """Folders of the store: bytes that are free, share that is used."""
        return [{"folder": folder, "freeBytes": free, "usedShare": round(used, 4)}
                for folder, (free, used) in Look(self.watcher).disks.items()]

    def standing(self) -> dict[str, Any]:
        """Processes, positions of the log, latencies since the start."""
        return standing(self.segment, self.watcher.latencies)
