"""Work of the scheduler: native turns over the delay queues, and delayOffset.json."""
from __future__ import annotations

import logging
import os
import struct
import time
from pathlib import Path
from typing import Any

from mqcore.broker.settings.model import Settings
from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_file import DELAY_FILE
from mqcore.layout import DELAY_LEVEL_MAX
from mqcore.participants import SCHEDULER
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.segment import Segment
from mqcore.shm.tables import QueueTable
from mqcore.store.last_run import boot_id
from mqcore.store.schedule.levels import NoteKind
from mqcore.store.schedule.loop import ScheduleLoop, Snapshot
from mqcore.wire.codes import TIMER_TOPIC
from mqcore.workers.process.layout import StoreFiles
from mqcore.workers.process.output import complain

NOTES: dict[int, str] = {
    NoteKind.NOTE_UNREADABLE: "there is no record where its queue points",
    NoteKind.NOTE_NO_PLACE: "its properties do not say to which topic and queue it belongs",
    NoteKind.NOTE_HALF: "it is a half message",
    NoteKind.NOTE_TOO_LARGE: "it is too large for a segment under its real topic's name"}
END_MS = 2_000                   # for the last results, before the process ends
TIMER_LEVEL = DELAY_LEVEL_MAX + 1   # in notes
TAKING_OVER_LOOK_S = 0.02             # whether who was elected shows all that it began with

log = logging.getLogger("mqcore.scheduler")


class DelayOffsets:
    """
    delayOffset.json as stock has it (store.md 12.5), with three members more.

    While a run lasts, `logPosition`: what was delivered behind it may be missing in the offsets;
    `delivered`: by level, offsets behind one that was refused. At an orderly end the offsets are
    exact without them. `timer`, if messages had a time of delivery: how far they are delivered, and
    of which wheel that is true (timer TM5). A stock broker passes over them, and so does not write
    them again.
    """

    def __init__(self, path: Path, store_root: Path | None = None) -> None:
        """store_root: where the wheel is; None: in the folder that has the file's."""
        self._path = path
        self._wheel = (store_root or path.parent.parent) / "timerwheel"
        self._check = path.with_name("timercheck")
        self.timer: tuple[int, int, bool] | None = None        # the arguments of load_timer
        self._unknown: dict[str, Any] = {}     # members of the file that are not ours

    def load(self) -> tuple[dict[int, int], int, list[tuple[int, int]]]:
        """The arguments of ScheduleLoop.load. Raises ConfigFileError, and OSError."""
        value = config_file.load(self._path) or {}
        self._unknown = config_file.unknown_members(
            self._path, value, ("offsetTable", "logPosition", "delivered", "timer"))
        self.timer = self._timer(value.get("timer"))
        offsets = config_file.entries(self._path, value.get("offsetTable"), _offset)
        ahead = config_file.entries(self._path, value.get("delivered"), _ahead)
        position = value.get("logPosition", -1)
        return (dict(offsets.values()), position if isinstance(position, int) else -1,
                [each for level in ahead.values() for each in level])

    def save(self, known: Snapshot, *, exact: bool) -> None:
        """Replace the file. exact: nothing but the offsets need be known. Raises OSError."""
        value: dict[str, Any] = {"offsetTable": known.offsets}
        if not exact:
            value["logPosition"] = known.position
            ahead: dict[str, list[int]] = {}
            for level, offset in sorted(known.ahead):
                ahead.setdefault(str(level), []).append(offset)
            value["delivered"] = ahead
        if known.timer[0] or self._wheel.exists():
            value["timer"] = {"second": known.timer[0], "queueOffset": known.timer[1],
                              "wheel": self._wheel_now() if known.timer[2] else None,
                              "boot": "" if exact else boot_id()}
        config_file.save(self._path, config_file.merged(value, self._unknown))

    def _timer(self, said: object) -> tuple[int, int, bool] | None:
        """The file's words about the timer, else a stock broker's `timercheck`; None: nothing."""
        if said is None:
            return self._stock_timer()
        if not isinstance(said, dict):
            raise config_file.ConfigFileError(f"{self._path}: timer: expected an object")
        second, offset = said.get("second"), said.get("queueOffset")
        if not (isinstance(second, int) and isinstance(offset, int) and min(second, offset) >= 0):
            raise config_file.ConfigFileError(
                f"{self._path}: timer: expected a second and a queue offset, both 0 or more")
        same = said.get("wheel") == self._wheel_now() is not None
        return second, offset, same and said.get("boot") in ("", boot_id())

    def _stock_timer(self) -> tuple[int, int, bool] | None:
        """
        A stock 5 broker's words: next second in ms, end of its log, and two queue offsets. Ours
        (timer_wheel) are true of what no crash takes: they may be ahead of the log.
        """
        try:
            raw = self._check.read_bytes()
        except FileNotFoundError:
            return None
        if len(raw) < 32 or raw[2048:2064] == raw[:8] + raw[16:24]:
            return None
        read_ms, _, offset, master_offset = struct.unpack_from(">4q", raw)
        return max(read_ms // 1000, 0), max(min(offset, master_offset), 0), False

    def _wheel_now(self) -> list[int] | None:
        """Which file the wheel is: a copy of the store has another."""
        try:
            found = self._wheel.stat()
        except FileNotFoundError:
            return None
        return [found.st_dev, found.st_ino]


def _level(name: str) -> int:
    level = int(name)
    if not 1 <= level <= DELAY_LEVEL_MAX:
        raise ValueError(f"expected a level from 1 to {DELAY_LEVEL_MAX}")
    return level


def _offset(name: str, value: object) -> tuple[int, int]:
    level = _level(name)
    if not isinstance(value, int) or value < 0:
        raise ValueError("expected an offset")
    return level, value


def _ahead(name: str, value: object) -> list[tuple[int, int]]:
    if not isinstance(value, list):
        raise ValueError("expected a list of offsets")
    return [_offset(name, offset) for offset in value]


def begin(loop: ScheduleLoop, file: DelayOffsets, segment: Segment, *, failover: bool) -> bool:
    """
    Tell a loop what the file says. Whether a run begins with it, else the run's shared memory knows
    the levels. Raises ConfigFileError, and OSError.
    """
    offsets, position, ahead = file.load()
    if loop.known:
        loop.resume_timer()
        return False
    if file.timer is not None:
        loop.load_timer(*file.timer[:2], trusted=file.timer[2])
    elif QueueTable(segment).range(TIMER_TOPIC, 0) is not None:
        loop.load_timer(0, 0, trusted=False)
        position = segment.log_state()["first"]            # the log says what was delivered
    if position < 0 and failover:                          # exact when this run began
        position = segment.log_state()["begun" if offsets else "first"]
    loop.load(offsets, position, ahead)
    return True


class Scheduler:
    name = "scheduler"
    slot = SCHEDULER.slot

    def __init__(self, settings: Settings, segment: Segment) -> None:
        self._settings = settings
        self._segment = segment
        self._file = DelayOffsets(settings.config_dir / DELAY_FILE, settings.store_root)
        self._gate = ReplicaPen(segment)
        self._begun = False
        self._waiting: Snapshot | None = None
        self._trusted = False            # by the file: the timer's wheel
        self._save_at = 0.0
        self._timer_error = 0

    def start(self) -> None:
        files = StoreFiles(self._settings.store_root)
        self._loop = ScheduleLoop(
            self._segment, self._settings.log_folders.text(), os.fsencode(files.queues),
            file_entries=self._settings.store.queue_file_entry_count,
            delays_ms=self._settings.delay_levels_ms,
            store_root=os.fsencode(self._settings.store_root))
        if not self._gate.taking_over:
            self._begin()

    def _begin(self) -> None:
        """
        Where all that was delivered can be told by its queue (leadership FO10): a delivery that is
        in the log, and whose delayed message has no entry yet, would be made again. A file that
        cannot be used ends the start.
        """
        try:
            new_run = begin(self._loop, self._file, self._segment,
                            failover=self._settings.failover.enable)
        except (config_file.ConfigFileError, OSError) as error:
            complain(str(error))                 # without the file all would come again
            raise SystemExit(1) from error
        if new_run:
            # before the first delivery: a file without a position would say that it is exact
            self._save(self._loop.snapshot(), exact=False)
        self._save_at = time.monotonic() + self._interval_s
        self._begun = True

    @property
    def _interval_s(self) -> float:
        return self._settings.broker.delay_offsets_persist_interval_ms / 1000

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        self._loop.set_delays(settings.delay_levels_ms)
        self._save_at = min(self._save_at, time.monotonic() + self._interval_s)

    def work(self, turn_ms: int) -> None:
        if not self._begun:
            if self._gate.taking_over:
                time.sleep(TAKING_OVER_LOOK_S)
                return
            self._begin()
        self._loop.run(turn_ms)
        self._say()
        self._save_when_due()

    def stop(self) -> None:
        """After those who send, before the writer."""
        if not self._begun:
            return
        exact = self._loop.end(END_MS)
        self._say()
        self._save(self._loop.snapshot(), exact=exact)

    def _save_when_due(self) -> None:
        """
        What the file says is on disk before the file is: after a power cut a message is delivered
        again rather than never.
        """
        if self._waiting is None:
            known = self._loop.snapshot()
            if time.monotonic() < self._save_at and known.timer[2] == self._trusted:
                return
            self._waiting = known
        if self._loop.flushed >= self._waiting.end:
            known, self._waiting = self._waiting, None
            self._trusted = known.timer[2]
            self._save_at = time.monotonic() + self._interval_s
            self._save(known, exact=False)

    def _save(self, known: Snapshot, *, exact: bool) -> None:
        try:
            self._file.save(known, exact=exact)
        except OSError as error:
            log.error("delayOffset.json cannot be written: %s", error)

    def _say(self) -> None:
        notes, more = self._loop.notes()
        error = self._loop.timer_error
        if error != self._timer_error:
            self._timer_error = error
            if error:
                log.error("the timer's files cannot be written: %s; messages with a time of"
                          " delivery wait", os.strerror(error))
        for kind, level, offset, position in notes:
            if kind == NoteKind.NOTE_LOG_BROKEN:
                log.error("the log cannot be read at position %d: messages that were delivered "
                          "behind it may be delivered again", position)
            elif kind == NoteKind.NOTE_RECALL_LOST:
                log.error("the recall at log position %d does not count: too many messages of one"
                          " second are recalled", position)
            elif level == TIMER_LEVEL:
                log.error("the message with a time of delivery at log position %d is not"
                          " delivered: %s", position, NOTES[kind])
            else:
                log.error("the message at offset %d of delay level %d is not delivered: %s", offset,
                          level, NOTES[kind])
        if more:
            log.error("%d more delayed messages are not delivered", more)
