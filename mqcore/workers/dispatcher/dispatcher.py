"""Work of the dispatcher: entries and keys in native turns, checkpoints, removed queues."""
from __future__ import annotations

import logging
import os
import threading
import time
from typing import TypedDict

from mqcore.broker.settings.model import Settings
from mqcore.filter.bloom import BloomFilter
from mqcore.filter.filter_bits import FilterBits
from mqcore.layout import WorkerState
from mqcore.participants import DISPATCHER, WRITER
from mqcore.shm.retention import LogWords, QueueLives, QueueState
from mqcore.shm.segment import Segment
from mqcore.store import checkpoint
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.files import error_text
from mqcore.store.index import files as index_files
from mqcore.store.paths import queue_folder, remove_queue
from mqcore.store.queue import extension_files, trim
from mqcore.store.queue.dispatch import DispatchFailure, DispatchLoop
from mqcore.store.queue.trim import QueueTrimmer, trim_all
from mqcore.store.recovery import queue_ends as ends_file
from mqcore.store.recovery.compare import queue_ends
from mqcore.store.recovery.errors import what_to_do
from mqcore.store.recovery.queue_ends import QueueEnds
from mqcore.workers.dispatcher.left_queues import LeftQueuesThread
from mqcore.workers.process import descriptors
from mqcore.workers.process.layout import StoreFiles
from mqcore.workers.process.loop import alive
from mqcore.workers.process.stopping import StopWait, UnfinishedStop

FAILURES: dict[int, str] = {
    DispatchFailure.DISPATCH_BAD_RECORD: "a record is damaged",
    DispatchFailure.DISPATCH_UNKNOWN_QUEUE: "a record's queue is not in the queue table",
    DispatchFailure.DISPATCH_LOG_UNREADABLE: "the commit log cannot be read",
    DispatchFailure.DISPATCH_IO: "queues or index cannot be written"}
RETRY_S = 0.2
REFUSED_S_MAX = 4.0             # at a stop: what is not written now, the next start writes
WRITER_LOOK_S = 0.01
STOP_TURN_MS = 10
LEFT_LOOK_S = 0.05
CHECKPOINT_LOOK_S = 1.0         # whether it is time for another one
ENDS_PAUSE = 200                # times as long as it took to write the queues' ends, until the next

log = logging.getLogger("mqcore.dispatcher")


class DispatchError(RuntimeError):
    """Dispatch cannot continue: the store is damaged, or this process is wrong about it."""


class Extension(TypedDict, total=False):
    """What a DispatchLoop is to know of the queues' extension."""

    extension_folder: bytes
    extension_file_bytes: int
    bits: FilterBits | None


class Dispatcher:
    name = "dispatcher"
    slot = DISPATCHER.slot

    def __init__(self, settings: Settings, segment: Segment) -> None:
        self._settings = settings
        self._store = settings.store
        self._log_folders = settings.log_folders
        self._delay_levels_ms = settings.delay_levels_ms
        self._map_bytes = BloomFilter.for_rate(
            settings.broker.filter_error_percent, settings.broker.filter_expected_count,
        ).map_size if settings.broker.filter_bits_enable else 0
        self._segment = segment
        self._files = StoreFiles(settings.store_root)
        self._stopping = threading.Event()
        self._io_error = 0
        self._lives = QueueLives(segment)
        self._words = LogWords(segment)
        self._trimmer = QueueTrimmer(self._lives, self._files.queues,
                                     settings.store.queue_file_entry_count)
        self._files_lock = threading.Lock()     # a queue's files: trimmed there, removed here
        self._trimmed_to = 0
        self._ends_written: QueueEnds | None = None
        self._ends_due = 0.0
        self._odd_said = False
        self._forged_said = False
        self._stop_timeout_s = settings.processes.stop_timeout_ms / 1000
        self._checkpoint_error = ""

    def start(self) -> None:
        self._files.index.mkdir(parents=True, exist_ok=True)
        self._files.queues.mkdir(parents=True, exist_ok=True)
        newest = index_files.newest(self._files.index)
        share = descriptors.share(self._settings, self._segment.serving_count,
                                  descriptors.raise_limit())
        self._loop = DispatchLoop(
            self._segment, self._log_folders.text(), os.fsencode(self._files.queues),
            os.fsencode(self._files.index), file_entries=self._store.queue_file_entry_count,
            index_slots=self._store.index_slot_count, index_entries=self._store.index_entry_count,
            index_enabled=self._store.index_enable,
            newest_index=os.fsencode(newest) if newest is not None else None,
            delay_levels_ms=self._delay_levels_ms, **self._extension(),
            multi_dispatch=self._store.multi_dispatch_enable,
            light_queues=self._store.light_queues_enable, open_files_max=share.queue_files,
            replicated_only=self._settings.shows_replicated_only,
        )
        self._left = LeftQueuesThread(self._segment, os.fsencode(self._files.queues),
                                      self._store.queue_file_entry_count)
        self._left.start()
        self._syncer = threading.Thread(target=self._sync_from_time_to_time, name="sync")
        self._syncer.start()

    def _extension(self) -> Extension:
        if not self._store.queue_extension_enable:
            return {}
        bits = FilterBits(self._segment, self._map_bytes) if self._map_bytes else None
        return {"extension_folder": os.fsencode(self._files.queue_extensions),
                "extension_file_bytes": self._store.queue_extension_file_bytes, "bits": bits}

    def reconfigure(self, settings: Settings) -> None:
        self._store = settings.store
        self._loop.set_delays(settings.delay_levels_ms)

    def work(self, turn_ms: int) -> None:
        failure = self._run(turn_ms)
        if failure == DispatchFailure.DISPATCH_WELL:
            if self._io_error:
                log.warning("queues and index are written again")
                self._io_error = 0
            return
        kind, detail, position = self._loop.failure()
        if kind != DispatchFailure.DISPATCH_IO:
            self._left.stop()
            self._stopping.set()
            size = self._store.segment_size_bytes
            raise DispatchError(
                f"{self._log_folders.name(position // size * size)}: at {position % size} "
                f"(log position {position}) {FAILURES[kind]} (detail {detail}). "
                f"{what_to_do(self._log_folders)}")
        if detail != self._io_error:
            self._io_error = detail
            log.error("%s: %s; trying again every %d ms", FAILURES[kind],
                      error_text(detail, self._files.root), RETRY_S * 1000)
        self._stopping.wait(RETRY_S)

    def _run(self, turn_ms: int) -> int:
        """A turn of the loop; the removals that it stops for are done here. DispatchFailure."""
        failure = self._loop.run(turn_ms)
        self._say_odd()
        if failure == DispatchFailure.DISPATCH_REMOVAL:
            try:
                self._remove_queues()
            except OSError as error:
                log.error("a queue cannot be removed, trying again: %s", error)
                self._stopping.wait(RETRY_S)
            return 0
        return int(failure)

    def _say_odd(self) -> None:
        count, position = self._loop.odd()
        if count and not self._odd_said:
            self._odd_said = True
            log.error("the record at log position %d names a topic or a queue that cannot be: it "
                      "stays in the log, and no consumer sees it. Others like it are passed over "
                      "without a word", position)
        count, position = self._loop.forged()
        if count and not self._forged_said:
            self._forged_said = True
            log.warning("the record at log position %d says that it is in a queue besides its own, "
                        "at an offset that no broker gave it: it is in its own queue only. Others "
                        "like it are passed over without a word", position)

    def _remove_queues(self) -> None:
        begun = self._loop.removals_begun()
        queues = self._lives.begun()
        for queue in queues:
            with self._files_lock:
                self._loop.forget_queue(queue.number)
                self._delete_files(queue)
                self._lives.finish(queue.number)
            self._segment.beat(DISPATCHER.slot, time.time_ns() // 1_000_000)
        self._loop.removals_done(begun)
        if queues:
            self._lives.trimmed()
            log.info("%d queues are removed", len(queues))

    def _delete_files(self, queue: QueueState) -> None:
        """What the queue has on the disk; whatever else lies in its folders stays, and is named."""
        entry_bytes = self._store.queue_file_entry_count * trim.ENTRY.size
        for root, file_bytes in ((self._files.queues, entry_bytes), (
                self._files.queue_extensions, self._store.queue_extension_file_bytes)):
            foreign = remove_queue(root, queue.topic, queue.queue_id, file_bytes)
            if foreign:
                log.warning("%d files in the folder of queue %d of topic %s are not the queue's "
                            "and stay: %s, ...", len(foreign), queue.queue_id, queue.topic,
                            foreign[0])

    def stop(self) -> None:
        """After the writer has ended: all dispatched, on disk, and the checkpoint says so."""
        wait = StopWait(self._segment, self.slot, self._stop_timeout_s, log)
        refused_s = 0.0
        while not wait.over and refused_s < REFUSED_S_MAX and (
            self._writer_lives() or self._loop.has_work()
        ):
            wait.say(f"{self._behind()} bytes of the log are to be dispatched")
            failure = self._run(STOP_TURN_MS)
            if failure not in (DispatchFailure.DISPATCH_WELL, DispatchFailure.DISPATCH_IO):
                break
            if failure == DispatchFailure.DISPATCH_IO:
                self._stopping.wait(RETRY_S)
                refused_s += RETRY_S
            elif not self._loop.has_work():
                self._stopping.wait(WRITER_LOOK_S)        # the writer may have more
        while not wait.over and not self._left.wait(LEFT_LOOK_S):
            wait.say(f"{self._left.left} queues are to be looked at")
        self._left.stop()
        self._stopping.set()
        self._syncer.join()
        try:
            self._write_checkpoint()
        except OSError as error:
            log.error("the checkpoint cannot be written: %s. The next start looks at the log again",
                      error)
            raise UnfinishedStop(
                "consume queues and key index are not known to be on the disk") from error
        finally:
            self._loop.close()
        self._write_ends(self._ends(stopped=True))  # last: what is modified later is not ours

    def _writer_lives(self) -> bool:
        writer = self._segment.slot(WRITER.slot)
        return writer["state"] == WorkerState.WORKER_RUNNING and alive(writer["pid"])

    def _behind(self) -> int:
        state = self._segment.log_state()
        return state["published"] - state["dispatched"]

    def _sync_from_time_to_time(self) -> None:
        last = time.monotonic()
        while not self._stopping.wait(min(CHECKPOINT_LOOK_S,
                                          self._store.checkpoint_interval_ms / 1000)):
            if time.monotonic() - last < self._store.checkpoint_interval_ms / 1000:
                continue                        # it may change while we wait
            last = time.monotonic()
            try:
                self._write_checkpoint()
                self._checkpoint_error = ""
            except OSError as error:
                if str(error) != self._checkpoint_error:          # a failed sync stays: said once
                    log.error("the checkpoint cannot be written: %s", error)
                self._checkpoint_error = str(error)
            try:
                self._trim()
            except OSError as error:
                log.error("expired queue files cannot be deleted: %s", error)

    def _trim(self) -> None:
        """Follow the commit log's beginning, if it has moved."""
        first = self._words.first
        if first <= self._trimmed_to or self._left.left:       # nothing goes by what may be wrong
            return
        done = trim_all(self._trimmer, self._lives, self._files.index, first, self._files_lock)
        self._trimmed_to = first
        if self._files.queue_extensions.is_dir():
            self._trim_extensions()
        if done.queue_files or done.index_files:
            self._write_ends(self._ends())
            log.info("%d queue files and %d index files are deleted: the log begins at %d",
                     done.queue_files, done.index_files, first)

    def _trim_extensions(self) -> None:
        """The extension files follow their queues' first entries."""
        deleted = 0
        for number in range(self._lives.queue_count):
            with self._files_lock:
                queue = self._lives.state(number)
                deleted += extension_files.trim(
                    queue_folder(self._files.queue_extensions, queue.topic, queue.queue_id),
                    self._store.queue_extension_file_bytes,
                    queue_folder(self._files.queues, queue.topic, queue.queue_id),
                    self._store.queue_file_entry_count, queue.min_offset)
        if deleted:
            self._lives.trimmed()
            log.info("%d queue extension files are deleted", deleted)

    def _write_checkpoint(self) -> None:
        ends = self._ends()                   # before the sync, which brings all of it to disk
        state = self._segment.log_state()
        _, queues_time_ms = self._loop.sync()
        before = checkpoint.read(self._files.checkpoint)
        checkpoint.write(self._files.checkpoint, Checkpoint(
            log_time_ms=max(state["flushed_store_time_ms"], before.log_time_ms),
            queues_time_ms=max(queues_time_ms, before.queues_time_ms),
            index_time_ms=before.index_time_ms,
        ))
        if (ends != self._ends_written and not ends.since_ns
                and time.monotonic() >= self._ends_due):
            self._write_ends(ends)

    def _ends(self, *, stopped: bool = False) -> QueueEnds:
        return queue_ends(self._segment, index_files.ends(self._files.index)
                          if self._store.index_enable else None, stopped=stopped)

    def _write_ends(self, ends: QueueEnds) -> None:
        """For the next start (recovery/queue_ends.py); without them it looks at the log."""
        began = time.monotonic()
        try:
            ends_file.write(self._files.queue_ends, ends, time.time_ns())
        except OSError as error:
            log.error("the ends of the queues cannot be written: %s", error)
            return
        self._ends_written = ends
        self._ends_due = time.monotonic() + ENDS_PAUSE * (time.monotonic() - began)
