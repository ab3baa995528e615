"""
Answers for probes: whether all processes turn (/healthz), and whether clients are served (/readyz).

Everything is read from shared memory: the answer needs no other process.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mqcore.broker.settings.model import Settings
from mqcore.http.processes import of_run
from mqcore.layout import WORKER_RUNNING
from mqcore.participants import COORDINATOR, DISPATCHER, SERVING, WRITER
from mqcore.shm.elected import election
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.refused import NONE, refusal
from mqcore.shm.segment import Segment

BEHIND_BYTES_MAX = 64 << 20            # of the log, that no consumer sees yet
SERVES = (WRITER, DISPATCHER, COORDINATOR, SERVING)


@dataclass(frozen=True)
class HealthCheck:
    """One thing that was looked at; detail: what is wrong, or what was seen."""

    name: str
    ok: bool
    detail: str


def alive(segment: Segment, now_ms: int) -> list[HealthCheck]:
    """A check for each process; a start that takes long is no trouble."""
    return [HealthCheck(process.name, not (trouble := process.trouble(now_ms)), trouble or "turns")
            for process in of_run(segment)]


def ready(segment: Segment, settings: Settings, now_ms: int) -> list[HealthCheck]:
    """Whether sends and pulls are taken, and whether clients find the broker."""
    return list(_ready(segment, settings, now_ms))


def _ready(segment: Segment, settings: Settings, now_ms: int) -> Iterator[HealthCheck]:
    not_running = []
    for process in of_run(segment):
        trouble = process.trouble(now_ms)
        if not trouble and process.row in SERVES and process.state != WORKER_RUNNING:
            trouble = "it does not run"
        if trouble:
            not_running.append(f"{process.name}: {trouble}")
    yield HealthCheck("processes", not not_running, "; ".join(not_running) or "all processes turn")

    log = segment.log_state()
    why = refusal(log)
    if settings.is_slave:
        yield HealthCheck("sends", True, "a slave takes none")
    else:
        yield HealthCheck("sends", why == NONE,
                    "taken" if why == NONE else f"refused: {why}")

    behind = max(0, log["published"] - log["dispatched"])
    yield HealthCheck("dispatcher", behind < BEHIND_BYTES_MAX,
                f"{behind} bytes of the log have no queue entries yet"
                + ("" if behind < BEHIND_BYTES_MAX else f", expected less than {BEHIND_BYTES_MAX}"))

    found = election(segment)
    if found and found["role"] == "leads":
        left_ms = found["lease_left_ms"]
        yield HealthCheck("lease", left_ms != 0, f"{left_ms} ms are left")

    servers = settings.broker.namesrv_addrs
    if servers:
        known = FigureSlots(segment).total("registered_namesrvs")
        yield HealthCheck("name servers", known > 0,
                    f"{known} of {len(servers)} took the last registration")
