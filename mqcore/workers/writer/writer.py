"""Work of the writer: native turns over the rings of appends, and the end of a stop."""
from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from typing import TypedDict

from mqcore.broker.settings.model import Settings, StoreSettings
from mqcore.broker.tables import queue_hints
from mqcore.broker.tables.config_file import ConfigFileError
from mqcore.broker.tables.queue_restarts import RestartFile
from mqcore.layout import Refusal, WorkerState
from mqcore.participants import WRITER, processes
from mqcore.replication.role import Role
from mqcore.shm.retention import QueueLives
from mqcore.shm.segment import Segment
from mqcore.store import checkpoint, last_run
from mqcore.store.files import error_text, unlink
from mqcore.store.index import files as index_files
from mqcore.store.last_run import LastRun
from mqcore.store.log import owner
from mqcore.store.log.append_loop import AppendLoop, sync_bytes_max
from mqcore.store.log.folders import LogFolders
from mqcore.store.queue import extension_files
from mqcore.store.recovery import queue_ends
from mqcore.store.recovery.errors import what_to_do
from mqcore.store.recovery.queue_ends import QueueEnds
from mqcore.store.recovery.start import DamagedStoreError, Recovered, Recovery
from mqcore.wire.printable import printable
from mqcore.workers.process.layout import StoreFiles
from mqcore.workers.process.output import complain
from mqcore.workers.process.stopping import StopWait, UnfinishedStop
from mqcore.workers.writer.dispatch_watch import DispatchWatch
from mqcore.workers.writer.log_cleaner import LogCleanerThread

PAGE_BYTES = 4096
REFUSING_TURN_MS = 100          # while it is to be seen soon that the dispatcher has caught up
EXIT_DAMAGED = 3                # the store cannot be opened: starting again would not help
PRODUCERS_WAIT_S = 3.0          # for other processes to end before this one does
GIVE_UP_S = 1.0                 # for the services to end once it was given up
LOOK_S = 0.05
REFUSALS: dict[int, str] = {
    Refusal.REFUSAL_DISK_FULL: "the disk is full, it is tried again five times a second",
    Refusal.REFUSAL_FLUSH_FAILED:
        "a flush to disk has failed, which is final: what the kernel had of it may be gone, and "
        "nobody knows what is on the disk. Look at the disk, then restart the broker: it checks "
        "the log",
    Refusal.REFUSAL_WRITE_FAILED:
        "a write has failed and is tried again five times a second: nothing that was acknowledged "
        "is lost"}

log = logging.getLogger("mqcore.writer")


def sync_segments(folders: LogFolders, segment_size: int, start: int, end: int) -> None:
    """
    Bring to disk what an earlier writer wrote from position `start` on: the flush service knows
    only what is written from now on, and `flushed` is not to claim more than the disk has.
    """
    for base in range(start // segment_size * segment_size, end, segment_size):
        segment = folders.path(base)
        for path in (folders.checksums_of(base), segment):
            if path != segment and not path.exists():
                continue                     # somebody else wrote it
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)


class Intervals(TypedDict):
    """Arguments of AppendLoop."""

    flush_interval_ms: int
    flush_least_bytes: int
    flush_thorough_interval_ms: int
    sync_timeout_ms: int
    commit_interval_ms: int
    commit_least_bytes: int
    commit_thorough_interval_ms: int


def intervals(store: StoreSettings) -> Intervals:
    """When the services of the log write and flush: what can change while they run."""
    return {
        "flush_interval_ms": store.flush_interval_ms,
        "flush_least_bytes": store.flush_least_pages * PAGE_BYTES,
        "flush_thorough_interval_ms": store.flush_thorough_interval_ms,
        "sync_timeout_ms": store.sync_flush_timeout_ms,
        "commit_interval_ms": store.commit_interval_ms,
        "commit_least_bytes": max(store.commit_least_pages, 1) * PAGE_BYTES,
        "commit_thorough_interval_ms": store.commit_thorough_interval_ms,
    }


class Writer:
    name = "writer"
    slot = WRITER.slot

    def __init__(self, settings: Settings, segment: Segment) -> None:
        self._settings = settings
        self._segment = segment
        self._files = StoreFiles(settings.store_root)
        self._refusal = int(Refusal.REFUSAL_NONE)
        self._timeouts = 0
        self._failed_writes = 0
        self._stop_timeout_s = settings.processes.stop_timeout_ms / 1000
        self._queue_lives = QueueLives(segment)
        self._restarts = RestartFile(self._files.restarts, self._files.queues)
        self._removals_wait = False
        self._watch = DispatchWatch(segment, settings.store.dispatch_stall_ms,
                                    settings.store.dispatch_behind_bytes_max,
                                    replicated_only=settings.shows_replicated_only)

    def start(self) -> None:
        first_start = self._segment.incarnation(WRITER.slot) == 1
        try:
            recovered = self._recover(first_start)
        except (DamagedStoreError, ConfigFileError, OSError) as error:
            text = str(error)
            if isinstance(error, DamagedStoreError) and "mqcore store verify" not in text:
                text += f". {what_to_do(self._settings.log_folders)}"
            complain(text)
            os._exit(EXIT_DAMAGED)
        store = self._settings.store
        flushed = self._segment.log_state()["flushed"]
        if first_start:
            self._segment.set_dispatched(recovered.dispatch_from, recovered.last_store_time_ms)
            self._segment.set_begun(recovered.end)
            flushed = recovered.dispatch_from
        try:
            sync_segments(self._settings.log_folders, store.segment_size_bytes,
                          max(flushed, recovered.first), recovered.end)
        except OSError as error:
            complain(f"the commit log cannot be brought to disk: {error}")
            os._exit(EXIT_DAMAGED)
        replication = self._settings.replication
        if self._settings.is_slave and recovered.end == 0:
            self._remove_unused()            # its log may begin elsewhere (raw.pxd, A9)
        self._loop = AppendLoop(
            self._segment, self._settings.log_folders.text(), store.flush, recovered.end,
            **intervals(store),
            pool_bytes=store.pool_bytes,
            warm_segments=store.warm_segments,
            show_unflushed=store.sync_show_unflushed,
            wait_replicated=replication.role is Role.SYNC_MASTER,
            slave_timeout_ms=replication.slave_timeout_ms,
            slave_fallbehind_bytes=replication.slave_fallbehind_max_bytes,
            follows_only=self._settings.is_slave,
            queue_file_entries=store.queue_file_entry_count,
        )
        if store.multi_dispatch_enable:
            self._loop.name_queues(store.light_queues_enable, store.light_queue_count_max)
        if not first_start:
            self._loop.drop_requests()
        self._loop.publish_start(recovered.end)
        if not self._loop.pool_locked:
            log.warning("the pool's memory cannot be locked (RLIMIT_MEMLOCK), it may be swapped")
        self._services = [threading.Thread(target=self._loop.run_service, args=[name], name=name)
                          for name in self._loop.services()]
        for service in self._services:
            service.start()
        self._cleaner = LogCleanerThread(self._settings, self._segment, self._files)
        self._cleaner.start()

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        self._loop.configure(**intervals(settings.store))
        self._loop.configure_gate(settings.replication.slave_timeout_ms,
                                  settings.replication.slave_fallbehind_max_bytes)
        self._cleaner.reconfigure(settings.store)

    def work(self, turn_ms: int) -> None:
        self._loop.run(min(turn_ms, REFUSING_TURN_MS) if self._watch.refuses else turn_ms)
        self._watch.look(time.monotonic_ns() // 1_000_000)
        asked = self._loop.removals_asked()
        if asked != self._loop.removals_seen or self._removals_wait:
            self._loop.answer_removals(asked)
            self._removals_wait = not self._begin_removals()
        self._say_timeouts()
        self._say_failed_writes()
        refusal, error = self._loop.refusal()
        if refusal != self._refusal:
            self._refusal = refusal
            if refusal:
                log.error("writes are refused: %s (%s)", REFUSALS[refusal],
                          error_text(error, self._files.root) if error else "no error number")
            else:
                log.warning("writes are taken again")

    def _say_timeouts(self) -> None:
        timeouts = self._loop.flush_timeouts()
        if timeouts != self._timeouts:
            log.error("%d sends were answered FLUSH_DISK_TIMEOUT: a flush took longer than %d ms",
                      timeouts - self._timeouts, self._settings.store.sync_flush_timeout_ms)
            self._timeouts = timeouts

    def _say_failed_writes(self) -> None:
        failed, error = self._loop.failed_writes()
        if failed != self._failed_writes:
            log.error("%d writes to the commit log have failed and were tried again (%s): look at "
                      "the disk", failed - self._failed_writes, os.strerror(error))
            self._failed_writes = failed

    def _begin_removals(self) -> bool:
        """End the lives of queues that are to be removed; False: to be tried again."""
        queues = self._queue_lives.asked()
        if not queues:
            return True
        position = self._loop.restart_position()
        if position < 0:
            return False
        try:
            self._restarts.add([(queue.topic, queue.queue_id) for queue in queues], position,
                               self._segment.log_state()["first"])
        except OSError as error:
            log.error("queues cannot be removed now: %s", error)
            return False
        self._queue_lives.begin([queue.number for queue in queues], position)
        log.info("%d queues are removed: their next life begins at log position %d", len(queues),
                 position)
        return True

    def stop(self) -> None:
        """After all who append have ended: what they sent is written, then brought to disk."""
        wait = StopWait(self._segment, self.slot, self._stop_timeout_s, log)
        while not wait.over and (self._loop.has_work() or (
                self._producers_live() and wait.elapsed_s < PRODUCERS_WAIT_S)):
            self._loop.run(10)
        self._cleaner.stop()
        self._loop.finish()
        self._loop.stop_service()
        self._wait_for_services(wait)
        if not self._is_all_safe():
            raise UnfinishedStop("the commit log is not whole on the disk")
        self._remove_unused()

    def _wait_for_services(self, wait: StopWait) -> None:
        """They end by themselves when all is in the files and on the disk."""
        given_up_at = 0.0
        while waiting := [service for service in self._services if service.is_alive()]:
            if wait.over and not given_up_at:
                given_up_at = time.monotonic()
                self._loop.give_up()
            if given_up_at and time.monotonic() - given_up_at >= GIVE_UP_S:
                return
            wait.say(f"{self._loop.pool_bytes_waiting()} bytes of acknowledged messages are in no "
                     f"file yet, {self._unflushed()} bytes of the log not on the disk")
            waiting[0].join(LOOK_S)

    def _unflushed(self) -> int:
        state = self._segment.log_state()
        return max(state["published"] - state["flushed"], 0)

    def _is_all_safe(self) -> bool:
        """Whether what was acknowledged is in the files and on disk; else says how much is not."""
        waiting, unflushed = self._loop.pool_bytes_waiting(), self._unflushed()
        refusal, error = self._loop.refusal()
        reason = os.strerror(error) if refusal and error else "the disk was too slow"
        if waiting:
            log.error("%d bytes of acknowledged messages are lost: the commit log could not be "
                      "written before the stop (%s)", waiting, reason)
        if unflushed:
            log.error("%d bytes of the commit log are not known to be on the disk (%s): a power "
                      "cut would lose them", unflushed, reason)
        return not waiting and not unflushed

    def _remove_unused(self) -> None:
        """
        Segments that were made ahead and hold nothing (store.md 6.3), the last first (prepare P3).
        """
        end = self._segment.log_state()["published"]
        for start, path in reversed(self._settings.log_folders.segments()):
            if start >= end:
                self._settings.log_folders.remove_checksums(start)
                unlink(path)

    def _producers_live(self) -> bool:
        return any(self._lives(row.slot + index)
                   for row, index in processes(self._segment.serving_count) if row.results)

    def _lives(self, slot: int) -> bool:
        state = self._segment.slot(slot)
        if state["state"] in (WorkerState.WORKER_STOPPED, WorkerState.WORKER_ABSENT):
            return False
        with suppress(ProcessLookupError):
            os.kill(state["pid"], 0)
            return True
        return False

    def _mend_index(self, recovery: Recovery, recovered: Recovered, last: LastRun,
                    ends: QueueEnds | None) -> None:
        """
        Index files that say more than the log, or than a disk that lost its power may have, are
        written again, and so is what is gone of the index.
        """
        if not self._settings.store.index_enable:
            return
        sure = recovered.end if last.clean or last.same_boot else recovered.dispatch_from
        known = ends if ends is not None and ends.index is not None and (
            recovered.as_left or last.ours) else None
        indexed = index_files.mend(
            self._files.index, sure, known=(known.index or ()) if known is not None else (),
            first=recovered.first,
            unchanged_ns=known.unchanged_ns if known is not None and recovered.as_left else 0,
            indexed_to=known.end if known is not None and (
                recovered.as_left or last.same_boot) else 0)
        indexed = max(indexed, recovered.first)
        if indexed < recovered.dispatch_from:
            recovery.look_back(indexed, recovered.dispatch_from, recovered.end)
            recovered.dispatch_from = indexed

    def _recover(self, first_start: bool) -> Recovered:
        began = time.monotonic()
        recovery = Recovery(self._segment, os.fsdecode(self._settings.log_folders.text()),
                            str(self._files.queues), self._settings.store.queue_file_entry_count,
                            multi_dispatch=self._settings.store.multi_dispatch_enable,
                            light_queues=self._settings.store.light_queues_enable)
        self._restarts.load()
        if first_start and self._settings.store.queue_extension_enable:
            extension_files.check_sizes(self._files.queue_extensions,
                                        self._settings.store.queue_extension_file_bytes)
        if first_start:
            self._restarts.apply(self._queue_lives.set_restart)
            last, known = last_run.read(self._files.abort), checkpoint.read(self._files.checkpoint)
            ends = queue_ends.read(self._files.queue_ends) if last.clean or last.ours else None
            unsynced = sync_bytes_max(self._settings.store.message_size_max_bytes)
            recovered = recovery.open_store(
                clean=last.clean, checkpoint_ms=known.replay_from_ms,
                flushed_ms=known.log_time_ms, unsynced_bytes_max=unsynced if last.synced else -1,
                same_boot=last.same_boot, alone=owner.alone(self._files.lock),
                ends=ends, hints=lambda: queue_hints.read(self._settings.config_dir))
            if last.clean:             # nothing was read of the log then: its last record's time
                recovered.last_store_time_ms = max(recovered.last_store_time_ms,
                                                   known.log_time_ms)
            self._mend_index(recovery, recovered, last, ends)
            if not (recovered.as_left or last.ours):
                self._files.queue_ends.unlink(missing_ok=True)     # of an earlier run than the last
            owner.mark_alone(self._files.lock)
            self._restarts.recovered(self._queue_lives.set_restart, recovered.first,
                                     recovered.end)
        else:
            recovered = recovery.open_tail()
        for path in recovered.foreign_checksums:
            log.warning("checksums of another log are set aside as %s: the records of that segment "
                        "are judged by themselves", printable(path))
        if recovered.torn:
            log.warning("the commit log ends at position %d: behind it lies %s; it is cut there",
                        recovered.end, recovered.torn)
        log.info("commit log from %d to %d, %d queues, %d records checked in %.3f s",
                 recovered.first, recovered.end, recovered.queues, recovered.records_checked,
                 time.monotonic() - began)
        return recovered
