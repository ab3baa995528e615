"""A store, its writer, its dispatcher and its scheduler in one process, each turned by hand."""
from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqcore.layout import WORKER_RUNNING
from mqcore.participants import SCHEDULER, WRITER
from mqcore.shm.delays import delay_offsets
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.store.schedule.loop import ScheduleLoop
from mqcore.wire.properties import encode_properties
from tests.store.harness import Run

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TURN_MS = 20_000                 # a turn ends when nothing is waiting; this only bounds a bug
TURNS_MAX = 200
BACKOFF_MS = 101
DELAYS_MS = (1_000, 5_000, 60_000)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Delivered:
    """A record that is not of the schedule topic."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    record: dict[str, Any]


class Desk:
    """
    One run of a broker with delay levels DELAYS_MS, or others.

    The clocks are the test's: `at` is the wall clock and only moves when the test says so; records
    are stamped by the real one.
    """

    def __init__(self, root: Path, *, delays_ms: tuple[int, ...] = DELAYS_MS, mode: str = "async",
                 load: bool = True, **sizes: Any) -> None:
        self.root, self.delays_ms, self.mode, self.sizes = root, delays_ms, mode, sizes
        self.steady_ms = 0
        self.begin(load=load)

    def begin(self, *, load: bool = True) -> None:
        """A run begins over what is in the folder; load: nothing counts as delivered."""
        self.run = Run(self.root, **self.sizes)
        found = self.run.recover(clean=False)
        self.writer = self.run.writer(self.mode, found.end)
        self.run.segment.set_state(WRITER.slot, WORKER_RUNNING)
        self.dispatcher = self.run.dispatcher(delay_levels_ms=self.delays_ms)
        assert self.dispatcher.run(TURN_MS) == 0, self.dispatcher.failure()
        self.probe = AppendProbe(self.run.segment)
        self.scheduler = self.new_scheduler(begin=load)

    def new_scheduler(self, *, begin: bool = True) -> ScheduleLoop:
        """A scheduler's start; begin: with exact offsets, if it is the run's first."""
        self.run.segment.begin_incarnation(SCHEDULER.slot)
        loop = ScheduleLoop(
            self.run.segment, os.fsencode(self.run.log_folder), os.fsencode(self.run.queue_folder),
            file_entries=self.run.file_entries, delays_ms=self.delays_ms,
            store_root=os.fsencode(self.root))
        if begin and not loop.known:
            loop.load({}, -1)
        return loop

    # -- what others do ----------------------------------------------------------------------------

    def delay(self, level: int, body: bytes, *, topic: str = "Orders", queue_id: int = 0,
              properties: dict[str, str] | None = None, sys_flag: int = 0,
              born_ms: int = 1) -> None:
        """Store a delayed message as the serving processes do."""
        raw = encode_properties({"DELAY": str(level), "REAL_TOPIC": topic,
                                 "REAL_QID": str(queue_id)} if properties is None else properties)
        assert self.probe.send(SCHEDULE_TOPIC, level - 1, [body], opaque=1, sys_flag=sys_flag,
                               properties=raw.encode(), born_ms=born_ms)
        self.store()

    def at_time(self, due_ms: int, body: bytes, *, topic: str = "Orders", queue_id: int = 0,
                properties: dict[str, str] | None = None, unique: str = "") -> None:
        """Store a message with a time of delivery as the serving processes do."""
        raw = encode_properties({
            **({"UNIQ_KEY": unique} if unique else {}), "TIMER_DELIVER_MS": str(due_ms),
            "TIMER_OUT_MS": str((due_ms - 1) // 1000 * 1000), "REAL_TOPIC": topic,
            "REAL_QID": str(queue_id)} if properties is None else properties)
        assert self.probe.send(TIMER_TOPIC, 0, [body], opaque=1, properties=raw.encode(), born_ms=1)
        self.store()

    def recall(self, due_ms: int, unique: str, *, topic: str = "Orders") -> None:
        """Take a message with that time and unique key back."""
        self.at_time(due_ms, b"0", properties={
            "TAGS": "_RECALL_TAG_", "TIMER_DEL_UNIQKEY": f"{topic}+{unique}",
            "TIMER_OUT_MS": str((due_ms - 1) // 1000 * 1000), "REAL_TOPIC": topic,
            "REAL_QID": "0"})

    def store(self) -> None:
        """The writer and the dispatcher do what there is to do."""
        self.writer.run(TURN_MS)
        self.probe.take()
        assert self.dispatcher.run(TURN_MS) == 0, self.dispatcher.failure()

    # -- the scheduler -----------------------------------------------------------------------------

    def turn(self, at: int) -> int:
        """One turn at wall clock `at`; when it wants the next one, -1: when it is rung."""
        self.steady_ms += 1
        wake_ms: int = self.scheduler.turn(at, self.steady_ms)[1]
        return wake_ms

    def settle(self, at: int) -> None:
        """Turns at `at`, with the writer's between them, until nothing more happens."""
        idle = 0
        for _ in range(TURNS_MAX):
            self.steady_ms += 1
            done, _ = self.scheduler.turn(at, self.steady_ms)
            self.store()
            idle = 0 if done else idle + 1
            if idle == 2:                  # the first may have waited for what the store did then
                return
        raise AssertionError(f"still at work after {TURNS_MAX} turns")

    def back_off(self) -> None:
        """The time after a refusal passes."""
        self.steady_ms += BACKOFF_MS

    # -- what is there -----------------------------------------------------------------------------

    def entry(self, level: int, offset: int) -> tuple[int, int, int]:
        """(log position, size, delivery time) of a delayed message's entry."""
        position, size, due_ms = self.run.entries(SCHEDULE_TOPIC, level - 1, offset, offset + 1)[0]
        return position, size, due_ms

    def due(self, level: int, offset: int) -> int:
        return self.entry(level, offset)[2]

    def offsets(self) -> dict[int, int]:
        """Level -> the next to be delivered; levels at 0 left out."""
        found = delay_offsets(self.run.segment)
        assert found is not None
        return {level: offset for level, offset in found.items() if offset}

    def records(self) -> list[dict[str, Any]]:
        end = self.run.segment.log_state()["published"]
        return [record for record in self.run.records(end) if not record.get("blank")]

    def delivered(self) -> list[Delivered]:
        """In the log's order."""
        return [Delivered(r["topic"], r["queueId"], r["body"], r["properties"], r)
                for r in self.records() if r["topic"] not in (SCHEDULE_TOPIC, TIMER_TOPIC)]

    def bodies(self) -> list[bytes]:
        return [one.body for one in self.delivered()]
