"""
Two lives of a small store that make every kind of call on its files: sends over several segments,
new queues, queue files and index files, settings saved, a queue removed, retention, checkpoints, a
clean stop, a start, more sends, and an end without a stop. The worker processes' own code, turned
by hand in one process.

What was promised is written down line by line as it happens, for `mend_and_check` afterwards: it
starts the store once more, on a disk that works, and holds what is there against the promises.
"""
from __future__ import annotations

import functools
import hashlib
import json
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from msgspec.structs import replace

from mqcore.broker.settings import load as broker_settings
from mqcore.broker.settings.model import Settings
from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_file import ConfigFileError
from mqcore.layout import PUT_OK
from mqcore.shm.retention import LogWords, QueueLives
from mqcore.store import last_run
from mqcore.store.log.retention import LogCleaner, Policy, Reason
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.store.queue.dispatch import DispatchFailure
from mqcore.store.recovery.start import DamagedStoreError
from mqcore.workers.dispatcher import dispatcher as dispatcher_module
from mqcore.workers.dispatcher.dispatcher import Dispatcher, DispatchError
from mqcore.workers.process.layout import StoreFiles
from mqcore.workers.process.stopping import UnfinishedStop
from mqcore.workers.writer import writer as writer_module
from mqcore.workers.writer.writer import Writer
from tests.store.harness import log_records, new_segment, read_entries

SEGMENT, FILE_ENTRIES, INDEX_SLOTS, INDEX_ENTRIES = 4096, 8, 16, 30
TURN_MS = 1000
BY_HAND = ("prepare", "watch", "log cleaner", "sync")     # threads that do not run here
LOOK_S, LOOKS_MAX = 0.004, 125   # how often it is looked at what a thread does
TURNS_MAX = 100                  # of a dispatcher that gets nowhere
STOP_WAIT_S = 0.05               # for dispatch to catch up at a stop: the supervisor kills it then
QUEUES = [("orders", 0), ("orders", 1), ("events", 0), ("gone", 0)]
REMOVED = ("gone", 0)
ROUNDS, SENDS = 7, 6
ANY_AGE = Reason("the test asks", any_age=True)
# What may end a process: each says in one sentence what went wrong.
CLEAR = (OSError, DamagedStoreError, ConfigFileError, DispatchError, UnfinishedStop)


class QuietThread(threading.Thread):
    """A thread that does not run if the scenario does its work by hand."""

    def start(self) -> None:
        if self.name not in BY_HAND:
            super().start()

    def join(self, timeout: float | None = None) -> None:
        if self.name not in BY_HAND:
            super().join(timeout)


@functools.cache
def small_settings(root: Path, mode: str) -> Settings:
    """Settings of a store with small files; the flush service works when it is told to stop."""
    settings = broker_settings.load(environment={}, overrides=[
        "broker.advertised_ip=127.0.0.1", "broker.name=small", f"store.path={root}",
        f"store.flush={mode}", f"store.pool_bytes={1 << 20}", "store.flush_interval_ms=60000",
        "store.commit_interval_ms=1", "processes.stop_timeout_ms=1000"])
    return replace(settings, store=replace(
        settings.store, segment_size_bytes=SEGMENT, message_size_max_bytes=1024,
        queue_file_entry_count=FILE_ENTRIES, index_slot_count=INDEX_SLOTS,
        index_entry_count=INDEX_ENTRIES))


def body_of(number: int) -> bytes:
    return b"%d:" % number + hashlib.sha256(b"%d" % number).digest() * (1 + number % 4)


@dataclass
class Life:
    """One run of the store's processes over `root`; events go to `notes`, one JSON line each."""

    root: Path
    mode: str
    notes: TextIO
    first_number: int = 0

    def note(self, what: str, **values: Any) -> None:
        self.notes.write(json.dumps({"what": what, **values}) + "\n")
        self.notes.flush()

    def start(self) -> None:
        settings = small_settings(self.root, self.mode)
        self.files = StoreFiles(self.root)
        self.files.commit_log.mkdir(parents=True, exist_ok=True)
        self.segment = new_segment(segment_size=SEGMENT, message_bytes_max=1024)
        self.writer = Writer(settings, self.segment)
        self.writer.start()
        try:
            last_run.mark(self.files.abort, self.mode)
        except OSError as error:                # as the supervisor does
            self.note("failed", text=f"abort: {error}")
        self.dispatcher = Dispatcher(settings, self.segment)
        self.dispatcher.start()
        self.probe = AppendProbe(self.segment)
        self.lives = QueueLives(self.segment)
        self.number = self.first_number
        self.waiting: dict[int, int] = {}
        self.unsure: list[dict[str, int | str]] = []
        self.dispatch()

    # -- steps -------------------------------------------------------------------------------------

    def send(self, count: int) -> None:
        for _ in range(count):
            topic, queue_id = QUEUES[self.number % len(QUEUES)]
            properties = b"KEYS\x01k%d\x02UNIQ_KEY\x01U%d" % (self.number % 5, self.number)
            assert self.probe.send(topic, queue_id, [body_of(self.number)], opaque=self.number,
                                   properties=properties)
            self.waiting[self.number] = self.number % len(QUEUES)
            self.number += 1
        self.writer.work(TURN_MS)
        self.take()

    def settle(self) -> None:
        """A pool is committed a little later than it is acknowledged."""
        for _ in range(LOOKS_MAX):
            if not self.unsure or self.segment.log_state()["refusal"]:
                return
            self.writer.work(TURN_MS)
            signal.sigtimedwait([], LOOK_S)
            self.take()

    def take(self) -> None:
        """Note what was promised: in pool mode only what is committed, and that is published."""
        for number, status, offset, position, _ in self.probe.take():
            queue = self.waiting.pop(number)
            if status == PUT_OK:
                self.unsure.append({"number": number, "topic": QUEUES[queue][0],
                                    "queue": QUEUES[queue][1], "offset": offset,
                                    "position": position})
        published = self.segment.log_state()["published"]
        for promise in list(self.unsure):
            if self.mode != "transient-pool" or int(promise["position"]) < published:
                self.unsure.remove(promise)
                self.note("promised", **promise)

    def dispatch(self) -> None:
        """All that is published, or until the disk refuses."""
        for _ in range(TURNS_MAX):
            if not self.dispatcher._loop.has_work():
                return
            if self.dispatcher._run(TURN_MS) == DispatchFailure.DISPATCH_IO:
                if self.segment.log_state()["refusal"]:
                    return
                kind, detail, _ = self.dispatcher._loop.failure()
                if self.refused.append((kind, detail)) or len(self.refused) > 5:
                    return

    @property
    def refused(self) -> list[tuple[int, int]]:
        return self.__dict__.setdefault("_refused", [])

    def remove_queue(self) -> None:
        number = self.lives.number(*REMOVED)
        if number < 0:
            return
        self.note("removing", topic=REMOVED[0], queue=REMOVED[1])
        self.lives.ask([number])
        self.writer.work(TURN_MS)
        self.dispatch()

    def expire(self) -> None:
        """The oldest segment goes, and what points into it."""
        words = LogWords(self.segment)
        cleaner = LogCleaner(self.files.commit_log, SEGMENT, Policy(
            frozenset(), 0, 100, 100, True, 100), words)
        if words.first + SEGMENT < words.dispatched:
            self.note("expiring", below=words.first + SEGMENT)
            cleaner.delete_oldest(lambda _: 0, ANY_AGE)
        self.dispatcher._trim()

    def save_settings(self) -> None:
        config_file.save(self.root / "config" / "topics.json", {"number": self.number})
        self.note("saved", number=self.number)

    def stop(self) -> None:
        self.writer.stop()
        self.take()
        self.dispatcher.stop()
        state = self.segment.log_state()
        if state["dispatched"] >= state["published"] and not state["refusal"]:
            self.files.abort.unlink()
            self.note("stopped")

    def steps(self) -> Iterator[Callable[[], None]]:
        """What a whole life does, in order; a step that fails does not keep others from trying."""
        for number in range(ROUNDS):
            yield lambda: self.send(SENDS)
            yield self.dispatch
            if number % 3 == 1:
                yield self.save_settings
                yield self.dispatcher._write_checkpoint
        yield self.settle
        yield self.remove_queue
        yield self.expire
        yield lambda: self.send(SENDS)
        yield self.dispatch


def live_twice(root: Path, mode: str, notes: TextIO) -> None:
    """The scenario; raises one of CLEAR when the disk does not let it go on."""
    threading.Thread = QuietThread          # type: ignore[misc]
    dispatcher_module.REFUSED_S_MAX = writer_module.PRODUCERS_WAIT_S = STOP_WAIT_S
    dispatcher_module.RETRY_S = STOP_WAIT_S / 10
    first = Life(root, mode, notes)
    first.start()
    _do(first, first.steps())
    first.stop()
    second = Life(root, mode, notes, first_number=first.number)
    second.start()
    _do(second, iter([lambda: second.send(SENDS), second.dispatch,
                      second.dispatcher._write_checkpoint, lambda: second.send(2),
                      second.settle]))


def _do(life: Life, steps: Iterator[Callable[[], None]]) -> None:
    """A step that raises OSError is one that a worker tries again later, or its thread logs."""
    for step in steps:
        try:
            step()
        except OSError as error:
            life.note("failed", text=str(error))


# -- afterwards ------------------------------------------------------------------------------------


def mend_and_check(root: Path, mode: str, notes: list[dict[str, Any]]) -> str:
    """Start the store on a disk that works; what is not as promised, "" for nothing."""
    threading.Thread = QuietThread          # type: ignore[misc]
    life = Life(root, mode, open("/dev/null", "w"), first_number=10_000)   # noqa: SIM115
    life.start()
    life.send(len(QUEUES))
    life.settle()
    life.dispatch()
    state = life.segment.log_state()
    if life.waiting or life.unsure or state["refusal"] or state["dispatched"] != state["published"]:
        return f"it does not take messages again: {state}"
    return compare(life, notes)


def compare(life: Life, notes: list[dict[str, Any]]) -> str:
    """The log and the queues against the promises."""
    state = life.segment.log_state()
    records = [record for record in log_records(
        life.files.commit_log, SEGMENT, state["published"]) if not record.get("blank")]
    at = {record["physicalOffset"]: record for record in records}
    numbers = [int(record["body"].split(b":")[0]) for record in records]
    if len(numbers) != len(set(numbers)):
        return f"stored twice: {[n for n in set(numbers) if numbers.count(n) > 1]}"
    if any(record["body"] != body_of(n) for record, n in zip(records, numbers, strict=True)):
        return "a body is not as it was sent"
    expired = max((note["below"] for note in notes if note["what"] == "expiring"), default=0)
    removed = any(note["what"] == "removing" for note in notes)
    if state["first"] > expired:
        return f"the log begins at {state['first']}, only {expired} bytes had expired"
    for promise in (note for note in notes if note["what"] == "promised"):
        record = at.get(promise["position"])
        if record is None:
            if promise["position"] >= expired:
                return f"promised and lost: {promise}"
        elif (record["body"], record["queueOffset"], record["queueId"], record["topic"]) != (
                body_of(promise["number"]), promise["offset"], promise["queue"],
                promise["topic"]):
            return f"promised {promise}, found {record}"
    saved = [note["number"] for note in notes if note["what"] == "saved"]
    if saved and (config_file.load(life.root / "config" / "topics.json") or {}).get(
            "number", -1) < saved[-1]:
        return f"settings of {saved[-1]} are lost"
    return compare_queues(life, records, removed=removed)


def compare_queues(life: Life, records: list[dict[str, Any]], *, removed: bool) -> str:
    """Each queue holds its records, in order, without gap; a removed one those of its last life."""
    ranges = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
              for queue in life.lives.all()}
    for name in QUEUES:
        least, most = ranges.get(name, (0, 0))
        own = [record for record in records
               if (record["topic"], record["queueId"]) == name]
        entries = read_entries(life.files.queues / name[0] / str(name[1]), least, most,
                               FILE_ENTRIES)
        wanted = [[record["physicalOffset"], record["size"], 0] for record in own]
        if name == REMOVED and removed:
            wanted = wanted[len(wanted) - len(entries):]
        if entries != wanted or [r["queueOffset"] for r in own][-len(entries):] != list(
                range(least, most)):
            return f"queue {name} from {least} to {most}: {entries}, expected {wanted}"
    return ""
