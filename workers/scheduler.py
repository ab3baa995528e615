"""
The scheduler process: delivers delayed messages to their real topics when they are due.

Reads     the queues of SCHEDULE_TOPIC_XXXX and the records that they point at
Owns      how far each delay level is delivered (shared memory), delayOffset.json
Wakes     writer, one record on `appends` for each delivery
Restarts  from shared memory: waits for the results of what its predecessor appended, and searches
          the log for what no result says; a new run does the same from delayOffset.json on
"""
from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from mqcore.broker import config_file
from mqcore.broker.settings import Settings
from mqcore.shm.segment import Segment
from mqcore.store.schedule_loop import ScheduleLoop
from mqcore.workers.layout import SLOT_SCHEDULER, StoreFiles

NOTES = {1: "there is no record where its queue points",
         2: "its properties do not say to which topic and queue it belongs",
         3: "it is a half message",
         4: "it is too large for a segment under its real topic's name"}
LOG_BROKEN = 5
END_MS = 2_000                   # for the last results, before the process ends
LEVEL_MAX = 64

log = logging.getLogger("mqcore.scheduler")


class DelayOffsets:
    """
    delayOffset.json as stock has it (store.md 12.5), with one member more while a run lasts.

    `logPosition`: what was delivered behind it may be missing in the offsets. A stock broker passes
    over it, and so does not write it again; at an orderly end the offsets are exact without it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> tuple[dict[int, int], int]:
        """
        (next offset by level, log position or -1). A file that cannot be used counts as none, as in
        stock; the log says so. Raises OSError.
        """
        try:
            value = config_file.load(self._path) or {}
            found = config_file.entries(self._path, value.get("offsetTable"), _offset)
        except config_file.ConfigFileError as error:
            log.error("delayed messages may be delivered again: %s", error)
            return {}, -1
        position = value.get("logPosition", -1)
        return dict(found.values()), position if isinstance(position, int) else -1

    def save(self, offsets: dict[int, int], position: int | None) -> None:
        """Replace the file; position: None when the offsets are exact. Raises OSError."""
        value: dict[str, object] = {"offsetTable": dict(offsets)}
        if position is not None:
            value["logPosition"] = position
        config_file.save(self._path, value)


def _offset(name: str, value: object) -> tuple[int, int]:
    level = int(name)
    if not 1 <= level <= LEVEL_MAX or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a level from 1 to {LEVEL_MAX} and an offset")
    return level, value


class Scheduler:
    name = "scheduler"
    slot = SLOT_SCHEDULER

    def __init__(self, settings: Settings, segment: Segment) -> None:
        self._settings = settings
        self._segment = segment
        self._file = DelayOffsets(settings.config_dir / "delayOffset.json")
        self._interval_s = settings.broker.delay_offsets_persist_interval_ms / 1000
        self._waiting: tuple[dict[int, int], int, int] | None = None
        self._save_at = 0.0

    def start(self) -> None:
        files = StoreFiles(self._settings.store_root)
        self._loop = ScheduleLoop(
            self._segment, self._settings.log_folders.text(), os.fsencode(files.queues),
            file_entries=self._settings.store.queue_file_entry_count,
            delays_ms=self._settings.delay_levels_ms)
        if not self._loop.known:
            self._loop.load(*self._file.load())
            # before the first delivery: a file without a position would say that it is exact
            self._save(*self._loop.snapshot()[:2])
        self._save_at = time.monotonic() + self._interval_s

    def work(self, turn_ms: int) -> None:
        self._loop.run(turn_ms)
        self._say()
        self._save_when_due()

    def stop(self) -> None:
        """After those who send, before the writer."""
        exact = self._loop.end(END_MS)
        offsets, position, _ = self._loop.snapshot()
        self._say()
        self._save(offsets, None if exact else position)

    def _save_when_due(self) -> None:
        """
        What the file says is on disk before the file is: after a power cut a message is delivered
        again rather than never.
        """
        if self._waiting is None:
            if time.monotonic() < self._save_at:
                return
            self._waiting = self._loop.snapshot()
        offsets, position, end = self._waiting
        if self._loop.flushed >= end:
            self._waiting = None
            self._save_at = time.monotonic() + self._interval_s
            self._save(offsets, position)

    def _save(self, offsets: dict[int, int], position: int | None) -> None:
        try:
            self._file.save(offsets, position)
        except OSError as error:
            log.error("delayOffset.json cannot be written: %s", error)

    def _say(self) -> None:
        notes, more = self._loop.notes()
        for kind, level, offset, position in notes:
            if kind == LOG_BROKEN:
                log.error("the log cannot be read at position %d: messages that were delivered "
                          "behind it may be delivered again", position)
            else:
                log.error("the message at offset %d of delay level %d is not delivered: %s", offset,
                          level, NOTES[kind])
        if more:
            log.error("%d more delayed messages are not delivered", more)
