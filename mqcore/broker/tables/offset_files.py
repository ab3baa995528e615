"""
The consumer offsets on disk: config/consumerOffset.json, as stock has it, and beside it
config/consumerOffset.journal with what changed since the JSON file was written.

A small table is written whole each time, as in stock. The larger the file the more seldom that is
done (FILE_BYTES_A_MS), and in between only what changed goes to the end of the journal. After a
kill the journal is laid over the file; an orderly end writes the file and removes the journal. A
stock broker passes over the journal; since it then writes the JSON file anew, our next start must
not believe the journal any more: its `base` lines say of which JSON files (size and CRC32) it is.

    crc32 of the rest, 8 hex digits, blank, then JSON and a newline:
    ["base",64123457,3735928559]               what follows comes after this JSON file
    {"T@G":{0:12,1:9},"T@H":null}              all offsets of pairs; null: removed

Everything is written in steps (`begin`), so that the caller may do them beside its other work, and
lies on disk when the steps are done.
"""
from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from mqcore.broker.tables import config_file
from mqcore.store import files
from mqcore.wire import fastjson
from mqcore.wire.bare_keys import quoted

FILE_BYTES_A_MS = 500              # 2.5 MB are written every 5 s, 60 MB every two minutes
FILE_AGE_MS_MAX = 300_000          # but none less often than this
JOURNAL_BYTES_MAX = 8 << 20        # or as long as the file; then the file is written
SOON_BYTES_MAX = 4 << 20           # are written in a moment
PAIRS_A_STEP = 500                 # a millisecond or two
MEMBER = "offsetTable"
LIGHT_MEMBER = "lmqOffsetTable"    # of light queues: a number in place of queues
_log = logging.getLogger(__name__)

Sections = dict[str, Iterator[str]]
Identity = tuple[int, int]         # size and CRC32 of a JSON file
Offset = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Changes = dict[str, dict[int, Offset] | None]
_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TABLE = msgspec.json.Decoder(dict[str, dict[int, Offset]])
_CHANGES = msgspec.json.Decoder(Changes)


class Book(Protocol):
    """The table whose files these are."""

    def take_changed(self) -> set[tuple[str, str]]: ...
    def give_back(self, changed: set[tuple[str, str]]) -> None: ...
    def enter(self, table: dict[str, dict[int, int]]) -> None: ...
    def put(self, key: str, queues: dict[int, int] | None) -> None: ...
    def sections(self) -> Sections: ...
    def text(self, topic: str, group: str) -> str | None: ...


def queues_text(queues: dict[int, int]) -> str:
    """The offsets of a pair, as 4.9.8 writes them at their place in the file."""
    inner = ",".join([f"{queue}:{offset}" for queue, offset in tuple(queues.items())])
    return f"{{{inner}\n\t\t}}"


class OffsetFiles:
    """Reads both files once, and then keeps them in step with the table."""

    def __init__(self, path: Path, book: Book) -> None:
        self._path = path
        self._journal = path.with_suffix(".journal")
        self._book = book
        self._unknown: dict[str, Any] = {}
        self._bases: list[Identity] = []       # of the JSON file and the one before it
        self._journal_end = 0                  # bytes of it that are whole
        self._next_whole_ms = 0
        self.behind = False                    # the JSON file has to be written, changes or not

    # -- reading ------------------------------------------------------------------------------

    def load(self, decode: Callable[[bytes], dict[str, Any]] | None = None) -> bool:
        """
        Fill the table; whether there was a file. decode: as `only` makes it; None: all of the file.
        Raises ConfigFileError.
        """
        collecting = gc.isenabled()
        gc.disable()                           # a million small tables: nothing to be found there
        try:
            found = config_file.find(self._path, decode or _decode)
            if found is None:
                return False
            self._enter(found.path, found.value)
            self._bases = [(len(found.raw), zlib.crc32(found.raw))]
            self.behind = found.path != self._path
        finally:
            if collecting:
                gc.enable()
        self._lay_over()
        return True

    def _enter(self, path: Path, value: dict[str, Any]) -> None:
        self._unknown = config_file.unknown_members(path, value, (MEMBER, LIGHT_MEMBER))
        table = value.get(MEMBER)
        if not isinstance(table, _Checked):
            table = config_file.entries(path, table, queues_of)
        self._book.enter(table)
        self._book.enter(config_file.entries(
            path, value.get(LIGHT_MEMBER), lambda _, one: {0: offset_of(one)}))

    def _lay_over(self) -> None:
        """What the journal says beyond the file; a torn end is what was being written at a kill."""
        try:
            lines = files.read(self._journal).splitlines(keepends=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise config_file.ConfigFileError(
                f"{self._journal}: cannot be read: {error.strerror}: mend that, or move it away to"
                " start with offsets that are minutes older") from error
        self.behind = True
        changes: list[Changes] | None = None
        for line in lines:
            entry = _entry(line)
            if entry is None:
                break
            if isinstance(entry, dict):
                if changes is not None:
                    changes.append(entry)
            elif entry in self._bases:
                changes = []
        if changes is None:
            _log.warning("%s does not belong to %s, which another broker or a person wrote since:"
                         " it is left out", self._journal, self._path.name)
            return
        for change in changes:
            for key, queues in change.items():
                self._book.put(key, queues)
        _log.info("%s: %d changed entries taken over from the last run", self._journal,
                  sum(map(len, changes)))

    def written_ns(self) -> int:
        """When something was last written to the files, by their times; 0: there are none."""
        times = [0]
        for path in (self._path, files.beside(self._path, ".bak"), self._journal):
            with contextlib.suppress(FileNotFoundError):
                times.append(path.stat().st_mtime_ns)
        return max(times)

    # -- writing ------------------------------------------------------------------------------

    def save(self) -> None:
        """
        Write the JSON file now, whole; the journal goes. Raises OSError.

        A long one takes seconds, which whoever stops a process may not wait for: what has changed
        is in the journal before it is begun.
        """
        if self._bases and self._bases[0][0] > SOON_BYTES_MAX and not self.behind:
            changed = self._book.take_changed()
            for _ in self._steps(self._append(changed), changed):
                continue
        for _ in self._steps(self._whole(0), self._book.take_changed()):
            continue

    def begin(self, now_ms: int) -> Iterator[None]:
        """
        The steps that bring everything that has changed to the disk: an iterator to be run to its
        end, by any thread, before the next. It raises OSError; then the changes are kept for the
        next time.
        """
        left_ms = self._next_whole_ms - now_ms
        journal_max = max(JOURNAL_BYTES_MAX, self._bases[0][0] if self._bases else 0)
        changed = self._book.take_changed()
        if (self.behind or not self._bases or self._journal_end > journal_max
                or not 0 < left_ms <= FILE_AGE_MS_MAX):
            return self._steps(self._whole(now_ms), changed)
        return self._steps(self._append(changed), changed)

    def _steps(self, steps: Iterator[None], changed: set[tuple[str, str]]) -> Iterator[None]:
        try:
            yield from steps
        except OSError:
            self._book.give_back(changed)
            raise

    def _whole(self, now_ms: int) -> Iterator[None]:
        files.make_folders(self._path.parent)
        temporary = files.beside(self._path, ".tmp")
        size = crc = 0
        with files.opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
            for raw in self._pieces():
                files.write_all(fd, raw, size)
                size, crc = size + len(raw), zlib.crc32(raw, crc)
                if size > config_file.FILE_BYTES_MAX:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(self._path))
                yield
            files.calls.sync(fd)
        if self._journal_end:                  # from the rename on it has nothing beyond the file
            self._put_lines([_line(f'["base",{size},{crc}]')])
        if self._path.exists():                # without it the .bak counts: nobody is misled
            files.calls.rename(self._path, files.beside(self._path, ".bak"))
        files.calls.rename(temporary, self._path)
        files.sync_folder(self._path.parent)
        self._bases = [(size, crc), *self._bases[:1]]
        self.behind = False
        self._next_whole_ms = now_ms + min(size // FILE_BYTES_A_MS, FILE_AGE_MS_MAX)
        self._journal_end = 0
        if self._journal.exists():
            files.unlink(self._journal)

    def _pieces(self) -> Iterator[bytes]:
        """The text of the file, as 4.9.8 writes it, piece by piece."""
        members: dict[str, Iterator[str] | None] = dict.fromkeys(self._unknown)
        members.update(self._book.sections())
        mark = "{"
        for name in sorted(members):
            entries = members[name]
            text = f"{mark}\n\t{fastjson.quote(name)}:"
            mark = ","
            if entries is None:
                yield (text + config_file.pretty(self._unknown[name], 1)).encode()
                continue
            inner = "{"
            while piece := list(islice(entries, PAIRS_A_STEP)):
                yield f"{text}{inner}\n\t\t{(','+chr(10)+chr(9)*2).join(piece)}".encode()
                text, inner = "", ","
            yield f"{text}{{}}".encode() if inner == "{" else b"\n\t}"
        yield b"\n}"

    def _append(self, changed: set[tuple[str, str]]) -> Iterator[None]:
        new = self._journal_end == 0
        if new:
            self._put_lines([_line(f'["base",{size},{crc}]')
                             for size, crc in reversed(self._bases)])
        left = iter(changed)
        while pairs := list(islice(left, PAIRS_A_STEP)):
            self._put_lines([_line(f"{{{','.join(map(self._change, pairs))}}}")], sync=False)
            yield
        with files.opened(self._journal, os.O_WRONLY) as fd:
            files.calls.sync_data(fd)
        if new:
            files.sync_folder(self._journal.parent)

    def _change(self, pair: tuple[str, str]) -> str:
        text = self._book.text(*pair)
        if text is None:
            return f"{fastjson.quote('@'.join(pair))}:null"
        return text.replace("\n\t\t}", "}")

    def _put_lines(self, lines: Iterable[bytes], *, sync: bool = True) -> None:
        """At the end of the journal; what a failed write left there goes first."""
        raw = b"".join(lines)
        with files.opened(self._journal, os.O_WRONLY | os.O_CREAT) as fd:
            files.calls.truncate(fd, self._journal_end)
            files.write_all(fd, raw, self._journal_end)
            if sync:
                files.calls.sync_data(fd)
        self._journal_end += len(raw)


def _line(text: str) -> bytes:
    raw = text.encode()
    return b"%08x %s\n" % (zlib.crc32(raw), raw)


def _entry(line: bytes) -> Changes | Identity | None:
    """What a line of the journal says; None: it is torn, or no such line."""
    if line[-1:] != b"\n" or line[:9] != b"%08x " % zlib.crc32(line[9:-1]):
        return None
    raw = line[9:-1]
    if not raw.startswith(b"["):
        return _CHANGES.decode(quoted(raw))
    _, size, crc = msgspec.json.decode(raw)
    return int(size), int(crc)


def saved(path: Path, bytes_max: int) -> dict[str, dict[int, int]] | None:
    """
    The pairs as `topic@group` with their offsets, read while their owner writes: at most
    as old as the last write. None: a file has more than `bytes_max`, or is none.

    The journal is read first: one of an older JSON file says nothing that the newer one has not.
    """
    journal = _up_to(path.with_suffix(".journal"), bytes_max)
    # between two renames only the .bak is there, to which the journal belongs
    raw = _up_to(path, bytes_max) or _up_to(files.beside(path, ".bak"), bytes_max)
    if journal is None or raw is None:
        return None
    try:
        table = _decode(raw).get(MEMBER) if raw else {}
    except fastjson.JsonError:
        return None
    if not isinstance(table, dict):
        return None
    base = len(raw), zlib.crc32(raw)
    belongs = False
    for line in journal.splitlines(keepends=True):
        entry = _entry(line)
        if entry is None:
            break
        if isinstance(entry, tuple):
            belongs = belongs or entry == base
        elif belongs:
            table.update({key: queues or {} for key, queues in entry.items()})
    return table


def _up_to(path: Path, bytes_max: int) -> bytes | None:
    """A file's bytes, none if it is missing; None: there are more."""
    try:
        with path.open("rb") as file:
            raw = file.read(bytes_max + 1)
    except FileNotFoundError:
        return b""
    except OSError:
        return None
    return raw if len(raw) <= bytes_max else None


class _Checked(dict[str, dict[int, int]]):
    """A table whose every value is known to be sound."""


def _decode(raw: bytes) -> dict[str, Any]:
    """The file's object; a file that we or stock wrote goes the quick way. Raises JsonError."""
    try:
        members = _TOP.decode(quoted(raw))
        return {name: _Checked(_TABLE.decode(member)) if name == MEMBER else config_file.as_object(
            bytes(b'{"":%s}' % bytes(member)))[""] for name, member in members.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return config_file.as_object(raw)


def only(keys: Collection[str]) -> Callable[[bytes], dict[str, Any]]:
    """For who needs but a few of a million pairs: reads those, and looks at nothing else."""
    def decode(raw: bytes) -> dict[str, Any]:
        if raw.rstrip()[-1:] != b"}":
            raise fastjson.JsonError(f"the text ends too early, after {len(raw)} bytes")
        table = {}
        for key in keys:
            name = re.escape(fastjson.quote(key).encode())
            found = re.search(name + rb"\s*:\s*(\{[^{}]*\})", raw)
            if found is not None:
                table[key] = config_file.as_object(found.group(1))
        return {MEMBER: table}
    return decode


def queues_of(_key: str, queues: Any) -> dict[int, int]:
    """The offsets of a pair by queue id. Raises TypeError or ValueError."""
    if not isinstance(queues, dict):
        raise ValueError(f"{queues!r:.40}: expected an object of queue ids and offsets")
    return {int(queue): offset_of(offset) for queue, offset in queues.items()}


def offset_of(value: Any) -> int:
    """An offset as a file has it. Raises TypeError or ValueError."""
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{number:.10e}: expected an offset")
    return number
