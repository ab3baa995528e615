"""`mqcore status`: what the shared memory of running brokers says, or one broker elsewhere."""
from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import posix_ipc

from mqcore.admin.lines import say
from mqcore.broker.requests.check_sender import figures
from mqcore.figures import FIGURES, LATENCIES
from mqcore.layout import WorkerState
from mqcore.participants import COORDINATOR, HA_MASTER, HA_SLAVE, SUPERVISOR, processes
from mqcore.shm.check_ring import transaction_figures
from mqcore.shm.delays import delay_offsets, timer_figures, timer_pending
from mqcore.shm.elected import election, role_of
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.latencies import Latencies, summaries, summary_line
from mqcore.shm.refused import refusal, word
from mqcore.shm.retention import LogWords
from mqcore.shm.segment import LayoutError, Segment, stale_segments
from mqcore.shm.tables import QueueTable
from mqcore.wire.codes import SCHEDULE_TOPIC

PREFIX = "mqcore-"
ROLES = {"master": (HA_MASTER,), "slave": (HA_SLAVE, COORDINATOR),     # who counts what they do
         "middle": (HA_SLAVE, COORDINATOR, HA_MASTER)}
OF_ALL_ROLES = {"role", "overtaken_messages"}


def describe(name: str) -> dict[str, object] | None:
    """One run: its processes, positions and counters; None when its supervisor is gone."""
    supervisor = name.rpartition("-")[2]
    if not supervisor.isdigit() or not Path(f"/proc/{supervisor}").exists():
        return None
    segment = Segment.attach(name)
    now_ms = time.time_ns() // 1_000_000
    log = segment.log_state()
    run: dict[str, dict[str, Any]] = {
        "log": {"first": log["first"], "published": log["published"], "flushed": log["flushed"],
                "dispatch_behind_bytes": log["published"] - log["dispatched"],
                "writes_refused": refusal(log),
                "disk_full_percent": LogWords(segment).disk_full_percent},
        "messages": {},
        "delayed": {"waiting": delayed(segment), "timed": timer_pending(segment)},
        "timed": timer_figures(segment, now_ms),
        "transactions": figures(transaction_figures(segment), now_ms),
        "serving": {},
    }
    for section, shown in FigureSlots(segment).shown().items():
        run.setdefault(section, {}).update(shown)
    run["replication"] = {"role": role_of(segment), **run["replication"]}
    run["failover"] = election(segment)
    run["latencies"] = summaries(Latencies(segment).totals())
    return {"processes": process_rows(segment, int(supervisor), now_ms), **run}


def of_role(values: dict[str, Any]) -> dict[str, Any]:
    """The part of the section `replication` about the broker's role."""
    rows = ROLES.get(values["role"], ())
    keys = {figure.shown.partition(".")[2] for figure in FIGURES if figure.role in rows}
    return {key: value for key, value in values.items() if rows and key in OF_ALL_ROLES | keys}


def process_rows(segment: Segment, supervisor: int, now_ms: int) -> list[dict[str, Any]]:
    """Those that were started at least once."""
    rows = []
    for row, index in processes(segment.serving_count):
        state = segment.slot(row.slot + index)
        if row is SUPERVISOR:
            state = {**state, "pid": supervisor, "state": WorkerState.WORKER_RUNNING}
        if state["state"] == WorkerState.WORKER_ABSENT and not state["incarnation"]:
            continue
        rows.append({
            "role": row.process_name(index), "pid": state["pid"],
            "state": word(WorkerState(state["state"])), "starts": max(state["incarnation"], 1),
            "up_s": max(0, now_ms - state["started_ms"]) // 1000 if state["started_ms"] else None,
        })
    return rows


def delayed(segment: Segment) -> int:
    """How many messages wait for their time, of a delay level or of their own."""
    queues = QueueTable(segment)
    waiting = 0
    for level, offset in (delay_offsets(segment) or {}).items():
        known = queues.range(SCHEDULE_TOPIC, level - 1)
        waiting += max(known[1] - offset, 0) if known is not None else 0
    return waiting + timer_pending(segment)


def explain() -> None:
    """A line for each figure that is shown, and each histogram."""
    for figure in sorted(FIGURES, key=lambda figure: figure.shown):
        if figure.shown:
            unit = "" if figure.unit == "1" else f", in {figure.unit}"
            say(f"{figure.shown:<30} {figure.help}{unit}")
    for latency in LATENCIES:
        say(f"{'latencies.' + latency.name:<30} time {latency.help}")


def of_timer(values: dict[str, Any]) -> dict[str, Any]:
    """Messages that wait for a time of delivery, in a line; --json has topics and hours."""
    delivered = sum(values["lateness"])
    return {"pending": values["pending"], "topics": len(values["topics"]),
            "next_due_s": round(values["nextSecond"] - time.time()),
            "delivered": delivered,
            "late_ms": round(values["lateMillis"] / delivered, 1) if delivered else 0.0,
            "counted": "yes" if values["counted"] else "not yet"}


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@click.option("--explain", "explained", is_flag=True, help="Say what each counter counts instead.")
@click.option("--broker", metavar="HOST[:PORT]",
              help="One broker over the network instead: address, version, store, rates, role.")
def status(as_json: bool, explained: bool, broker: str | None) -> None:
    """
    Show the processes, positions and counters of the brokers that run on this machine.

    With --broker: what a broker anywhere says of itself, signed as the environment or the context
    in use says.
    """
    if explained and broker is not None:
        raise click.UsageError("give --explain or --broker, not both")
    if explained:
        explain()
        return
    if broker is not None:
        from mqcore.admin import remote  # the client, which a broker does not load

        remote.show(broker, as_json=as_json)
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
    if not runs:
        raise click.ClickException("; ".join(strange) or "no broker runs on this machine")
    for line in strange:
        click.echo(line, err=as_json)
    if as_json:
        click.echo(json.dumps(runs, indent=2))
        return
    for name, run in runs.items():
        say(f"broker {name}")
        for process in run["processes"]:              # type: ignore[attr-defined]
            up = "" if process["up_s"] is None else f"  up {process['up_s']} s"
            say(f"  {process['role']:<17} pid {process['pid']:<8} {process['state']:<9}"
                f" started {process['starts']} x{up}")
        for part, values in run.items():
            if part == "access":
                if values["open_to_others"]:          # type: ignore[index]
                    say(f"  {part:<17} other hosts reach it, and nothing asks who they are: "
                        "docs/security.md")
            elif part == "replication":
                if values["role"]:                    # type: ignore[index]
                    say_values(part, of_role(values))     # type: ignore[arg-type]
            elif part == "timed":
                if values["pending"]:                 # type: ignore[index]
                    say_values(part, of_timer(values))    # type: ignore[arg-type]
            elif part == "latencies":
                for of, summary in values.items():        # type: ignore[attr-defined]
                    say(f"  {'latency':<17} {summary_line(of, summary)}")
            elif part != "processes" and values:
                say_values(part, values)              # type: ignore[arg-type]


def say_values(part: str, values: dict[str, Any]) -> None:
    """A line of what a section holds."""
    say(f"  {part:<17} " + "  ".join(f"{key} {value}" for key, value in values.items()))
