"""Slow requests of a broker of this machine: where each millisecond went (mqcore/shm/trace.pxd)."""
from __future__ import annotations

import contextlib
import heapq
import time
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import posix_ipc

from mqcore.admin.shell.exits import Failure
from mqcore.admin.shell.units import iso_of
from mqcore.admin.status import PREFIX, describe, process_rows
from mqcore.layout import TraceKind
from mqcore.shm.latencies import Latencies, summaries, summary_line
from mqcore.shm.segment import LayoutError, Segment, stale_segments
from mqcore.shm.tables import QueueTable
from mqcore.shm.trace import TraceReader
from mqcore.thread_times import stat_words, threads_ns

LOOK_S = 0.01                          # between two looks
RENEWED_S = 2.0                        # a trace whose tracer died ends after it
TURNS_KEPT = 50_000
SAMPLES_KEPT = 6_000
WRITER, DISPATCHER = "writer", "dispatcher"
MINOR_FAULTS, MAJOR_FAULTS = 7, 9      # of /proc/PID/stat, behind the name
UNKNOWN = "not known: told too late"


class TraceRow(NamedTuple):
    """An entry of a ring; at_us is steady."""

    kind: int
    detail: int
    start: int
    end: int
    queue: int
    at_us: tuple[int, int, int, int]


class Step(NamedTuple):
    """A part of a request's time; it ended at a steady time."""

    process: str
    what: str
    end_us: int


class Turns:
    """The last turns of one process, each with the range of the log that it moved."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._turns: list[TraceRow] = []

    def add(self, turn: TraceRow) -> None:
        self._ends.append(turn.end)
        self._turns.append(turn)
        if len(self._ends) > 2 * TURNS_KEPT:
            del self._ends[:TURNS_KEPT], self._turns[:TURNS_KEPT]

    def of(self, position: int) -> TraceRow | None:
        """The turn that a position belongs to."""
        at = bisect_right(self._ends, position)
        if at < len(self._turns) and self._turns[at].start <= position:
            return self._turns[at]
        return None


@dataclass
class TracedTurns:
    """The turns of all processes."""

    appended: Turns = field(default_factory=Turns)
    dispatched: Turns = field(default_factory=Turns)
    # by serving process and the time when a turn began: when it had handed on what it read
    handed_us: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, process: str, entry: TraceRow) -> bool:
        """Takes a turn; False: it is a request that was slow."""
        if entry.kind == TraceKind.TRACE_APPENDED:
            self.appended.add(entry)
        elif entry.kind == TraceKind.TRACE_DISPATCHED:
            self.dispatched.add(entry)
        elif entry.kind == TraceKind.TRACE_TURN:
            self.handed_us[process, entry.at_us[0]] = entry.at_us[1]
            if len(self.handed_us) > TURNS_KEPT:
                del self.handed_us[next(iter(self.handed_us))]
        else:
            return False
        return True

    def steps(self, process: str, entry: TraceRow) -> tuple[int, list[Step]]:
        """When a request of a serving process began, and its steps."""
        if entry.kind == TraceKind.TRACE_SEND:
            return self._send(process, entry)
        if entry.kind == TraceKind.TRACE_HELD:
            return self._held(process, entry)
        return entry.at_us[0], [
            Step(process, "waited for the disk, or for its turn", entry.at_us[1]),
            *_answer(process, entry)]

    def _send(self, process: str, entry: TraceRow) -> tuple[int, list[Step]]:
        handed_us = self.handed_us.get((process, entry.at_us[0]))
        steps = [] if handed_us is None else [Step(process, "read, encoded", handed_us)]
        turn = self.appended.of(entry.start)
        if turn is None:
            steps.append(Step(WRITER, UNKNOWN, entry.at_us[1]))
        else:
            steps += [Step(WRITER, "waited in the ring of appends", turn.at_us[0]), *_append(turn)]
        return entry.at_us[0], [
            *steps, Step(process, "result waited in its ring", entry.at_us[1]),
            *_answer(process, entry)]

    def _held(self, process: str, entry: TraceRow) -> tuple[int, list[Step]]:
        began_us, steps = entry.at_us[0], []
        turn = self.appended.of(entry.start)
        if turn is not None:
            began_us, steps = turn.at_us[0], _append(turn)
        turn = self.dispatched.of(entry.start)
        if turn is None:
            steps.append(Step(DISPATCHER, UNKNOWN, entry.at_us[1]))
        else:
            steps += [Step(DISPATCHER, "waited for the dispatcher", turn.at_us[0]),
                      Step(DISPATCHER, "made readable", turn.at_us[1])]
        return began_us, [*steps, Step(process, "arrival waited in its ring", entry.at_us[1]),
                          *_answer(process, entry)]


def _append(turn: TraceRow) -> list[Step]:
    steps = [Step(WRITER, "got its place in the log", turn.at_us[1]),
             Step(WRITER, "written", turn.at_us[2])]
    return steps + [Step(WRITER, "synced to the disk", turn.at_us[3])] * (turn.at_us[3] > 0)


def _answer(process: str, entry: TraceRow) -> list[Step]:
    return [Step(process, "answered", entry.at_us[2]), Step(process, "sent", entry.at_us[3])]


# -- states of processes meanwhile -----------------------------------------------------------------

class State(NamedTuple):
    """Of a process's main thread so far."""

    processor_ns: int
    waited_ns: int                     # for a processor
    faults: int
    disk_faults: int


def look_at(pid: int) -> State:
    """Raises OSError when it has ended, KeyError where the kernel does not tell."""
    processor_ns, waited_ns = threads_ns(pid)[str(pid)]
    words = stat_words(pid)
    return State(processor_ns, waited_ns, int(words[MINOR_FAULTS]), int(words[MAJOR_FAULTS]))


class Samples:
    """States of processes, from time to time."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._samples: deque[tuple[int, dict[str, State]]] = deque(maxlen=SAMPLES_KEPT)

    def take(self) -> None:
        states = {}
        for process, pid in self._pids.items():
            with contextlib.suppress(OSError, KeyError):
                states[process] = look_at(pid)
        self._samples.append((steady_us(), states))

    def around(self, from_us: int, to_us: int, processes: set[str]) -> dict[str, Any]:
        """Between the last sample before a time and the first one after another."""
        before = after = None
        for at_us, states in reversed(self._samples):
            if at_us >= to_us:
                after = at_us, states
            if at_us <= from_us:
                before = at_us, states
                break
        if before is None or after is None:
            return {}
        return {"milliseconds": (after[0] - before[0]) / 1000, "processes": {
            name: {"onProcessorMs": (now.processor_ns - then.processor_ns) / 1e6,
                   "waitedForProcessorMs": (now.waited_ns - then.waited_ns) / 1e6,
                   "pageFaults": now.faults - then.faults,
                   "diskPageFaults": now.disk_faults - then.disk_faults}
            for name in sorted(processes) if (now := after[1].get(name)) is not None
            and (then := before[1].get(name)) is not None}}


def steady_us() -> int:
    return time.monotonic_ns() // 1000


# -- a trace ---------------------------------------------------------------------------------------

WORDS = {TraceKind.TRACE_SEND: "send", TraceKind.TRACE_PULL: "pull", TraceKind.TRACE_HELD: "held"}


class SlowTrace:
    """
    A trace of one run; over_us: from what time on a request is slow; most: how many of the slowest
    are kept. Raises Failure.
    """

    def __init__(self, name: str, over_us: int, most: int) -> None:
        supervisor = int(name.rpartition("-")[2])
        try:
            segment = Segment.attach(name)
            self._reader = TraceReader(segment)
        except posix_ipc.ExistentialError:
            raise Failure(f"the broker {name.lstrip('/')} has just ended") from None
        except BlockingIOError as error:
            raise Failure(str(error)) from None
        except OSError as error:
            raise Failure(f"no room in shared memory for a trace: {error}") from None
        self._queues = QueueTable(segment)
        self._supervisor = Path("/proc", str(supervisor))
        self._samples = Samples({
            one["role"]: one["pid"] for one in process_rows(segment, supervisor, 0)
            if one["role"] in self._reader.names})
        self._over_us, self._most = over_us, most
        self._traced = TracedTurns()
        self._pending: list[tuple[str, TraceRow]] = []
        self._slowest: list[tuple[int, int, dict[str, Any]]] = []
        self._wall_s = time.time() - steady_us() / 1e6
        self._dropped = self._reader.dropped()
        self._times = Latencies(segment)
        self._before = self._times.totals()
        self.count = 0

    def run(self, seconds: float) -> None:
        """Trace for so long, or until the broker ends."""
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end and self._supervisor.exists():
                self._reader.renew(self._over_us, int(RENEWED_S * 1e6))
                self._samples.take()
                self._look()
                time.sleep(LOOK_S)
        finally:
            self._reader.renew(0, 0)
            self._samples.take()
            self._look()               # what was told so far, then what waited for it
            self._look()

    def _look(self) -> None:
        """Requests are put together one look later: then all of their turns are told."""
        pending, self._pending = self._pending, []
        for number, process in enumerate(self._reader.names):
            for told in self._reader.read(number):
                entry = TraceRow(*told[:5], told[5:])
                if not self._traced.add(process, entry):
                    self._pending.append((process, entry))
        for process, entry in pending:
            self._note(process, entry)

    def _note(self, process: str, entry: TraceRow) -> None:
        began_us, steps = self._traced.steps(process, entry)
        took_us = steps[-1].end_us - began_us
        if took_us < self._over_us:    # store times are milliseconds: it was not that slow
            return
        self.count += 1
        if len(self._slowest) == self._most and took_us <= self._slowest[0][0]:
            return
        request = {"kind": WORDS[TraceKind(entry.kind)], **self._place(entry),
                   "position": entry.start, "at": iso_of(self._wall_s + began_us / 1e6),
                   "milliseconds": took_us / 1000, "steps": _lengths(began_us, steps),
                   "around": self._samples.around(
                       began_us, steps[-1].end_us, {step.process for step in steps})}
        heapq.heappush(self._slowest, (took_us, self.count, request))
        if len(self._slowest) > self._most:
            heapq.heappop(self._slowest)

    def _place(self, entry: TraceRow) -> dict[str, Any]:
        if entry.kind == TraceKind.TRACE_SEND:
            return {"topic": None, "queue": entry.detail, "offset": entry.end, "messages": 1}
        topic, queue, _, _ = self._queues.all()[entry.queue]
        return {"topic": topic, "queue": queue, "offset": None, "messages": entry.detail}

    def document(self) -> dict[str, Any]:
        """The slowest requests first."""
        times = {name: now.since(self._before[name]) for name, now in self._times.totals().items()}
        return {"slow": self.count, "latencies": summaries(times),
                "lost": self._reader.lost + self._reader.dropped() - self._dropped,
                "requests": [one for _, _, one in sorted(self._slowest, reverse=True)]}


def _lengths(began_us: int, steps: list[Step]) -> list[dict[str, Any]]:
    """Turns overlap a little: no step ends before the one before, or after the request."""
    rows, at_us = [], began_us
    for step in steps:
        end_us = min(max(step.end_us, at_us), steps[-1].end_us)
        rows.append({"process": step.process, "step": step.what,
                     "milliseconds": (end_us - at_us) / 1000})
        at_us = end_us
    return rows


def the_run(wanted: str | None) -> str:
    """The name of the one broker of this machine, or of the wanted one. Raises Failure."""
    names, unreadable = [], ""
    for name in stale_segments(PREFIX):
        try:
            if describe(name) is not None:
                names.append(name)
        except PermissionError:
            unreadable = ": one of another user is there, whose shared memory is not readable"
        except LayoutError:
            unreadable = ": one of another version of mqcore is there"
        except (posix_ipc.ExistentialError, OSError):       # it ended meanwhile
            continue
    found = [name for name in names if wanted in (None, name.lstrip("/"))]
    if len(found) == 1:
        return found[0]
    if names:
        known = ", ".join(name.lstrip("/") for name in names)
        raise Failure(f"--run: expected one of {known}")
    raise Failure(f"no broker runs on this machine{unreadable}")


def lines(document: dict[str, Any]) -> list[str]:
    """The document for people."""
    found = []
    for one in document["requests"]:
        place = f"queue {one['queue']}" + (
            f" of {one['topic']}" if one["topic"] is not None else f", offset {one['offset']}")
        found.append(f"{one['milliseconds']:.1f} ms  {one['kind']}, {place}, position "
                     f"{one['position']}, at {one['at']}")
        found += [f"  {step['milliseconds']:9.3f} ms  {step['process']:<16} {step['step']}"
                  for step in one["steps"]]
        around = one["around"]
        found += [f"  in {around['milliseconds']:.0f} ms around it {name}: "
                  f"{state['onProcessorMs']:.1f} ms on a processor, "
                  f"{state['waitedForProcessorMs']:.1f} ms waiting for one, "
                  f"{state['pageFaults']} page faults, {state['diskPageFaults']} by the disk"
                  for name, state in around.get("processes", {}).items()]
    lost = f"; {document['lost']} entries were lost" if document["lost"] else ""
    found += [f"all in this time: {summary_line(name, one)}"
              for name, one in document["latencies"].items()]
    return [*found, f"{document['slow']} slow requests, {len(document['requests'])} shown{lost}"]
