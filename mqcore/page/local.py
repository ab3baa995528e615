"""
Facts of the broker that serves the page, which no request of RocketMQ tells: its processes, its
checks, its latencies. Read from shared memory; a page that runs by itself has none.
"""
from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mqcore.broker.settings.model import Settings
from mqcore.figures import LATENCIES
from mqcore.http import health
from mqcore.http.look import Look, Watcher
from mqcore.layout import WorkerState
from mqcore.shm.latencies import EDGES_US, Histogram
from mqcore.shm.refused import word
from mqcore.shm.segment import Segment

QUANTILES = (0.5, 0.99, 0.999)


@dataclass
class Local:
    """One broker of this machine; settings: the present ones."""

    settings: Settings
    segment: Segment
    watcher: Watcher

    def checks(self) -> list[dict[str, Any]]:
        """What /readyz says."""
        return [{"name": one.name, "ok": one.ok, "detail": one.detail} for one in health.ready(
            self.segment, self.settings, time.time_ns() // 1_000_000)]

    def processes(self) -> list[dict[str, Any]]:
        """What `mqcore status` says of processes, with what they use."""
        look = Look(self.watcher)
        return [{
            "name": one.name, "pid": one.pid, "state": word(WorkerState(one.state)),
            "starts": one.starts, "beatSeconds": round(one.age_ms(look.now_ms) / 1000, 1),
            "upSeconds": max(0, look.now_ms - one.started_ms) // 1000 if one.started_ms else None,
            "cpuSeconds": round(one.cpu_s, 2), "residentBytes": one.resident_bytes,
            "trouble": one.trouble(look.now_ms) or None,
        } for one in look.processes]

    def disks(self) -> list[dict[str, Any]]:
        """Folders of the store: bytes that are free, share that is used."""
        return [{"folder": folder, "freeBytes": free, "usedShare": round(used, 4)}
                for folder, (free, used) in Look(self.watcher).disks.items()]

    def log(self) -> Mapping[str, int]:
        """Positions of the commit log."""
        return self.segment.log_state()

    def latencies(self) -> list[dict[str, Any]]:
        """Each histogram since the start: counts by bucket, quantiles in seconds."""
        return [_latency(one.name, one.help, self.watcher.latencies.total(one.name))
                for one in LATENCIES]


def _latency(name: str, meaning: str, found: Histogram) -> dict[str, Any]:
    last = max((at for at, count in enumerate(found.counts) if count), default=-1)
    return {
        "name": name, "help": meaning, "count": found.count,
        "meanSeconds": found.sum_us / found.count / 1e6 if found.count else None,
        **{f"p{str(share)[2:].ljust(2, '0')}Seconds": found.quantile_us(share) / 1e6
           if found.count else None for share in QUANTILES},
        "buckets": [{"fromSeconds": EDGES_US[at] / 1e6, "count": found.counts[at]}
                    for at in range(last + 1)],
    }
