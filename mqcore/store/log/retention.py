"""
Retention: which commit log segments are deleted, and when; how full is too full for writes.

store.md 6.6, broker.md 9.7 (RocketMQ 4.9.8: DefaultMessageStore.CleanCommitLogService). The writer
owns the log's files, so its process runs this; mqcore/workers/writer/log_cleaner.py says when. Two
things differ from 4.9.8: a segment is deleted only when queues and index hold all of it, and a
mapping keeps a deleted file's bytes for whoever reads them just then, so that there is nothing to
wait for.
"""
from __future__ import annotations

import bisect
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mqcore.store.files import sync_folder, unlink
from mqcore.store.log.folders import LogFolders
from mqcore.store.verify.scan import LogScan
from mqcore.wire.records import decode_record

FILES_AT_ONCE = 10               # deleted in one pass
UNKNOWN_PERCENT = -1             # of a folder that is not there: deletes, as 4.9.8 does
HOUR_MS = 3_600_000
MISSED_PERCENT = 90              # of its time: another copy of the log may be a little ahead


@dataclass(frozen=True)
class Policy:
    """When files go. Percentages are of the disk that a folder lies on."""

    delete_when_hours: frozenset[int]    # local hours of the day
    reserved_ms: int                     # a file younger than this stays ...
    used_max_percent: int                # ... above this, older ones go at any hour
    clean_percent: int                   # ... above this, any file goes
    clean_enable: bool                   # False: never younger ones, however full the disk
    refuse_percent: int                  # ... above this, no more messages are taken


@dataclass(frozen=True)
class Reason:
    """Why a pass deletes: text for the log; any_age: young files too."""

    text: str
    any_age: bool


class LogPositions(Protocol):
    """The words in shared memory that this works on (mqcore.shm.retention.LogWords); bytes."""

    @property
    def first(self) -> int: ...
    @property
    def dispatched(self) -> int: ...
    def raise_first(self, position: int) -> None: ...


def used_percent(folder: Path) -> int:
    """How much of a folder's disk is in use, 0 to 100, rounded up; UNKNOWN_PERCENT on error."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return UNKNOWN_PERCENT
    used = disk.f_blocks - disk.f_bfree
    whole = used + disk.f_bavail
    return -(-100 * used // whole) if whole else UNKNOWN_PERCENT


class LogCleaner:
    """
    Deletes the oldest commit log segments; never the last one that holds a record, never one that
    is not dispatched.

    folders: of the commit log, several or one; segment_size: bytes; other_folders: further ones
    whose disk counts (the consume queues); usage: how full the disk of a folder is, in percent.
    """

    def __init__(
        self, folders: LogFolders | Path, segment_size: int, policy: Policy, words: LogPositions, *,
        other_folders: Iterable[Path] = (), usage: Callable[[Path], int] = used_percent,
    ) -> None:
        self._folders = folders if isinstance(folders, LogFolders) else LogFolders((folders,))
        self._segment_size = segment_size
        self.policy = policy                 # may be replaced any time
        self._words = words
        self._other_folders = tuple(other_folders)
        self._usage = usage
        self.young = 0                       # deleted ones that were not due by their age

    def disk_full_percent(self) -> int:
        """How full the log's disk is when that is too full for writes, else 0."""
        percent, _ = self._log_usage()
        return percent if percent > self.policy.refuse_percent else 0

    def reason(self, now_ms: int, *, manual: bool) -> Reason | None:
        """Why files may go now; None: they may not. manual: somebody asked for it."""
        usage = [self._log_usage()]
        usage += [(self._usage(folder), folder) for folder in self._other_folders]
        percent, folder = max(usage, key=lambda pair: pair[0])
        any_age = self.policy.clean_enable and percent > self.policy.clean_percent
        if any_age or percent > self.policy.used_max_percent:
            return Reason(f"the disk of {folder} is {percent} % full", any_age)
        if min(usage)[0] < 0:
            return Reason(f"how full the disk of {min(usage)[1]} is, is not known", any_age=False)
        hour = time.localtime(now_ms / 1000).tm_hour
        if hour in self.policy.delete_when_hours:
            return Reason(f"the hour is {hour}", any_age=False)
        return Reason("it was asked for", any_age=False) if manual else None

    def _log_usage(self) -> tuple[int, Path]:
        """Of several folders the one with the most room counts: there is room for new segments."""
        return min((self._usage(folder), folder) for folder in self._folders.writable)

    def segments(self) -> list[int]:
        """Start positions of the segments on disk, ascending."""
        return [start for start, _ in self._folders.segments()]

    def delete_oldest(self, passed: Callable[[int], int], reason: Reason) -> Path | None:
        """
        Delete one segment, if the oldest one is due; returns its path. passed: how many ms have
        passed since a file's time, ms since 1970. Raises OSError.

        The log's first position moves before the file goes: who reads below it is told "removed",
        and what an earlier process left lying below it goes without further questions.
        """
        found = self._folders.segments()
        if len(found) < 2:
            return None
        start, path = found[0]
        end = start + self._segment_size
        if end > self._words.first:
            is_old = self._is_old(path, passed)
            if end >= self._words.dispatched or not (is_old or reason.any_age):
                return None
            self.young += not is_old
            self._words.raise_first(found[1][0])
        self._folders.remove_checksums(start)
        unlink(path)
        sync_folder(path.parent)             # in order: a gap would be damage to the next start
        return path

    def _is_old(self, path: Path, passed: Callable[[int], int]) -> bool:
        return passed(path.stat().st_mtime_ns // 1_000_000) >= self.policy.reserved_ms


def missed_from(folders: LogFolders, segment_size: int, reserved_ms: int,
                passed: Callable[[int], int]) -> int:
    """
    From where on a copy of this log misses something when it begins later: the first segment whose
    time is not nearly over, by its file or by the first message behind it, which has the same time
    in each copy; 0: there is no segment. passed: as for delete_oldest. Raises OSError, RecordError.
    """
    found = folders.segments()
    due_ms = reserved_ms * MISSED_PERCENT // 100

    def is_old(index: int) -> bool:
        try:
            written_ms = found[index][1].stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:              # it has just been deleted
            return True
        if passed(written_ms) >= due_ms:
            return True
        start = found[index + 1][0]
        record = LogScan(folders.text(), [(start, segment_size)], start=start).next()
        return record is not None and passed(decode_record(record).store_timestamp_ms) >= due_ms

    young = bisect.bisect_left(range(len(found) - 1), True, key=lambda index: not is_old(index))
    return found[young][0] if found else 0
