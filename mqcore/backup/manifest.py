"""
The manifest of a backup: which files the store had, where their bytes are, and sums over them.

One JSON object, `{"backup":{...},"crc32c":"..."}`; the sum is over the bytes of the inner object.
It is written last, so that an unfinished backup is none. Nothing in it is believed: names are those
that a store has (`name_trouble`), sizes are held against each other, bytes against their sums.

A file's bytes are parts, end to end; what its length has beyond them is zeros. A part lies in the
folder of the backup that read it, an earlier one of the same chain where nothing has changed since.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec

from mqcore.backup.errors import BadBackupError
from mqcore.layout import QUEUE_ID_END
from mqcore.store.crc32 import crc32c
from mqcore.store.cutting import INDEX, QUEUES
from mqcore.store.log.folders import CHECKSUMS, LOG
from mqcore.store.paths import folder_name_trouble

VERSION: Final = 1
NAME: Final = "manifest.json"
MANIFEST_BYTES_MAX: Final = 1 << 30
FILE_BYTES_MAX: Final = (1 << 31) - 1   # Java's maps are no longer
BLOCK_BYTES: Final = 4 << 20           # of a part, for each sum
EXTENSIONS, CONFIG = "consumequeue_ext", "config"
ID: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9]{4}")
DIGITS_20: Final = re.compile(r"[0-9]{20}")
QUEUE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
INDEX_NAME: Final = re.compile(r"[0-9]{1,20}")
KEY_VALUES: Final = "namesrv/kvConfig.json"
CONFIG_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\.(?:json|journal)")

Position = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Stamp = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Sum = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes [start, start + size) of a file. backup: whose folder has them; sums: of its blocks."""

    backup: str
    start: Position
    size: Position
    crc32c: list[Sum]


class Entry(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A file of the store. length: in bytes; mtime_ns, inode: by these the next backup knows it."""

    name: str
    length: Position
    mtime_ns: Stamp
    inode: int
    parts: list[Part]

    @property
    def stored(self) -> int:
        """How many of its bytes are in parts."""
        return sum(part.size for part in self.parts)


class Manifest(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """
    One backup.

    store, host    where it was made; broker: the address in the log's last record
    began_ms       and ended_ms, wall clock
    first, end     log positions: the log that it holds, a record boundary at `end`
    records        in that part of the log which this backup read
    last_time_ms   store time of the youngest record
    damage         of the log, as it was found, "": none
    alone          checksums beside the log are of all that is in it
    parent         the backup that this one continues from, "": none; parent_sum: of its manifest
    """

    version: int
    id: str
    store: str
    host: str
    broker: str
    began_ms: Stamp
    ended_ms: Stamp
    first: Position
    end: Position
    segment_bytes: Position
    records: Position
    last_time_ms: Stamp
    damage: str
    alone: bool
    parent: str
    parent_sum: Sum
    files: list[Entry]

    @property
    def bytes(self) -> int:
        """Of the log."""
        return self.end - self.first

    def own_bytes(self) -> int:
        """What lies in this backup's own folder."""
        return sum(part.size for entry in self.files for part in entry.parts
                   if part.backup == self.id)


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    backup: msgspec.Raw
    crc32c: str


def part_name(entry: str, part: Part) -> str:
    """Below its backup's folder: the file's own name, with where it continues behind the first."""
    return entry if part.start == 0 else f"{entry}@{part.start}"


def encode(manifest: Manifest) -> bytes:
    raw = msgspec.json.encode(manifest)
    return b'{"backup":%s,"crc32c":"%08x"}\n' % (raw, crc32c(raw))


def decode(raw: bytes, where: Path | str) -> tuple[Manifest, int]:
    """(the manifest, the sum over it). Raises BadBackupError."""
    try:
        sealed = msgspec.json.decode(raw, type=_Sealed)
        inner = bytes(sealed.backup)
        found = crc32c(inner)
        if sealed.crc32c != f"{found:08x}":
            raise BadBackupError(f"{where}: other bytes than its sum was made of: damaged")
        manifest = msgspec.json.decode(inner, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadBackupError(f"{where}: no manifest of a backup: {error}") from None
    if manifest.version != VERSION:
        raise BadBackupError(f"{where}: version {manifest.version}, expected {VERSION}")
    _check(manifest, where)
    return manifest, found


def name_trouble(name: str) -> str | None:
    """Why a backup has no file of this name; None: it may."""
    folder, _, rest = name.partition("/")
    forms: dict[str, Callable[[str], object]] = {
        LOG: DIGITS_20.fullmatch, CHECKSUMS: DIGITS_20.fullmatch, INDEX: INDEX_NAME.fullmatch,
        CONFIG: CONFIG_NAME.fullmatch, QUEUES: _queue_file, EXTENSIONS: _queue_file,
    }
    if name == KEY_VALUES or (folder in forms and forms[folder](rest)):
        return None
    return f"{name[:200]!r} is no file of a store's that a backup has"


def _queue_file(rest: str) -> bool:
    parts = rest.split("/")
    return (len(parts) == 3 and folder_name_trouble(parts[0]) is None
            and QUEUE_ID.fullmatch(parts[1]) is not None and int(parts[1]) < QUEUE_ID_END
            and DIGITS_20.fullmatch(parts[2]) is not None)


def _check(manifest: Manifest, where: Path | str) -> None:
    """What the members say has to be possible. Raises BadBackupError."""
    trouble = next(_troubles(manifest), None)
    if trouble is not None:
        raise BadBackupError(f"{where}: {trouble}")


def _troubles(manifest: Manifest) -> Iterator[str]:
    for id_ in (manifest.id, manifest.parent):
        if id_ and not ID.fullmatch(id_):
            yield f"{id_[:100]!r} is no name of a backup"
    if not manifest.id:
        yield "it has no name"
    names = set()
    for entry in manifest.files:
        trouble = name_trouble(entry.name)
        if trouble is not None:
            yield trouble
        if entry.name in names:
            yield f"{entry.name} is there twice"
        names.add(entry.name)
        if not 0 <= entry.inode < 1 << 64:
            yield f"{entry.name}: an inode of more than 64 bits, or less than 0"
        if entry.length > FILE_BYTES_MAX:
            yield f"{entry.name}: {entry.length} bytes, no file of a store has as many"
        at = 0
        for part in entry.parts:
            if not ID.fullmatch(part.backup) or part.backup > manifest.id:
                yield f"{entry.name}: {part.backup[:100]!r} is no backup before this one"
            if part.start != at or part.size == 0:
                yield f"{entry.name}: parts that do not go on end to end"
            if len(part.crc32c) != -(-part.size // BLOCK_BYTES):
                yield f"{entry.name}: {len(part.crc32c)} sums for {part.size} bytes"
            at += part.size
        if entry.name.startswith((f"{CONFIG}/", KEY_VALUES)) and at < entry.length:
            yield f"{entry.name}: {at} bytes, and a length of {entry.length}"
        if at > entry.length:
            yield f"{entry.name}: {at} bytes, and a length of {entry.length}"
    yield from _log_troubles(manifest)


def _log_troubles(manifest: Manifest) -> Iterator[str]:
    log = sorted((int(entry.name.rpartition("/")[2]), entry) for entry in manifest.files
                 if entry.name.startswith(f"{LOG}/"))
    at, size = manifest.first, manifest.segment_bytes
    segments = {start for start, _ in log}
    for entry in manifest.files:
        folder, _, name = entry.name.partition("/")
        if folder == CHECKSUMS and int(name) not in segments:
            yield f"{entry.name}: of no segment of the log"
    if log and (size == 0 or at % size):
        yield f"a log that begins at {at}, with segments of {size} bytes"
    for start, entry in log:
        if start != at or entry.length != size:
            yield f"{entry.name}: no segment of {size} bytes at {at}"
        if entry.stored != min(size, manifest.end - start):
            yield f"{entry.name}: {entry.stored} bytes of a log that ends at {manifest.end}"
        at = start + size
    if manifest.end > at or (log and manifest.end <= log[-1][0]) or manifest.end < manifest.first:
        yield f"a log from {manifest.first} to {manifest.end} in {len(log)} segments"
