"""One run over one store folder: recovery, the writer and the dispatcher, turned by hand."""
from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqcore.broker.settings.delay_levels import parse_delay_levels
from mqcore.broker.settings.model import BrokerSettings
from mqcore.participants import DISPATCHER, WRITER
from mqcore.shm.segment import Segment
from mqcore.shm.tables import QueueTable
from mqcore.store.log.append_loop import AppendLoop
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.store.queue.dispatch import DispatchLoop
from mqcore.store.record import parse
from mqcore.store.recovery.start import Recovered, Recovery

TURN_MS_MAX = 20_000            # a turn ends when nothing is waiting; this only bounds a bug
ENTRY = struct.Struct(">qiq")
DELAY_LEVELS_MS = parse_delay_levels(BrokerSettings().message_delay_levels)
_numbers = itertools.count()


def new_segment(**sizes: Any) -> Segment:
    """
    A segment without a name: it goes when its last mapping does. As a memfd it takes pages when it
    needs them, one in /dev/shm 50 MiB at once.
    """
    values = {"run_id": 1, "serving_count": 1, "segment_size": 65536, "message_bytes_max": 16384,
              "topics": 64, "groups": 64, "subscriptions": 64, "queues": 64,
              "kind": "memfd"} | sizes
    segment = Segment.create(f"/mqcore-test-{next(_numbers)}-{os.getpid()}", **values)
    segment.unlink()
    segment.make_bells()
    for slot in (WRITER.slot, DISPATCHER.slot):
        segment.begin_incarnation(slot)
        segment.request_stop(slot)              # a loop's run returns as soon as nothing waits
    return segment


@dataclass
class Run:
    """Shared memory and services of one run; files below `root` as a broker has them."""

    root: Path
    segment_size: int = 65536
    file_entries: int = 100
    index_slots: int = 500
    index_entries: int = 1000
    queues: int = 64
    multi_dispatch: bool = False
    light_queues: bool = True
    segment: Segment = field(init=False)

    def __post_init__(self) -> None:
        self.segment = new_segment(segment_size=self.segment_size, queues=self.queues)
        for folder in (self.log_folder, self.root / "checksums", self.queue_folder,
                       self.index_folder):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def log_folder(self) -> Path:
        return self.root / "commitlog"

    @property
    def queue_folder(self) -> Path:
        return self.root / "consumequeue"

    @property
    def index_folder(self) -> Path:
        return self.root / "index"

    # -- services ----------------------------------------------------------------------------------

    def _recovery(self) -> Recovery:
        return Recovery(self.segment, str(self.log_folder), str(self.queue_folder),
                        self.file_entries, multi_dispatch=self.multi_dispatch,
                        light_queues=self.light_queues)

    def recover(self, *, clean: bool, checkpoint_ms: int = 0, **known: Any) -> Recovered:
        found: Recovered = self._recovery().open_store(
            clean=clean, checkpoint_ms=checkpoint_ms, **known)
        self.segment.set_dispatched(found.dispatch_from, found.last_store_time_ms)
        return found

    def recover_tail(self) -> Recovered:
        return self._recovery().open_tail()

    def writer(self, mode: str, end: int, **changes: Any) -> AppendLoop:
        values = {"flush_interval_ms": 500, "flush_least_bytes": 16384,
                  "flush_thorough_interval_ms": 10_000, "sync_timeout_ms": 5000,
                  "commit_interval_ms": 200, "commit_least_bytes": 16384,
                  "queue_file_entries": self.file_entries} | changes
        loop = AppendLoop(self.segment, os.fsencode(self.log_folder), mode, end, **values)
        loop.publish_start(end if mode == "sync" else 0)
        return loop

    def dispatcher(self, **changes: Any) -> DispatchLoop:
        self.queue_folder.mkdir(exist_ok=True)          # recovery of an empty log removes it
        newest = max(self.index_folder.iterdir(), default=None)
        values: dict[str, Any] = {
            "file_entries": self.file_entries, "index_slots": self.index_slots,
            "index_entries": self.index_entries,
            "delay_levels_ms": DELAY_LEVELS_MS,
            "newest_index": None if newest is None else os.fsencode(newest)} | changes
        return DispatchLoop(self.segment, os.fsencode(self.log_folder),
                            os.fsencode(self.queue_folder), os.fsencode(self.index_folder),
                            **values)

    def dispatch_all(self, end: int, **changes: Any) -> tuple[int, int]:
        """
        A dispatcher's whole life: everything below `end`, then its files synced and closed. What it
        says of forged records.
        """
        loop = self.dispatcher(**changes)
        assert loop.run(TURN_MS_MAX) == 0, loop.failure()
        loop.sync()
        loop.close()
        assert self.segment.log_state()["dispatched"] == end
        return loop.forged()

    @property
    def extension_folder(self) -> Path:
        return self.root / "consumequeue_ext"

    def probe(self, **changes: int) -> AppendProbe:
        return AppendProbe(self.segment, **changes)

    # -- what is there -----------------------------------------------------------------------------

    def queue_ranges(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, queue id) -> (min, max) in shared memory; queues without a message left out."""
        return {(topic, queue): (least, most)
                for topic, queue, least, most in QueueTable(self.segment).all() if most}

    def entries(self, topic: str, queue_id: int, least: int, most: int) -> list[list[int]]:
        return read_entries(self.queue_folder / topic / str(queue_id), least, most,
                            self.file_entries)

    def records(self, end: int) -> Iterator[dict[str, Any]]:
        """Every record and blank below `end`, checked as recovery does."""
        return log_records(self.log_folder, self.segment_size, end)


def read_entries(folder: Path, least: int, most: int, file_entries: int) -> list[list[int]]:
    """[log position, record size, tag code] of entries least to most - 1, from the files."""
    result = []
    for number in range(least, most):
        first = number // file_entries * file_entries
        with open(folder / f"{first * ENTRY.size:020d}", "rb") as file:
            file.seek((number - first) * ENTRY.size)
            result.append(list(ENTRY.unpack(file.read(ENTRY.size))))
    return result


def log_records(folder: Path, segment_size: int, end: int) -> Iterator[dict[str, Any]]:
    position = min((int(path.name) for path in folder.iterdir()), default=0)
    while position < end:
        base = position // segment_size * segment_size
        data = memoryview((folder / f"{base:020d}").read_bytes())  # its rest is no copy
        assert len(data) == segment_size
        while position < min(base + segment_size, end):
            record = parse(data[position - base:], position)
            if record.get("blank"):
                yield record | {"physicalOffset": position}
                position = base + segment_size
            else:
                yield record
                position += record["size"]
