"""`mqcore status`: what the shared memory of running brokers says."""
from __future__ import annotations

import json
import time
from pathlib import Path

import click
import posix_ipc

from mqcore.admin.lines import say
from mqcore.broker.requests.transaction_checks import figures
from mqcore.broker.tables.topics import SCHEDULE_TOPIC
from mqcore.shm.check_ring import transaction_figures
from mqcore.shm.delays import delay_offsets
from mqcore.shm.retention import LogWords
from mqcore.shm.segment import LayoutError, Segment, stale_segments
from mqcore.shm.tables import QueueTable

PREFIX = "mqcore-"
STATES = ("absent", "starting", "running", "stopped")
REFUSALS = ("none", "disk full", "flush failed", "write failed", "queues failed")
UNREADABLE = "dispatcher behind"
SLOTS = {0: "supervisor", 1: "writer", 2: "dispatcher", 3: "coordinator", 4: "namesrv",
         5: "scheduler", 6: "transaction-check"}
SLOT_SCHEDULER, SLOT_SERVING = 5, 8


def describe(name: str) -> dict[str, object] | None:
    """One run: its processes, positions and counters; None when its supervisor is gone."""
    supervisor = name.rpartition("-")[2]
    if not supervisor.isdigit() or not Path(f"/proc/{supervisor}").exists():
        return None
    segment = Segment.attach(name)
    now_ms = time.time_ns() // 1_000_000
    processes = []
    slots = {**SLOTS, **{SLOT_SERVING + i: f"pull-serving-{i}"
                         for i in range(segment.serving_count)}}
    for slot, role in slots.items():
        state = segment.slot(slot)
        if slot == 0:
            state = {**state, "pid": int(supervisor), "state": 2}
        if state["state"] == 0 and not state["incarnation"]:
            continue
        processes.append({
            "role": role, "pid": state["pid"], "state": STATES[state["state"]],
            "starts": max(state["incarnation"], 1),
            "up_s": max(0, now_ms - state["started_ms"]) // 1000 if state["started_ms"] else None,
        })
    log = segment.log_state()
    serving = [segment.slot(SLOT_SERVING + i)["figures"] for i in range(segment.serving_count)]
    totals = [sum(column) for column in zip(*serving, strict=True)]
    writer = segment.slot(1)["figures"]
    return {
        "processes": processes,
        "log": {"first": log["first"], "published": log["published"], "flushed": log["flushed"],
                "dispatch_behind_bytes": log["published"] - log["dispatched"],
                "pool_waiting_bytes": writer[5], "flush_timeouts": writer[4],
                "writes_refused": UNREADABLE if log["unreadable"] else REFUSALS[log["refusal"]],
                "disk_full_percent": LogWords(segment).disk_full_percent},
        "messages": {"stored": writer[0], "stored_bytes": writer[1], "pulled": totals[3]},
        "delayed": delayed(segment),
        "transactions": figures(transaction_figures(segment), now_ms),
        "serving": {"connections": totals[0], "held_pulls": totals[4], "pulls": totals[2],
                    "forwarded": totals[5], "closed_for_nonsense": totals[6],
                    "refused_sends": totals[9]},
    }


def delayed(segment: Segment) -> dict[str, int]:
    """What the scheduler has done in this run, and how many messages wait for their time."""
    delivered, skipped, refused = segment.slot(SLOT_SCHEDULER)["figures"][:3]
    queues = QueueTable(segment)
    waiting = 0
    for level, offset in (delay_offsets(segment) or {}).items():
        known = queues.range(SCHEDULE_TOPIC, level - 1)
        waiting += max(known[1] - offset, 0) if known is not None else 0
    return {"waiting": waiting, "delivered": delivered, "skipped": skipped, "refused": refused}


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
def status(as_json: bool) -> None:
    """Show the processes, positions and counters of the brokers that run on this machine."""
    runs = {}
    strange = []
    for name in stale_segments(PREFIX):
        pid = name.rpartition("-")[2]
        try:
            run = describe(name)
        except LayoutError:
            strange.append(f"a broker of another version of mqcore runs as process {pid}: only the "
                           "`mqcore status` of that version can read it")
            continue
        except PermissionError:
            strange.append(f"a broker of another user runs as process {pid}: its figures are not "
                           "readable from here")
            continue
        except posix_ipc.ExistentialError:            # it ended meanwhile
            continue
        if run is not None:
            runs[name.lstrip("/")] = run
    for line in strange:
        click.echo(line, err=as_json)
    if as_json:
        click.echo(json.dumps(runs, indent=2))
        return
    if not runs and not strange:
        raise click.ClickException("no broker runs on this machine")
    for name, run in runs.items():
        say(f"broker {name}")
        for process in run["processes"]:              # type: ignore[attr-defined]
            up = "" if process["up_s"] is None else f"  up {process['up_s']} s"
            say(f"  {process['role']:<16} pid {process['pid']:<8} {process['state']:<9}"
                f" started {process['starts']} x{up}")
        for part in ("log", "messages", "delayed", "transactions", "serving"):
            figures = "  ".join(f"{key} {value}"
                                for key, value in run[part].items())  # type: ignore[attr-defined]
            say(f"  {part:<16} {figures}")
