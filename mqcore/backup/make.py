"""
Makes a backup of a store, into a folder of backups or as a stream.

The order is what makes it consistent beside a running broker. Consumer and delay offsets are read
first: what they speak of is in the log by then. Then the log's end is found, at a record boundary,
and the log copied up to there: whatever was acknowledged before the backup began is below. Queues
and index come after it, so that they reach as far; what they say beyond, a restore cuts. Topics and
groups come last: each record's topic was in its file before.

Only whole segments of the log are linked, in order, and each is on the disk before its link: no
start of a broker writes to them again. All else is a copy. What is unfinished has another name, and
no manifest. Nothing is written below the store, and no lock of it is taken.
"""
from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from mqcore.backup.chain import Backups
from mqcore.backup.errors import BackupError, BadBackupError
from mqcore.backup.manifest import (
    ID,
    NAME,
    VERSION,
    Entry,
    Manifest,
    Part,
    encode,
    name_trouble,
    part_name,
)
from mqcore.backup.pieces import (
    BLOCK_BYTES,
    CLONED,
    COPIED,
    LINKED,
    Pace,
    clone,
    data_size,
    link,
    opened_below,
    summed,
    sync_tree,
    written,
)
from mqcore.backup.source import Log, Source
from mqcore.backup.stream import TarWriter
from mqcore.store import files
from mqcore.store.crc32 import crc32c
from mqcore.store.log.folders import LOG, LogFolders

UNFINISHED: Final = re.compile(rf"\.{ID.pattern}\.unfinished")
SETTLED_NS: Final = 600_000_000_000     # writes to a mapped page change no time while it is dirty
SAME_BYTES: Final = 1 << 20             # before a parent's end, held against the parent's
NUMBER_MAX, REST_MAX = 9_999, 999_999     # in a name
ID_TIME: Final = "%Y%m%dT%H%M%SZ"
Told = Callable[[int], None]


@dataclass
class Made:
    """What was done. how: bytes linked, cloned and copied; removed: older backups that went."""

    manifest: Manifest
    path: str
    seconds: float
    how: dict[str, int] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)


class Sink(Protocol):
    """Where the bytes go."""

    def segment(self, name: str, fd: int, part: Part, *, whole: bool, path: Path) -> None: ...
    def file(self, name: str, fd: int, part: Part) -> None: ...
    def content(self, name: str, raw: bytes, part: Part) -> None: ...


class FolderSink:
    """Files below one backup's folder. copy: nothing is linked or cloned."""

    def __init__(self, folder: Path, pace: Pace, *, copy: bool) -> None:
        self._folder = folder
        self._pace = pace
        self._copy = copy
        self.how = {LINKED: 0, CLONED: 0, COPIED: 0}

    def segment(self, name: str, fd: int, part: Part, *, whole: bool, path: Path) -> None:
        """
        A part of a segment. whole: it is all of one that is not written any more; path: the
        checksums of its records.
        """
        target = self._target(name, part)
        if whole and not self._copy:
            if path.exists():
                with files.opened(path, os.O_RDONLY) as checksums:
                    files.calls.sync(checksums)
            files.calls.sync(fd)
            how = CLONED if clone(fd, target) else LINKED if link(fd, target) else COPIED
            if how != COPIED:
                part.crc32c = summed(fd, 0, part.size, self._pace)
                self.how[how] += part.size
                return
        self._copied(target, fd, part)

    def file(self, name: str, fd: int, part: Part) -> None:
        self._copied(self._target(name, part), fd, part)

    def content(self, name: str, raw: bytes, part: Part) -> None:
        target = self._target(name, part)
        with written(target, part.size) as put:
            part.crc32c = _sums(raw, put)
        self.how[COPIED] += part.size

    def _copied(self, target: Path, fd: int, part: Part) -> None:
        with written(target, part.size) as put:
            part.crc32c = summed(fd, part.start, part.size, self._pace, put)
        self.how[COPIED] += part.size

    def _target(self, name: str, part: Part) -> Path:
        target = self._folder / part_name(name, part)
        files.make_folders(target.parent)
        return target


class StreamSink:
    """Members of a tar."""

    def __init__(self, tar: TarWriter, pace: Pace) -> None:
        self._tar = tar
        self._pace = pace
        self.how = {COPIED: 0}

    def segment(self, name: str, fd: int, part: Part, *, whole: bool, path: Path) -> None:
        self.file(name, fd, part)

    def file(self, name: str, fd: int, part: Part) -> None:
        self._tar.begin(name, part.size, int(os.fstat(fd).st_mtime))
        part.crc32c = summed(fd, part.start, part.size, self._pace,
                             lambda content, _: self._tar.write(content))
        self._tar.end(part.size)
        self.how[COPIED] += part.size

    def content(self, name: str, raw: bytes, part: Part) -> None:
        self._tar.begin(name, part.size, int(time.time()))
        part.crc32c = _sums(raw, lambda content, _: self._tar.write(content))
        self._tar.end(part.size)
        self.how[COPIED] += part.size


def to_folder(store: Path, folder: Path, *, log: LogFolders | None = None,
              incremental: bool = False, copy: bool = False, keep: int | None = None,
              damaged: bool = False, rate: int | None = None, told: Told | None = None) -> Made:
    """
    Make a backup below `folder`, which holds backups alone; it is made.

    log          where the commit log lies, None: in the store
    incremental  only what is new since the last backup there; without one, all
    copy         nothing is linked or cloned
    damaged      a log with records that are not whole is taken as it is
    keep         of all backups there, so many of the newest stay, and what they continue from
    rate         bytes read a second at most; told: called with how many were read

    Raises BackupError, OSError; nothing is left behind then.
    """
    began = time.monotonic()
    source = Source(store, log)
    _check_apart(source, folder)
    try:
        files.make_folders(folder.absolute())
        with alone_in(folder):
            _remove_unfinished(folder)
            backups = Backups(folder)
            parent = backups.newest() if incremental else None
            id_ = _new_id(backups.ids())
            work = folder / f".{id_}.unfinished"
            files.calls.make_folder(work, files.OWN_FOLDER_MODE)
            try:
                pace = Pace(rate, told)
                sink = FolderSink(work, pace, copy=copy)
                manifest = _make(source, sink, pace, id_, backups if parent else None, parent,
                                 damaged=damaged)
                files.write_new(work / NAME, encode(manifest))
                sync_tree(work)
                files.calls.rename(work, folder / id_)
            except BaseException:
                shutil.rmtree(work, ignore_errors=True)
                raise
            files.sync_folder(folder)
            removed = [] if keep is None else _remove_old(backups, keep)
    finally:
        source.close()
    return Made(manifest, str(folder / id_), time.monotonic() - began, sink.how, removed)


def to_stream(store: Path, out: BinaryIO, *, log: LogFolders | None = None,
              damaged: bool = False, rate: int | None = None, told: Told | None = None) -> Made:
    """Write a backup to a stream, as `to_folder`. Raises BackupError, OSError."""
    began = time.monotonic()
    source = Source(store, log)
    try:
        pace, tar = Pace(rate, told), TarWriter(out)
        sink = StreamSink(tar, pace)
        manifest = _make(source, sink, pace, _new_id([]), None, None, damaged=damaged)
        raw = encode(manifest)
        tar.begin(NAME, len(raw), manifest.ended_ms // 1000)
        tar.write(raw)
        tar.end(len(raw))
        tar.close()
    finally:
        source.close()
    return Made(manifest, "-", time.monotonic() - began, sink.how)


# -- what a backup takes ---------------------------------------------------------------------------

def _make(source: Source, sink: Sink, pace: Pace, id_: str, backups: Backups | None,
          parent: Manifest | None, *, damaged: bool) -> Manifest:
    began_ns = time.time_ns()
    offsets = source.config(offsets=True)
    source.wait_for_pool()
    log = source.log(parent.end if parent is not None else 0, pace, damaged=damaged)
    known: dict[str, Entry] = {}
    if parent is not None:
        assert backups is not None
        _check_parent(source, log, backups, parent)
        known = {entry.name: entry for entry in parent.files}
    entries = [*_segments(source, sink, log, id_, known)]
    source.wait_for_queues(log)
    entries += _files(source, sink, log, pace, id_, known, parent)
    for name, (raw, status) in {**offsets, **source.config(offsets=False)}.items():
        part = Part(id_, 0, len(raw), [])
        if raw:
            sink.content(name, raw, part)
        entries.append(Entry(name, len(raw), status.st_mtime_ns, status.st_ino,
                             [part] if raw else []))
    return Manifest(
        version=VERSION, id=id_, store=str(source.root), host=socket.gethostname(),
        broker=source.broker(log) or (parent.broker if parent is not None else ""),
        began_ms=began_ns // 1_000_000, ended_ms=time.time_ns() // 1_000_000,
        first=log.first, end=log.end, segment_bytes=log.segment_bytes, records=log.records,
        last_time_ms=max(log.last_time_ms, parent.last_time_ms if parent is not None else 0),
        damage=log.damage or (parent.damage if parent is not None else ""), alone=source.alone,
        parent=parent.id if parent is not None else "",
        parent_sum=backups.sum_of(parent.id) if parent is not None and backups is not None else 0,
        files=entries)


def _segments(source: Source, sink: Sink, log: Log, id_: str, known: dict[str, Entry],
              ) -> Iterator[Entry]:
    for start, fd in log.segments:
        name = f"{LOG}/{start:020d}"
        stop = min(log.end - start, log.segment_bytes)
        before = known.get(name)
        parts = list(before.parts) if before is not None else []
        have = sum(part.size for part in parts)
        if have < stop:
            part = Part(id_, have, stop - have, [])
            sink.segment(name, fd, part, whole=not have and stop == log.segment_bytes
                         and log.end > start + stop,
                         path=source.listing.log.checksums_of(start))
            parts.append(part)
        status = os.fstat(fd)
        yield Entry(name, log.segment_bytes, status.st_mtime_ns, status.st_ino, parts)


def _files(source: Source, sink: Sink, log: Log, pace: Pace, id_: str,
           known: dict[str, Entry], parent: Manifest | None) -> Iterator[Entry]:
    settled_ns = parent.began_ms * 1_000_000 - SETTLED_NS if parent is not None else 0
    for name, path, newest in _with_newest(*source.checksums(log), *source.queues()):
        if name_trouble(name) is not None:
            continue                             # no file of a store's: a start passes it over, too
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:                # nobody made it, or it was deleted meanwhile
            continue
        try:
            status = os.fstat(fd)
            entry = Entry(name, status.st_size, status.st_mtime_ns, status.st_ino, [])
            before = known.get(name)
            settled = not newest and status.st_mtime_ns < settled_ns
            if before is not None and _is_as_before(before, entry, fd, pace, settled=settled):
                yield before
                continue
            # it may have grown since `status`: no part is longer than its file
            part = Part(id_, 0, min(data_size(fd), status.st_size), [])
            if part.size:
                sink.file(name, fd, part)
                entry.parts.append(part)
            yield entry
        finally:
            os.close(fd)


def _with_newest(*found: tuple[str, Path]) -> Iterator[tuple[str, Path, bool]]:
    """With whether a file is the last of its folder, which is written further."""
    for (name, path), (_, after) in zip_longest(found, found[1:], fillvalue=("", Path())):
        yield name, path, path.parent != after.parent


def _is_as_before(before: Entry, now: Entry, fd: int, pace: Pace, *, settled: bool) -> bool:
    """
    Whether a file has the bytes that it had; settled: its time is enough. Stock brokers write
    through maps, which changes the time once for all that follows until the kernel has written the
    page.
    """
    if before.length != now.length or len(before.parts) > 1:
        return False
    if settled and (before.mtime_ns, before.inode) == (now.mtime_ns, now.inode):
        return True
    size = data_size(fd)
    return size == before.stored and summed(fd, 0, size, pace) == [
        one for part in before.parts for one in part.crc32c]


def _sums(raw: bytes, put: Callable[[bytes, int], None]) -> list[int]:
    sums = []
    for at in range(0, len(raw), BLOCK_BYTES):
        block = raw[at:at + BLOCK_BYTES]
        sums.append(crc32c(block))
        put(block, at)
    return sums


# -- what it goes on from --------------------------------------------------------------------------

def _check_parent(source: Source, log: Log, backups: Backups, parent: Manifest) -> None:
    """
    The store's log is the parent's, gone on: the last of its bytes are there. Raises BackupError.
    """
    other = (f"{backups.folder / parent.id} is not of what {source.root} holds now: make a backup "
             "without --incremental")
    if log.segment_bytes != parent.segment_bytes and parent.end > parent.first:
        raise BackupError(f"{other} (segments of another size)")
    if log.end < parent.end or log.first < parent.first or log.first > parent.end:
        raise BackupError(f"{other} (its log ends at {parent.end}, that of the store goes from "
                          f"{log.first} to {log.end})")
    backups.check_there(parent)
    size = parent.segment_bytes
    start = (parent.end - 1) // size * size if parent.end > parent.first else -1
    for entry in parent.files:
        if entry.name != f"{LOG}/{start:020d}" or start < log.first:
            continue
        part = entry.parts[-1]
        length = min(SAME_BYTES, part.size)
        with opened_below(backups.folder, f"{part.backup}/{part_name(entry.name, part)}") as fd:
            tail = os.pread(fd, length, part.size - length)
        if not source.same_bytes(parent.end - length, tail):
            raise BackupError(f"{other} (other bytes before log position {parent.end})")


# -- the folder of backups -------------------------------------------------------------------------

def _check_apart(source: Source, folder: Path) -> None:
    """Nothing is written into the store, and no part of it is what --keep removes."""
    place = folder.absolute().resolve()
    for path in map(Path.resolve, source.folders):
        if place.is_relative_to(path):
            raise BackupError(f"{folder} lies in the store: nothing is written there")
        if path.is_relative_to(place) and ID.fullmatch(path.relative_to(place).parts[0]):
            raise BackupError(f"{path} lies in {folder}, and is called as a backup there is")


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One at a time makes or removes backups there. Raises BackupError."""
    with files.opened(folder / ".lock", os.O_RDWR | os.O_CREAT) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"{folder}: another backup is being made there") from None
        yield


def _new_id(there: list[str]) -> str:
    """A name behind all others, whatever the clock says."""
    now = time.strftime(ID_TIME, time.gmtime())
    if not there or there[-1][:len(now)] < now:
        return f"{now}-0000"
    stamp, _, number = there[-1].rpartition("-")
    if int(number) < NUMBER_MAX:
        return f"{stamp}-{int(number) + 1:04d}"
    date, rest = stamp[:8], int(stamp[9:15]) + 1         # no time of day, but behind it
    if rest > REST_MAX:
        raise BackupError(f"no name is left behind {there[-1]}: begin another folder")
    return f"{date}T{rest:06d}Z-0000"


def _remove_unfinished(folder: Path) -> None:
    for entry in list(os.scandir(folder)):
        if UNFINISHED.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)


def _remove_old(backups: Backups, keep: int) -> list[str]:
    """
    All but the newest, and those that these have parts in; no folder without a manifest, which was
    not made here. Returns what went.
    """
    ids = backups.ids()
    needed = set(ids[-keep:])
    for id_ in ids[-keep:]:
        try:
            needed |= backups.needed_by(backups.manifest(id_))
        except BadBackupError as error:
            raise BackupError(f"{backups.folder / ids[-1]} is done, and no old backup is removed: "
                              f"{error}") from None
    removed = []
    for id_ in ids:
        if id_ not in needed and (backups.folder / id_ / NAME).is_file():
            away = backups.folder / f".{id_}.unfinished"
            files.calls.rename(backups.folder / id_, away)
            with suppress(FileNotFoundError):
                shutil.rmtree(away)
            removed.append(id_)
    files.sync_folder(backups.folder)
    return removed
