"""
The store that a backup is made of, as another process sees it: its files, and where its log ends.

A broker may run on it. It is asked nothing, no lock is taken, nothing is written. That is enough,
because a log is only appended to: bytes below a record boundary never change while a broker runs.
"""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqcore.backup.errors import BadStoreError
from mqcore.backup.manifest import (
    CONFIG,
    EXTENSIONS,
    KEY_VALUES,
    name_trouble,
)
from mqcore.backup.pieces import Pace
from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_file import DELAY_FILE
from mqcore.broker.tables.own_offsets import FILE_NAME as OWN_OFFSETS
from mqcore.layout import CQ_ENTRY_SIZE
from mqcore.store import files, ownership
from mqcore.store.cutting import INDEX, QUEUES
from mqcore.store.log.folders import CHECKSUMS, LogFolders
from mqcore.store.log.owner import alone
from mqcore.store.paths import folder_name_trouble
from mqcore.store.record import ParseResult
from mqcore.store.verify import config
from mqcore.store.verify.files import StoreListing, need_log, read_log
from mqcore.store.verify.log import LogVerifier
from mqcore.store.verify.report import DAMAGE, Report
from mqcore.store.verify.scan import LogScan
from mqcore.store.verify.words import Context
from mqcore.wire import fastjson
from mqcore.wire.records import (
    FLAG_TRANSACTION_MASK,
    TRANSACTION_COMMIT,
    Record,
    RecordError,
    decode_record,
)

STEP_BYTES: Final = 16 << 20
LOOKS: Final = 5                        # at damage that may be a write under way
LOOK_AGAIN_S: Final = 0.2
POOL_MODE: Final = "transient-pool"
POOL_WAIT_S: Final = 1.0                # five commit intervals: what was acknowledged is in a file
DISPATCH_WAIT_S: Final = 2.0
LOOK_S: Final = 0.02
NEAR_BYTES: Final = 256 << 10
OFFSET_FILES: Final = ("consumerOffset.journal", "consumerOffset.json",
                       "lmqConsumerOffset.journal", "lmqConsumerOffset.json", DELAY_FILE)


@dataclass
class Log:
    """
    The log up to a record boundary. segments: (position, open file), ascending; records: in what
    was walked over; damage: the first that was found there, "": none.
    """

    first: int
    end: int
    segment_bytes: int
    segments: list[tuple[int, int]]
    records: int
    last_time_ms: int
    damage: str = ""


class Source:
    """A store, and the folders of its log if that lies elsewhere. Raises BackupError, OSError."""

    def __init__(self, root: Path, log: LogFolders | None) -> None:
        self.root = root.absolute()
        if log is None:
            need_log(self.root, "name the folder that it lies in with --commit-log")
        self.listing = StoreListing(self.root, log or LogFolders(()))
        self.alone = alone(self.root / "lock")
        self._fds: dict[int, int] = {}

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.popitem()[1])

    @property
    def folders(self) -> list[Path]:
        """All that belong to the store, also those that a link in it leads to."""
        within = (CHECKSUMS, CONFIG, EXTENSIONS, INDEX, QUEUES)
        return [self.root, *(self.root / name for name in within), *self.listing.log.all()]

    # -- tables ------------------------------------------------------------------------------------

    def config(self, *, offsets: bool) -> dict[str, tuple[bytes, os.stat_result]]:
        """
        The files of the tables, by name, those of offsets or the others. A journal of offsets comes
        before the file that it goes on from: where that was written anew meanwhile, it has all that
        the journal says.
        """
        folder = self.root / CONFIG
        there = {path.name.removesuffix(".bak") for path in
                 (folder.iterdir() if folder.is_dir() else ())}
        there.discard(OWN_OFFSETS)               # a slave's word to its master, of no use later
        names = list(OFFSET_FILES) if offsets else sorted(there - set(OFFSET_FILES))
        found = {}
        for name in names:
            if name in there and name_trouble(f"{CONFIG}/{name}") is None:
                content = _table(folder / name)
                if content is not None:
                    found[f"{CONFIG}/{name}"] = content
        key_values = None if offsets else _table(self.root / KEY_VALUES)
        return found if key_values is None else {**found, KEY_VALUES: key_values}

    def wait_for_pool(self) -> None:
        """A broker with a transient pool: what it has acknowledged may not be in a file yet."""
        try:
            words = files.read(self.root / "abort").split()
        except FileNotFoundError:
            return
        if words and words[0] == POOL_MODE.encode() and self.is_used():
            time.sleep(POOL_WAIT_S)

    def is_used(self) -> bool:
        """Whether a broker runs on the store. No lock is kept."""
        return ownership.holder(self.root) != 0

    # -- the log -----------------------------------------------------------------------------------

    def log(self, begun: int, pace: Pace, *, damaged: bool = False) -> Log:
        """
        Where the log ends now, having read it from the segment of position `begun` on, which holds
        what is known from before. Its segments stay open: whoever deletes one takes only its name.
        damaged: records that are not whole are no reason to stop. Raises BadStoreError.
        """
        for look in range(1, LOOKS + 1):
            self._open()
            found = self._walk(begun, pace)
            if not found.damage:
                return found
            if look == LOOKS or not self.is_used():
                break
            time.sleep(LOOK_AGAIN_S)
        if damaged:
            return found
        raise BadStoreError(f"{found.damage}: the store is damaged, "
                            f"`mqcore store verify {self.root}` shows all of it; "
                            "--damaged takes it unchanged")

    def _open(self) -> None:
        """List and open the segments; one that goes meanwhile was the oldest."""
        self.close()
        listing, report = StoreListing(self.root, self.listing.log), Report(str(self.root))
        read_log(listing, report, unclean=True)
        for finding in report.findings:
            if finding.severity == DAMAGE:
                raise BadStoreError(finding.line())
        whole: list[tuple[int, int]] = []
        for start, size in listing.segments:
            try:
                self._fds[start] = os.open(
                    listing.log.path(start), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except FileNotFoundError:
                whole.clear()
                continue
            whole.append((start, size))
        for start in self._fds.keys() - dict(whole).keys():
            os.close(self._fds.pop(start))
        listing.segments = whole
        self.listing = listing

    def _walk(self, begun: int, pace: Pace) -> Log:
        """The log; its damage may be a write that is under way."""
        listing = self.listing
        if not listing.segments:
            return Log(0, 0, listing.segment_bytes, [], 0, 0)
        first, size = listing.segments[0][0], listing.segment_bytes
        part = [one for one in listing.segments if one[0] + size > begun]
        if not part:
            return Log(first, listing.segments[-1][0] + size, size, self._used(2**63), 0, 0)
        walker = LogVerifier(listing.log.text(), part, b"", b"", 1, [], checksums=self.alone)
        at = walker.position
        while walker.step(STEP_BYTES):
            pace.took(walker.position - at)
            at = walker.position
        figures = walker.figures()
        pace.took(max(figures["end"] - at, 0))
        end = max(figures["end"], first)
        return Log(first, end, size, self._used(end), figures["records"],
                   figures["last_time_ms"], self._damage(walker, figures))

    def _used(self, end: int) -> list[tuple[int, int]]:
        """The segments that hold something; one made ahead holds nothing."""
        return sorted((start, fd) for start, fd in self._fds.items() if start < end)

    def _damage(self, walker: LogVerifier, figures: dict[str, int]) -> str:
        kept, _ = walker.findings()
        context = Context(self.listing, [("", 0)] * walker.queue_count, unclean=True)
        worst = next((found for found in map(context.finding, kept)
                      if found.severity == DAMAGE), None)
        if worst is not None:
            return worst.line()
        flipped = (figures["end_result"] == ParseResult.PARSE_BAD_CHECKSUM
                   and not (self.root / "abort").exists())
        if flipped and walker.rest() >= 0:
            return (f"log position {figures['end']}: other bytes than those of its checksum, and "
                    "the last run ended cleanly")
        return ""

    def same_bytes(self, start: int, content: bytes) -> bool:
        """Whether the log has these bytes at a position, of one segment."""
        size = self.listing.segment_bytes
        fd = self._fds.get(start // size * size) if size else None
        return fd is not None and os.pread(fd, len(content), start % size) == content

    def broker(self, log: Log) -> str:
        """The address in the log's youngest record; "": it has none that is near its end."""
        newest = [(start, self.listing.segment_bytes) for start, _ in log.segments[-1:]]
        scan = LogScan(self.listing.log.text(), newest, stop=log.end,
                       from_ms=log.last_time_ms)
        raw = scan.next()
        if raw is None:
            return ""
        try:
            address, port = decode_record(raw).store_host
        except RecordError:                      # whole, and yet not to be read
            return ""
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

    def wait_for_queues(self, log: Log) -> None:
        """
        Until the queues have the log's last record: what they lack a start has to write
        anew after a restore. A broker that does not get there is not waited for.
        """
        if not self.is_used():
            return
        deadline = time.monotonic() + DISPATCH_WAIT_S
        while not self._dispatched(log) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        time.sleep(LOOK_S)                       # of the same turn others may still be written

    def _dispatched(self, log: Log) -> bool:
        last = self._last_record(log)
        if last is None:
            return True
        folder = self.root / QUEUES / last.topic / str(last.queue_id)
        place = last.queue_offset * CQ_ENTRY_SIZE
        path = max((path for path in _below(folder, 1)
                    if path.name.isdecimal() and int(path.name) <= place), default=None)
        if path is None:
            return False
        with files.opened(path, os.O_RDONLY) as fd:
            raw = os.pread(fd, 8, place - int(path.name))
        return int.from_bytes(raw, "big") == last.physical_offset and len(raw) == 8

    def _last_record(self, log: Log) -> Record | None:
        """The last one near the log's end that is in a queue; None: there is none."""
        size = self.listing.segment_bytes
        scan = LogScan(self.listing.log.text(), [(start, size) for start, _ in log.segments[-1:]],
                       start=max(log.first, log.end - NEAR_BYTES), stop=log.end)
        last = None
        while (raw := scan.next()) is not None:
            try:
                record = decode_record(raw)
            except RecordError:
                continue
            kind = record.sys_flag & FLAG_TRANSACTION_MASK
            if kind in (0, TRANSACTION_COMMIT) and folder_name_trouble(record.topic) is None:
                last = record
        return last

    # -- the others --------------------------------------------------------------------------------

    def checksums(self, log: Log) -> Iterator[tuple[str, Path]]:
        """Those of the log's segments."""
        for start, _ in log.segments:
            yield f"{CHECKSUMS}/{start:020d}", self.listing.log.checksums_of(start)

    def queues(self) -> Iterator[tuple[str, Path]]:
        """
        Files of queues, of what is beside them, and of the index. Queues first: a unit of an
        extension is in its file before its entry.
        """
        for folder in (QUEUES, EXTENSIONS):
            for path in _below(self.root / folder, 3):
                yield path.relative_to(self.root).as_posix(), path
        for path in _below(self.root / INDEX, 1):
            yield f"{INDEX}/{path.name}", path


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """Files so many folders below one, in order; what goes meanwhile is not there."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if depth > 1:
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path), depth - 1)
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _table(path: Path) -> tuple[bytes, os.stat_result] | None:
    """
    The content of a file, or of its .bak where it is none that a start reads: it is renamed over,
    and may be away for a moment. None: there is neither. Raises BackupError, OSError; it is no
    link, which would lead to what is not the store's.
    """
    journal = path.suffix == ".journal"
    read: list[Callable[[], Path]] = [lambda: path, lambda: files.beside(path, ".bak")]
    for which in read[:1] if journal else read * 2:
        try:
            with files.opened(which(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as fd:
                status = os.fstat(fd)
                with open(fd, "rb", closefd=False) as file:
                    raw = file.read()
        except FileNotFoundError:
            continue
        if journal or _is_sound(path.name, raw):
            return raw, status
    if journal or not (path.exists() or files.beside(path, ".bak").exists()):
        return None
    if not path.exists() or not files.read(path).strip():
        return None                              # empty: a start begins with none, too
    raise BadStoreError(f"{path}: no start can read it, nor {path.name}.bak: "
                        "have `mqcore store repair` look")


def _is_sound(name: str, raw: bytes) -> bool:
    """Whether a start, and so a restore, can read a table."""
    shape = config.SHAPES.get(name)
    try:
        value = config_file.as_object(raw)
        if shape is not None:
            shape(value)
    except (fastjson.JsonError, config.ShapeError):
        return False
    return True
