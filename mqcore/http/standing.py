"""A broker's processes and latencies, of shared memory, as documents for people."""
from __future__ import annotations

import time
from typing import Any

from mqcore.figures import LATENCIES
from mqcore.http.processes import of_run
from mqcore.layout import WorkerState
from mqcore.shm.latencies import EDGES_US, Histogram, Latencies
from mqcore.shm.refused import word
from mqcore.shm.segment import Segment

QUANTILES = (0.5, 0.99, 0.999)


def standing(segment: Segment, latencies: Latencies) -> dict[str, Any]:
    """Processes, positions of the log, and latencies."""
    now_ms = time.time_ns() // 1_000_000
    return {"processes": processes(segment, now_ms), "log": dict(segment.log_state()),
            "latencies": [_latency(one.name, one.help, latencies.total(one.name))
                          for one in LATENCIES]}


def processes(segment: Segment, now_ms: int) -> list[dict[str, Any]]:
    """What `mqcore status` says of processes, with what they use."""
    return [{
        "name": one.name, "pid": one.pid, "state": word(WorkerState(one.state)),
        "starts": one.starts, "beatSeconds": round(one.age_ms(now_ms) / 1000, 1),
        "upSeconds": max(0, now_ms - one.started_ms) // 1000 if one.started_ms else None,
        "cpuSeconds": round(one.cpu_s, 2), "residentBytes": one.resident_bytes,
        "trouble": one.trouble(now_ms) or None,
    } for one in of_run(segment)]


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
