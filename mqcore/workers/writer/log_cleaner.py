"""
The writer process's second thread: deletes expired commit log segments and watches the disk.

Once in store.clean_interval_ms it looks how full the disk is; store.md 6.6 says what follows. When
it is too full, it looks more often: writes shall continue soon after somebody has made room. The
first deletions wait for six intervals (a minute), as in 4.9.8, unless somebody asks for them.
"""
from __future__ import annotations

import logging
import threading
import time

from mqcore.broker.settings.model import Settings, StoreSettings
from mqcore.shm.retention import LogWords
from mqcore.shm.segment import Segment
from mqcore.store.log.retention import FILES_AT_ONCE, HOUR_MS, LogCleaner, Policy, Reason
from mqcore.workers.process.layout import StoreFiles
from mqcore.workers.writer.kept_clock import KeptClock

FIRST_LOOK_S = 1.0               # at the disk
FULL_LOOK_S = 0.25               # ... while it is too full: writes go on soon after there is room
FIRST_PASS_INTERVALS = 6
MANUAL_PASSES = 20               # that one request (329) is good for

log = logging.getLogger("mqcore.writer")


def policy_of(store: StoreSettings) -> Policy:
    """The settings that say when files go."""
    return Policy(
        delete_when_hours=frozenset(store.delete_when_hours),
        reserved_ms=store.reserved_hours * HOUR_MS,
        used_max_percent=store.disk_used_max_percent,
        clean_percent=store.disk_clean_percent,
        clean_enable=store.disk_clean_enable,
        refuse_percent=store.disk_refuse_percent,
    )


class LogCleanerThread:
    """`start` it when the writer runs, `stop` it before the writer ends."""

    def __init__(self, settings: Settings, segment: Segment, files: StoreFiles) -> None:
        store = settings.store
        self._words = LogWords(segment)
        self._cleaner = LogCleaner(
            settings.log_folders, store.segment_size_bytes, policy_of(store), self._words,
            other_folders=[files.queues])
        self._clock = KeptClock(segment, files.clock)
        self._store = store
        self._changed = threading.Event()      # the settings have, or it is time to stop
        self._stopping = threading.Event()
        self._deletions_seen = self._words.deletions_asked
        self._manual_passes = 0
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="log cleaner")

    def start(self) -> None:
        self._thread.start()

    def reconfigure(self, store: StoreSettings) -> None:
        """Other settings from now on; it looks at the disk at once."""
        self._store = store
        self._changed.set()

    def stop(self) -> None:
        self._stopping.set()
        self._changed.set()
        self._thread.join()
        self._clock.save(last=True)

    def _run(self) -> None:
        began = time.monotonic()
        next_pass = began + min(FIRST_LOOK_S, self._interval_s)
        while True:
            if self._changed.wait(self._wait_s(next_pass)):
                self._changed.clear()
                self._cleaner.policy = policy_of(self._store)
                next_pass = min(next_pass, time.monotonic() + self._interval_s)
            if self._stopping.is_set():
                return
            try:
                self._look_at_disk()
                if time.monotonic() < next_pass:
                    continue
                next_pass = time.monotonic() + self._interval_s
                self._clock.save()
                manual = self._asked()
                if manual or time.monotonic() >= began + FIRST_PASS_INTERVALS * self._interval_s:
                    self._delete(manual)
            except OSError as error:
                log.error("expired commit log files cannot be deleted: %s", error)

    @property
    def _interval_s(self) -> float:
        return self._store.clean_interval_ms / 1000

    def _wait_s(self, next_pass: float) -> float:
        """Until the next pass; while writes are refused the disk is looked at more often."""
        wait_s = max(next_pass - time.monotonic(), 0.0)
        return min(wait_s, FULL_LOOK_S) if self._words.disk_full_percent else wait_s

    def _look_at_disk(self) -> None:
        percent, before = self._cleaner.disk_full_percent(), self._words.disk_full_percent
        self._words.set_disk_full(percent)
        if percent and not before:
            log.error("writes are refused: the disk is %d %% full", percent)
        elif before and not percent:
            log.warning("writes are taken again: the disk is no longer too full")

    def _asked(self) -> bool:
        asked = self._words.deletions_asked
        if asked != self._deletions_seen:
            self._deletions_seen = asked
            self._manual_passes = MANUAL_PASSES
        self._manual_passes -= self._manual_passes > 0
        return self._manual_passes > 0

    def _delete(self, manual: bool) -> None:
        reason = self._cleaner.reason(time.time_ns() // 1_000_000, manual=manual)   # by the hour
        if reason is None or not reason.any_age:
            self._warned = False               # the next time that a disk is so full is another one
        if reason is None:
            return
        for _ in range(FILES_AT_ONCE):
            if not self._delete_one(reason) or self._stopping.wait(
                    self._store.clean_pause_ms / 1000):
                return

    def _delete_one(self, reason: Reason) -> bool:
        young = self._cleaner.young
        path = self._cleaner.delete_oldest(
            lambda file_ms: self._clock.passed_ms(file_ms, self._cleaner.policy.reserved_ms),
            reason)
        if self._cleaner.young > young and not self._warned:
            self._warned = True
            log.warning("messages are deleted before store.reserved_hours are over, from commit "
                        "log segment %s on: %s", path and path.name, reason.text)
        if path is not None:
            log.info("commit log segment %s is deleted: %s", path.name, reason.text)
        return path is not None
