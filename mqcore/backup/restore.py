"""
Makes a store of a backup, one as after a clean stop: a broker, ours or a stock one, starts on it.

Every byte is held against its sum. The log is cut where it is told, its records are checked once
more, and what queues, index and offsets say beyond it goes. Queues that do not hold every record go
as a whole: the next start writes them anew from the log. No file says what the old broker believed
of its queues (`queueEnds.bin`) or how it ended (`abort`).
"""
from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from mqcore.backup import cut as places
from mqcore.backup import tables
from mqcore.backup.chain import Backups
from mqcore.backup.cut import RestingLog
from mqcore.backup.errors import BackupError, BadBackupError
from mqcore.backup.manifest import (
    CONFIG,
    EXTENSIONS,
    NAME,
    Entry,
    Manifest,
    decode,
)
from mqcore.backup.pieces import Pace, read_part, sync_tree, written
from mqcore.backup.stream import unpack
from mqcore.broker.tables.own_offsets import FILE_NAME as OWN_OFFSETS
from mqcore.store import checkpoint, cutting, files
from mqcore.store import restored as restored_mark
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.cutting import INDEX, QUEUES
from mqcore.store.log import owner
from mqcore.store.log.folders import CHECKSUMS, LOG, LogFolders
from mqcore.store.ownership import StoreInUseError, StoreLock
from mqcore.store.paths import queue_folders
from mqcore.store.verify.report import DAMAGE, MEND, Report
from mqcore.store.verify.store import DELAY_LEVELS_MS, verify

WORK: Final = ".restore"
STREAM: Final = ".stream"
REBUILT: Final = (QUEUES, EXTENSIONS, INDEX)
LEFT_OUT: Final = (f"{CONFIG}/{OWN_OFFSETS}",)     # a slave's word to the master that it had


@dataclass
class Restored:
    """
    What was made. first, end: the log, in positions; entries_cut: of queues, behind the end;
    offsets_cut: of groups and delay levels; rebuilt: what the next start writes anew, and why;
    report: the verification of the store as it is now.
    """

    manifest: Manifest
    end: int
    last_time_ms: int
    report: Report
    seconds: float = 0.0
    entries_cut: int = 0
    offsets_cut: int = 0
    rebuilt: dict[str, str] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        return self.report.figures.get("records", 0)


@dataclass(frozen=True)
class Until:
    """Where to cut: at the store time of records, or at a log position; neither: nowhere."""

    time_ms: int | None = None
    position: int | None = None

    def cut(self, log: RestingLog) -> int:
        if self.time_ms is not None:
            return places.at_time(log, self.time_ms)
        if self.position is not None:
            return places.at_position(log, self.position)
        return log.end


def restore(source: Path | BinaryIO, target: Path, until: Until | None = None, *,
            delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
            told: Callable[[int], None] | None = None) -> Restored:
    """
    Make a store at `target` of a backup: a backup's folder, a folder of backups (its newest), or a
    stream.

    delay_levels_ms  the broker's messageDelayLevel
    told             called with how many bytes were read

    Raises BackupError (BadBackupError: the backup's fault), OSError; nothing is left behind then.
    """
    began = time.monotonic()
    if "\n" in str(target.absolute()):
        raise BackupError(f"{target}: expected a path of one line, as a store has")
    if target.is_symlink() or (target.exists() and (
            not target.is_dir() or any(target.iterdir()))):
        raise BackupError(f"{target} is not empty: a store is made at a new place")
    if isinstance(source, Path):
        Backups.at(source)                    # before any folder is made
    made = not target.exists()
    work = target.absolute() / WORK
    files.make_folders(target.absolute().parent)
    if made:
        files.calls.make_folder(target, files.OWN_FOLDER_MODE)
    try:
        files.calls.make_folder(work, files.FOLDER_MODE)
    except FileExistsError:
        raise BackupError(f"{target} is not empty: another restore is at work there") from None
    except OSError:
        if made:
            files.calls.remove_folder(target)
        raise
    locks = [_held(target, work)]
    try:
        pace = Pace(told=told)
        if isinstance(source, Path):
            backups, id_ = Backups.at(source)
            manifest = backups.manifest(id_)
        else:
            backups, manifest = _unpacked(source, work.parent / STREAM, pace)
        backups.check_there(manifest)
        for entry in manifest.files:
            if entry.name not in LEFT_OUT:
                _place(backups.folder, entry, work / entry.name, pace,
                       take=not isinstance(source, Path))
        restored = _finish(work, manifest, until or Until(), delay_levels_ms)
        shutil.rmtree(work.parent / STREAM, ignore_errors=True)
        locks.append(StoreLock(work, changes=True))    # its file replaces the other one
        _into_place(work)
    except BaseException:
        (target / "lock").unlink(missing_ok=True)
        for left in (work, work.parent / STREAM):
            shutil.rmtree(left, ignore_errors=True)
        if made:
            shutil.rmtree(target, ignore_errors=True)
        raise
    finally:
        for lock in locks:
            lock.release()
    restored.seconds = time.monotonic() - began
    return restored


def _held(target: Path, work: Path) -> StoreLock:
    """No broker begins on what is half there. Raises BackupError, OSError."""
    try:
        return StoreLock(target, changes=True)
    except StoreInUseError as error:
        files.calls.remove_folder(work)
        raise BackupError(str(error)) from error


def _unpacked(stream: BinaryIO, folder: Path, pace: Pace) -> tuple[Backups, Manifest]:
    """A stream's members as a folder of one backup."""
    files.make_folders(folder / "members")
    raw = unpack(stream, folder / "members", lambda _: None)
    manifest, _ = decode(raw, NAME)
    if manifest.parent:
        raise BadBackupError(f"the stream goes on from {manifest.parent}: it is not whole")
    files.calls.rename(folder / "members", folder / manifest.id)
    return Backups(folder), manifest


def _place(folder: Path, entry: Entry, target: Path, pace: Pace, *, take: bool) -> None:
    """A file of the store, of its parts. take: the parts are not needed any more."""
    files.make_folders(target.parent)
    if take and len(entry.parts) == 1:
        part = entry.parts[0]
        read_part(folder, entry, part, pace, None)
        files.calls.rename(folder / part.backup / entry.name, target)
        with files.opened(target, os.O_WRONLY) as fd:
            files.calls.truncate(fd, entry.length)
        return
    with written(target, entry.length) as put:
        for part in entry.parts:
            def at_its_place(content: bytes, at: int, start: int = part.start) -> None:
                put(content, start + at)

            read_part(folder, entry, part, pace, at_its_place)


def _times_as_they_were(root: Path, manifest: Manifest) -> None:
    """Of tables: of two that hold the same offsets the younger one counts."""
    for entry in manifest.files:
        if entry.name.startswith(f"{CONFIG}/") and entry.name not in LEFT_OUT:
            os.utime(root / entry.name, ns=(entry.mtime_ns, entry.mtime_ns))


def _finish(root: Path, manifest: Manifest, until: Until,
            delay_levels_ms: Sequence[int]) -> Restored:
    for folder in (LOG, QUEUES, CONFIG):
        files.make_folders(root / folder)
    if manifest.damage and until != Until():
        raise BackupError("the backup is of a damaged log, which is restored as a whole and not up "
                          f"to somewhere: {manifest.damage}")
    _times_as_they_were(root, manifest)
    log = RestingLog.restored(root, manifest)
    cut = until.cut(log)
    undone = places.deliveries(root, log, cut)
    revives = cutting.ends_lives(root, log.folders, log.segment_bytes, cut, log.end)
    cutting.cut_log(LogFolders((root / LOG,), store=root), manifest.segment_bytes, cut)
    entries = cutting.cut_queues(root, cut)
    cutting.cut_index(root, cut)
    if manifest.alone:
        files.make_folders(root / CHECKSUMS)
        owner.mark_alone(root / "lock")
    restored_mark.mark(root)
    last_ms = places.last_time(log, cut)
    checkpoint.write(root / "checkpoint", Checkpoint(log_time_ms=last_ms))
    if revives:
        cutting.begin_anew(root)
    report, rebuilt = _verified(root, manifest, cut, delay_levels_ms)
    offsets = tables.trim(root, log, tables.ends_of(report.queues), tables.Cut(
        cut, last_ms, undone))
    return Restored(manifest, cut, last_ms, report, entries_cut=entries, offsets_cut=offsets,
                    rebuilt=rebuilt)


def _verified(root: Path, manifest: Manifest, cut: int, delay_levels_ms: Sequence[int],
              ) -> tuple[Report, dict[str, str]]:
    """
    (the verification of a restored store, what was taken away since it is not the log's). Raises
    BadBackupError: the log itself is not sound, and was when it was backed up.
    """
    report = verify(root, delay_levels_ms=delay_levels_ms)
    rebuilt: dict[str, str] = {}
    for finding in report.findings:
        part = finding.file.split("/")[0]
        if finding.severity == DAMAGE and part not in REBUILT and not manifest.damage:
            raise BadBackupError(f"what was restored is no sound store: {finding.line()}")
        if part in (QUEUES, EXTENSIONS) and finding.severity in (DAMAGE, MEND):
            rebuilt.update(dict.fromkeys(REBUILT, finding.line()))
        elif part == INDEX and finding.severity == DAMAGE:
            rebuilt.setdefault(INDEX, finding.line())
    if report.figures["end"] != cut:
        raise BadBackupError(f"what was restored is no sound store: its log ends at "
                             f"{report.figures['end']}, expected {cut}")
    if rebuilt:
        _remove(root, rebuilt, report)
        report = verify(root, delay_levels_ms=delay_levels_ms)
    return report, rebuilt


def _remove(root: Path, parts: Collection[str], report: Report) -> None:
    """What the next start writes anew goes."""
    kept = report.expired_queues()
    for part in parts:
        if part == QUEUES:
            for topic, queue_id, folder in list(queue_folders(root / QUEUES)):
                if f"{QUEUES}/{topic}/{queue_id}" not in kept:
                    shutil.rmtree(folder, ignore_errors=True)
        else:
            shutil.rmtree(root / part, ignore_errors=True)


def _into_place(work: Path) -> None:
    """All that was made moves up, the log last: without it there is no store."""
    sync_tree(work)
    for path in sorted(work.iterdir(), key=lambda path: (path.name == LOG, path.name)):
        files.calls.rename(path, work.parent / path.name)
    files.calls.remove_folder(work)
    files.sync_folder(work.parent)
    files.sync_folder(work.parent.parent)
