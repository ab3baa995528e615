"""
A store directory that no broker uses, for readers in several processes: what lies where, where its
log ends, and at which records it can be split. Nothing is written, nothing of Spark is needed.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from mqcore.spark.errors import SparkSourceError
from mqcore.spark.store.starts import ChecksumStarts, QueueStarts, ends_of_queues, queue_starts
from mqcore.store import last_run
from mqcore.store.log.folders import LogFolders
from mqcore.store.log.owner import alone
from mqcore.store.ownership import StoreLock
from mqcore.store.record import ParseResult
from mqcore.store.verify.files import (
    StoreListing,
    misplaced_checksums,
    need_log,
    read_log,
    read_queues,
)
from mqcore.store.verify.log import LogVerifier
from mqcore.store.verify.raw_records import RawRecords
from mqcore.store.verify.report import DAMAGE, Report
from mqcore.store.verify.store import DELAY_LEVELS_MS, checksums_lost
from mqcore.store.verify.words import RESULTS

ROWS_MAX: Final = 4096                 # of one batch
BYTES_MAX: Final = 2 << 20             # of one batch, and one record more
TAIL_BYTES: Final = 64 << 20           # of the log that are read to find its end
LOOKS_MAX: Final = 8                   # at entries of queues that may point at a record
FOREVER_MS: Final = 2**63 - 1


class StoreError(SparkSourceError):
    """A store cannot be read: one line that says which, and what is wrong."""


@dataclass(frozen=True)
class Trouble:
    """
    A stretch without whole records.

    position  log position where it begins
    further   log position where whole records continue, -1: nowhere
    damaged   False: a torn end, which the next start cuts
    result    what lies there: a ParseResult
    """

    position: int
    further: int
    damaged: bool
    text: str
    result: int = ParseResult.PARSE_RECORD

    def __str__(self) -> str:
        return f"{'damage' if self.damaged else 'torn end'}: {self.text}"


@dataclass(frozen=True)
class WantedRecords:
    """Which records: topics, queue_ids None: any; store times, both counted in; log positions."""

    topics: tuple[str, ...] | None = None
    queue_ids: tuple[int, ...] | None = None
    from_ms: int = -FOREVER_MS - 1     # a record may have any time, and none is passed over
    to_ms: int = FOREVER_MS
    first: int = 0
    end: int = FOREVER_MS
    decided: bool = False              # no half messages, nor what settled them


EVERYTHING: Final = WantedRecords()


@dataclass(frozen=True)
class LogPart:
    """A stretch of the log that begins and ends where records do."""

    start: int
    stop: int


@dataclass
class LogPlan:
    """end: log position behind the last whole record; troubles: known before anything is read."""

    first: int
    end: int
    parts: list[LogPart] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    end_result: int = ParseResult.PARSE_BLANK      # what lies at the end


@dataclass(frozen=True)
class StoreAtRest:
    """
    What readers need to know of a store; it is small, and goes to each of them.

    folders   of the commit log (LogFolders.text); segments: (position, bytes), ascending
    checksums  those beside the log hold; same_boot: and the machine was not started since
    unclean   the last run did not end cleanly
    """

    root: str
    folders: bytes
    segments: tuple[tuple[int, int], ...]
    checksums: bool
    same_boot: bool
    unclean: bool
    force: bool

    @classmethod
    def open(cls, root: str | os.PathLike[str], log_folders: LogFolders | None = None, *,
             force: bool = False) -> tuple[StoreAtRest, Report]:
        """
        Look at a store's names and lengths; the report has what is wrong with those.

        force  also while a broker runs on it. Raises StoreError, StoreInUseError, OSError.
        """
        place = Path(root).absolute()
        if not place.is_dir():
            raise StoreError(f"{place}: " + ("no directory" if place.exists() else
                                             "there is no such directory"))
        files = StoreListing(place, log_folders or LogFolders(()))
        if not any(folder.is_dir() for folder in (*files.log.all(), place / "consumequeue")):
            raise StoreError(f"{place}: no store: neither commitlog nor consumequeue is there")
        if log_folders is None:
            try:
                need_log(place, "name the folders that it lies in with the option commitLogPaths")
            except FileNotFoundError as error:
                raise StoreError(str(error)) from None
        if not force:
            StoreLock(place, log_folders).release()
        report = Report(str(place))
        unclean = (place / "abort").exists()
        read_log(files, report, unclean=unclean)
        own = alone(place / "lock") and not misplaced_checksums(files)
        same_boot = own and last_run.read(place / "abort").same_boot
        return cls(str(place), files.log.text(), tuple(files.segments), own, same_boot, unclean,
                   force), report

    def listing(self) -> StoreListing:
        """Files by name; the queues are in it after `read_queues`."""
        files = StoreListing(Path(self.root), replace(LogFolders.parse(self.folders), store=None))
        files.segments = list(self.segments)
        return files

    @contextmanager
    def held(self) -> Iterator[None]:
        """No broker starts on the store meanwhile. Raises StoreInUseError when one runs."""
        if self.force:
            yield
            return
        lock = StoreLock(Path(self.root), LogFolders.parse(self.folders))
        try:
            yield
        finally:
            lock.release()

    def records(self, start: int, stop: int, wanted: WantedRecords | None = None) -> RawRecords:
        """The records of [start, stop); wanted None: none of them, it only goes by."""
        if wanted is None:
            return RawRecords(self.folders, list(self.segments), start=start, stop=stop,
                              checksums=self.checksums, topics=[])
        return RawRecords(
            self.folders, list(self.segments), start=start, stop=stop, checksums=self.checksums,
            topics=None if wanted.topics is None else [name.encode() for name in wanted.topics],
            queue_ids=None if wanted.queue_ids is None else list(wanted.queue_ids),
            from_ms=wanted.from_ms, to_ms=wanted.to_ms, decided=wanted.decided)

    def judge(self) -> LogVerifier:
        """Tells where reading continues behind bytes that are no record, as `store verify`."""
        files = self.listing()
        read_queues(files, Report(self.root), unclean=self.unclean)
        root = Path(self.root)
        judge = LogVerifier(
            self.folders, files.segments, os.fsencode(root / "consumequeue"),
            os.fsencode(root / "consumequeue_ext"), files.file_entries, list(DELAY_LEVELS_MS),
            checksums=self.checksums, same_boot=self.same_boot)
        for queue in files.queues:
            judge.add_queue(os.fsencode(queue.topic), queue.queue_id, queue.first, queue.limit,
                            queue.ext_bytes)
        return judge

    def place(self, position: int) -> str:
        """File and byte of a log position."""
        for start, size in reversed(self.segments):
            if start <= position <= start + size:
                return f"commitlog/{start:020d} at {position - start}"
        return f"commitlog at log position {position}"


def read_part(
    store: StoreAtRest, part: LogPart, wanted: WantedRecords, raw: RawRecords | None = None
) -> Iterator[tuple[bytes, int] | Trouble]:
    """
    The records of a part that fit, as (bytes end to end, how many), and what cannot be read between
    them; raw: of this part, None: its own. Raises OSError, StoreInUseError.
    """
    stop = part.stop
    with store.held():
        raw = raw or store.records(part.start, stop, wanted)
        judge: LogVerifier | None = None
        while True:
            made = raw.next(ROWS_MAX, BYTES_MAX)
            if made is not None:
                yield made
                continue
            if raw.position >= stop:
                return
            judge = judge or store.judge()
            further = judge.further(raw.position, raw.last_time_ms)
            yield _damaged(store, raw, min(further, stop) if further >= 0 else stop)
            if not 0 <= further < stop:
                return
            raw.continue_from(further)


def _damaged(store: StoreAtRest, raw: RawRecords, further: int) -> Trouble:
    return Trouble(raw.position, further, True,
                   f"{store.place(raw.position)}: {_words(raw.result)}; whole records go on at log "
                   f"position {further}", raw.result)


def _words(result: int) -> str:
    return RESULTS.get(result, "bytes that are no record")


# -- planning --------------------------------------------------------------------------------------


def plan(store: StoreAtRest, report: Report, *, split_bytes: int, parts_min: int = 1,
         wanted: WantedRecords = EVERYTHING) -> LogPlan:
    """
    Split a log into parts of about `split_bytes`, at least `parts_min` where it is long enough.

    report  of StoreAtRest.open; wanted: parts without such log positions are left out.
    Raises OSError.
    """
    troubles = [Trouble(-1, -1, True, f"{one.file}: {one.text}")
                for one in report.findings if one.severity == DAMAGE]
    if not store.segments:
        return LogPlan(0, 0, [], troubles + _behind(store, 0))
    first = store.segments[0][0]
    end, result = _end(store)
    made = LogPlan(first, end, [], troubles, result)
    made.troubles += _tail(store, end, result) + _behind(store, end)
    split = max(1, min(split_bytes, -(-(end - first) // max(parts_min, 1))))
    starts = [first, *_starts(store, range(first + split, end, split), first, end)]
    made.parts = [LogPart(start, stop) for start, stop in
                  zip(starts, [*starts[1:], end], strict=True)
                  if start < stop and start < wanted.end and stop > wanted.first]
    return made


def _end(store: StoreAtRest) -> tuple[int, int]:
    """Log position behind the last whole record, and what lies there (ParseResult)."""
    limit = sum(store.segments[-1])
    look = store.records(0, 0)
    bases = [base for base, _ in store.segments]
    known = next((base for base in reversed(bases) if look.is_record(base)), bases[0])
    for start in _starts(store, range(known, limit, TAIL_BYTES), known, limit):
        known = start                  # the last of them: from there on the log is read
    judge: LogVerifier | None = None
    raw = store.records(known, limit)
    while raw.position < limit:
        raw.next(1, 1)
        if raw.position < limit:
            judge = judge or store.judge()
            further = judge.further(raw.position, raw.last_time_ms)
            if further < 0:
                return raw.position, raw.result
            raw.continue_from(further)
    return limit, ParseResult.PARSE_BLANK


def _tail(store: StoreAtRest, end: int, result: int) -> list[Trouble]:
    """Bytes behind the last whole record, if any; judged as by `mqcore store verify`."""
    if store.judge().rest(end) < 0:
        return []
    flipped = result == ParseResult.PARSE_BAD_CHECKSUM and not store.unclean
    lost = store.same_boot and checksums_lost(store.listing(), result, end)
    why = ("the last run ended cleanly, so it was whole then" if flipped
           else "whole records as they were written, whose checksums are lost" if lost
           else "a torn end, cut at the next start")
    return [Trouble(end, -1, flipped or lost, f"{store.place(end)}: {_words(result)} behind the "
                                              f"last whole record: {why}")]


def _behind(store: StoreAtRest, end: int) -> list[Trouble]:
    """After a clean stop no queue points behind the log's end, else records are gone."""
    if store.unclean:
        return []
    found = []
    for name, behind in ends_of_queues(Path(store.root)):
        if behind > end:
            found.append(Trouble(end, -1, True, f"consumequeue/{name} has entries up to log "
                                                f"position {behind}, and the log ends at {end}"))
    return found


def _starts(store: StoreAtRest, targets: range, known: int, end: int) -> Iterator[int]:
    """
    Records near behind each target, ascending, each once; known: where one begins before them.

    They are looked for in the checksums beside the log, then in the consume queues, and are whole,
    so that nobody's message can pass for one; where neither has one near, the log is walked.
    """
    look = store.records(0, 0)
    sources = [ChecksumStarts(store.listing(), store.segments)] if store.checksums else []
    guides: list[QueueStarts] | None = None
    for target in targets:
        if target <= known:
            continue
        found = next((at for source in sources if (at := source.at_or_behind(target)) is not None
                      and look.is_record(at)), None)
        if found is None:
            if guides is None:
                guides = queue_starts(Path(store.root))
            near = sorted(at for guide in guides if (at := guide.at_or_behind(target)) is not None)
            found = next((at for at in near[:LOOKS_MAX] if look.is_record(at)), None)
        if found is None or found > target + targets.step:
            found = _walked(store, known, target) or found
        if found is None:
            return
        if known < found < end:
            known = found
            yield found


def _walked(store: StoreAtRest, known: int, target: int) -> int | None:
    """The first record at or behind a target, read from a known one on; None: not to be read."""
    raw = store.records(known, target)
    raw.next(1, 1)
    if raw.position >= target and not raw.is_record(raw.position):
        raw = store.records(raw.position, raw.position + 1)        # over a blank record
        raw.next(1, 1)
    return raw.position if raw.position >= target and raw.is_record(raw.position) else None
