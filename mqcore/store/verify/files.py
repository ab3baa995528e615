"""
The files of a store at rest, as their names and lengths tell (store.md 1): which segments, queues
and index files there are, and what breaks the rules of loading. Sizes are taken from the files.
"""
from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from mqcore.layout import CQ_ENTRY_SIZE, INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE
from mqcore.store.log.folders import CHECKSUMS, LOG, LogFolders
from mqcore.store.paths import QUEUE_ID_END, folder_name_trouble
from mqcore.store.verify.report import DAMAGE, MEND, NOTE, Report

NAME_DIGITS: Final = 20
ENTRY_SIZE: Final = CQ_ENTRY_SIZE
QUEUE_FILE_DEFAULT: Final = 6_000_000
INDEX_HEADER: Final = INDEX_HEADER_SIZE
INDEX_ENTRY: Final = INDEX_ENTRY_SIZE
INDEX_SLOT: Final = 4
STOCK_SLOTS: Final = 5_000_000
SIGNS_NEEDED: Final = 3                # of the five that speak for a number of slots
READ_BYTES: Final = 1 << 20


@dataclass
class FilesOfQueue:
    """One queue's files; offsets are queue offsets, ext_bytes the size of an ext file or 0."""

    topic: str
    queue_id: int
    first: int
    limit: int
    ext_bytes: int = 0


class NoLogError(FileNotFoundError):
    """There is no commit log in a store, and nothing says where else it is."""


def need_log(root: Path, what_else: str) -> None:
    """Raises NoLogError: queues and index without their log would all seem wrong."""
    if not (root / LOG).is_dir():
        raise NoLogError(f"{root}: there is no {LOG} in this store: {what_else}")


@dataclass
class StoreListing:
    """
    What is there. segments: (position, bytes), ascending; file_entries: of a queue file; log: the
    commit log's folders, "commitlog" below root unless they are given.
    """

    root: Path
    log: LogFolders = field(default_factory=lambda: LogFolders(()))
    segment_bytes: int = 0
    segments: list[tuple[int, int]] = field(default_factory=list)
    file_entries: int = QUEUE_FILE_DEFAULT // ENTRY_SIZE
    queues: list[FilesOfQueue] = field(default_factory=list)
    index: list[Path] = field(default_factory=list)
    index_slots: int = 0
    index_entries: int = 0

    def __post_init__(self) -> None:
        if not self.log.all():
            self.log = LogFolders((self.root / LOG,))
        self.log = replace(self.log, store=self.root)


def usual(sizes: Iterable[int]) -> int:
    """The length that most files have, the larger one on a tie; 0: no file has any."""
    counts = Counter(size for size in sizes if size > 0)
    return max(counts, key=lambda size: (counts[size], size)) if counts else 0


def misplaced_checksums(files: StoreListing) -> list[str]:
    """What stands where checksums belong and is none, by name below the store; after read_log."""
    folder = files.log.checksums_folder
    if not folder.is_dir():
        return [CHECKSUMS] if os.path.lexists(folder) else []
    return [f"{CHECKSUMS}/{path.name}" for path in map(
                files.log.checksums_of, (start for start, _ in files.segments))
            if os.path.lexists(path) and not path.is_file()]


def read_log(files: StoreListing, report: Report, *, unclean: bool) -> None:
    """The commit log's segments."""
    found = []
    for entry in files.log.entries():
        name = f"commitlog/{entry.name}"
        if not _is_segment_name(entry.name) or not entry.is_file():
            report.add(DAMAGE, name, None, "not a segment; expected files named by 20 digits only, "
                                           "no broker starts with it")
            continue
        found.append((int(entry.name), entry.stat().st_size))
    size = files.segment_bytes = usual(length for _, length in found)
    for start, length in found:
        name = f"commitlog/{start:020d}"
        if length == 0:
            report.add(MEND if unclean else DAMAGE, name, None,
                       f"empty, expected {size} bytes: made, and not yet given its length")
            continue
        if length != size:
            report.add(DAMAGE, name, None, f"{length} bytes, expected {size} as the others have")
        if start % size:
            report.add(DAMAGE, name, None, f"begins at {start}, expected a multiple of {size}")
        if files.segments and start < sum(files.segments[-1]):
            report.add(DAMAGE, name, None, f"begins at {start}, inside the segment before")
            continue
        if files.segments and start != files.segments[-1][0] + size:
            report.add(DAMAGE, "commitlog", None,
                       f"no segment {files.segments[-1][0] + size:020d} before {start:020d}")
        files.segments.append((start, min(length, size)))


def read_queues(files: StoreListing, report: Report, *, unclean: bool) -> None:
    """The consume queues and their ext files."""
    found: list[tuple[str, int, list[tuple[int, int]]]] = []
    for topic in sorted(_scan(files.root / "consumequeue"), key=lambda entry: entry.name):
        if not topic.is_dir() or folder_name_trouble(topic.name) is not None:
            report.add(NOTE, f"consumequeue/{topic.name}", None, "not a topic's folder")
            continue
        for queue in sorted(_scan(Path(topic.path)), key=lambda entry: entry.name):
            name = f"consumequeue/{topic.name}/{queue.name}"
            if not (queue.is_dir() and queue.name.isdecimal() and queue.name.isascii()
                    and str(int(queue.name)) == queue.name and int(queue.name) < QUEUE_ID_END):
                report.add(NOTE, name, None, "not a queue's folder: its name is no queue id")
                continue
            found.append((topic.name, int(queue.name),
                          _numbered(Path(queue.path), name, report)))
    size = usual(length for _, _, those in found for _, length in those) or QUEUE_FILE_DEFAULT
    if size % ENTRY_SIZE:
        report.add(DAMAGE, "consumequeue", None,
                   f"files of {size} bytes, expected a multiple of {ENTRY_SIZE}")
        size = size // ENTRY_SIZE * ENTRY_SIZE or ENTRY_SIZE
    files.file_entries = size // ENTRY_SIZE
    ext_bytes = {(name, queue_id): usual(length for _, length in those)
                 for name, queue_id, those in _ext_queues(files.root, report)}
    for name_of_topic, queue_id, those in found:
        name = f"consumequeue/{name_of_topic}/{queue_id}"
        _check_numbered(name, those, size, report, unclean=unclean)
        starts = [start for start, _ in those if start % size == 0]
        files.queues.append(FilesOfQueue(
            name_of_topic, queue_id, first=min(starts) // ENTRY_SIZE if starts else 0,
            limit=(max(starts) + size) // ENTRY_SIZE if starts else 0,
            ext_bytes=ext_bytes.get((name_of_topic, queue_id), 0)))


def read_index(files: StoreListing, report: Report, slots: int | None) -> list[mmap.mmap]:
    """
    The index files, oldest first, mapped; slots: their number of hash slots, None: found out.

    Each file is read once through before it is mapped: a bad disk is an OSError here, not a signal.
    """
    found = []
    for entry in sorted(_scan(files.root / "index"), key=lambda entry: entry.name):
        if entry.is_file() and entry.name.isdecimal():
            found.append((Path(entry.path), entry.stat().st_size))
        else:
            report.add(NOTE, f"index/{entry.name}", None, "not an index file: brokers pass it over")
    size = usual(length for _, length in found)
    maps = []
    for path, length in found:
        name = f"index/{path.name}"
        if length == 0:
            report.add(MEND, name, None, f"empty, expected {size} bytes: made, and never written")
        elif length != size:
            report.add(DAMAGE, name, None, f"{length} bytes, expected {size} as the others have")
        else:
            files.index.append(path)
            maps.append(_mapped(path, size))
    if maps:
        files.index_slots = _slots(maps, size, slots)
        files.index_entries = max((size - INDEX_HEADER - INDEX_SLOT * files.index_slots)
                                  // INDEX_ENTRY, 0)
        if files.index_slots == 0:
            report.add(DAMAGE, "index", None, f"no number of hash slots fits files of {size} "
                                              "bytes; --index-slots gives it")
            files.index.clear()
            return []
    return maps


# -- names and lengths -----------------------------------------------------------------------------

def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_segment_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isascii() and name.isdecimal() and int(name) < 2**63


def _numbered(folder: Path, name: str, report: Report) -> list[tuple[int, int]]:
    """(start, bytes) of the files of a queue, ascending."""
    found = []
    for entry in sorted(_scan(folder), key=lambda entry: entry.name):
        if _is_segment_name(entry.name) and entry.is_file():
            found.append((int(entry.name), entry.stat().st_size))
        else:
            report.add(DAMAGE, f"{name}/{entry.name}", None,
                       "not a queue file; expected files named by 20 digits only")
    return found


def _check_numbered(name: str, those: list[tuple[int, int]], size: int, report: Report, *,
                    unclean: bool) -> None:
    before: int | None = None
    for start, length in those:
        if length != size:
            report.add(MEND if unclean and length == 0 else DAMAGE, f"{name}/{start:020d}", None,
                       f"{length} bytes, expected {size} as the others have")
        if start % size:
            report.add(DAMAGE, f"{name}/{start:020d}", None,
                       f"begins at {start}, expected a multiple of {size}")
        elif before is not None and start != before + size:
            report.add(DAMAGE, name, None, f"no file {before + size:020d} before {start:020d}")
        before = start


def _ext_queues(root: Path, report: Report) -> list[tuple[str, int, list[tuple[int, int]]]]:
    found = []
    for topic in _scan(root / "consumequeue_ext"):
        for queue in _scan(Path(topic.path)):
            if queue.is_dir() and queue.name.isdecimal():
                name = f"consumequeue_ext/{topic.name}/{queue.name}"
                those = _numbered(Path(queue.path), name, report)
                found.append((topic.name, int(queue.name), those))
    return found


# -- index files -----------------------------------------------------------------------------------

def _mapped(path: Path, size: int) -> mmap.mmap:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        at = 0
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:                    # a hole up to the end
                break
            got = os.pread(fd, READ_BYTES, at)
            if not got:
                break
            at += len(got)
        return mmap.mmap(fd, size, prot=mmap.PROT_READ)
    finally:
        os.close(fd)


def _i64(content: mmap.mmap, at: int) -> int:
    return int.from_bytes(content[at:at + 8], "big", signed=True)


def _i32(content: mmap.mmap, at: int) -> int:
    return int.from_bytes(content[at:at + 4], "big", signed=True)


def _signs(content: mmap.mmap, size: int, slots: int) -> int:
    """How many of five signs speak for this number of slots."""
    entries_at = INDEX_HEADER + INDEX_SLOT * slots
    count = _i32(content, 36)
    if slots <= 0 or count <= 1 or entries_at + INDEX_ENTRY * count > size:
        return 0
    hash_of_first = _i32(content, entries_at + INDEX_ENTRY)
    slot = _i32(content, INDEX_HEADER + INDEX_SLOT * (max(hash_of_first, 0) % slots))
    table = np.frombuffer(content, dtype=">i4", count=slots, offset=INDEX_HEADER)
    used = int(np.count_nonzero(table))
    del table                                  # the map can be closed again
    return sum((
        _i64(content, entries_at + INDEX_ENTRY + 4) == _i64(content, 16),
        _i64(content, entries_at + INDEX_ENTRY * (count - 1) + 4) == _i64(content, 24),
        content[entries_at:entries_at + INDEX_ENTRY] == bytes(INDEX_ENTRY),
        0 < slot < count,
        used == _i32(content, 32),
    ))


def _searched(content: mmap.mmap, size: int) -> list[int]:
    """Numbers of slots for which first and last entry say what the header says."""
    count = _i32(content, 36)
    first = (size - INDEX_HEADER) % INDEX_ENTRY // INDEX_SLOT
    start = INDEX_HEADER + INDEX_SLOT * first + INDEX_ENTRY + 4
    steps = (size - start - 8) // INDEX_ENTRY - max(count - 2, 0) + 1
    if count <= 1 or steps <= 0:
        return []
    begins, ends = (
        np.ndarray(shape=(steps,), dtype=">i8", buffer=content, offset=offset,
                   strides=(INDEX_ENTRY,))
        for offset in (start, start + INDEX_ENTRY * (count - 2)))
    fits = np.nonzero((begins == _i64(content, 16)) & (ends == _i64(content, 24)))[0]
    del begins, ends
    return [first + int(at) * (INDEX_ENTRY // INDEX_SLOT) for at in fits[:64]]


def _slots(maps: list[mmap.mmap], size: int, given: int | None) -> int:
    """The number of hash slots of all index files, 0: none fits."""
    if given is not None:
        return given if INDEX_HEADER + INDEX_SLOT * given + INDEX_ENTRY <= size else 0
    usual_ones = [STOCK_SLOTS] if size == INDEX_HEADER + 84 * STOCK_SLOTS else []
    usual_ones += [(size - INDEX_HEADER) // 84, (size - INDEX_HEADER) // 44]
    if all(_i32(content, 36) <= 1 for content in maps):
        return usual_ones[0]                   # they are empty: any number will do
    best = max(((_signs(content, size, slots), slots) for slots in usual_ones
                for content in maps[:8]), default=(0, 0))
    if best[0] < 5:
        searched = [slots for content in maps[:8] for slots in _searched(content, size)]
        best = max([best, *((_signs(content, size, slots), slots) for slots in searched
                            for content in maps[:8])])
    return best[1] if best[0] >= SIGNS_NEEDED else 0
