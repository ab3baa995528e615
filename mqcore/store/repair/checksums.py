"""
The checksums beside a log under repair: one wrong bit is found by them and put right, and they are
made anew for what a repair has written.
"""
from __future__ import annotations

import bisect
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mqcore.layout import RECORD_FIXED_SIZE
from mqcore.store.crc32 import crc32c, flipped_bit
from mqcore.store.files import make_folders, write_atomically
from mqcore.store.log.folders import CHECKSUMS
from mqcore.store.log.owner import alone
from mqcore.store.repair.records import MAGIC_BLANK, MAGIC_MESSAGE
from mqcore.store.verify.scan import LogScan

ENTRY: Final = struct.Struct(">II")
HEAD: Final = struct.Struct(">ii")
BLANK_BYTES: Final = HEAD.size
RECORD_BYTES_MIN: Final = RECORD_FIXED_SIZE
ENTRY_FLIPPED: Final = -1
ALL_BITS: Final = 0xFFFFFFFF           # in place of a CRC of 0, which says that nothing is known
NONE_FITS: Final = -1                  # no entry of the record's length


@dataclass
class Refitted:
    """
    made: how many entries are new; kept: where records begin that differ from their checksum, and
    stay since others vouch for them; entries: all of the segment, (end, CRC).
    """

    made: int = 0
    kept: list[int] = field(default_factory=list)
    entries: list[tuple[int, int]] = field(default_factory=list)


class LogChecksums:
    """Those of the store at `root`, as far as they are of what is in the log now."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.hold = alone(root / "lock")

    def mended(self, segment: Path, offset: int) -> tuple[bytes, bytes] | None:
        """
        (the bytes of the record that begins at `offset`, the same with one bit changed so that its
        checksum is right), equal when the bit was the checksum's own. None: it is not one bit.
        """
        entry = self._entry(segment, offset)
        if entry is None:
            return None
        end, crc = entry
        with segment.open("rb") as file:
            file.seek(offset)
            raw = file.read(end - offset)
        if len(raw) != end - offset or crc32c(raw) == crc:
            return None
        bit = flipped_bit(raw, crc)
        if bit is None:
            return None
        made = bytearray(raw)
        if bit != ENTRY_FLIPPED:
            made[bit // 8] ^= 1 << bit % 8
        return raw, bytes(made)

    def put(self, segment: Path, offset: int, record: bytes) -> None:
        """The checksum of one record, in place of another. Raises OSError."""
        self.write(segment, [(end, _crc(record) if start == offset else crc)
                              for start, end, crc in self._entries(segment)])

    def rewrite(self, segment: Path, ranges: list[tuple[int, int]]) -> None:
        """For the records that lie in byte ranges of a segment, as they are now. Raises OSError."""
        if not self.hold or not self._file(segment).exists():
            return
        before = {start: (end, crc) for start, end, crc in self._entries(segment)}
        with segment.open("rb") as file, mmap.mmap(
                file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            self.write(segment, _made(content, before, sorted(ranges)))

    def make(self, segment: Path, size: int, stop: int) -> None:
        """Those of a segment that has none, as `refit`. Raises OSError."""
        make_folders(self._root / CHECKSUMS)
        self.write(segment, list(_of_records(segment, size, stop)))

    def refit(self, segment: Path, size: int, stop: int, vouched: Callable[[int], bool],
              ) -> Refitted:
        """
        The entries of a segment of `size` bytes whose records are whole as far as `stop`. A record
        gets one of what it is now when it has none of its length; when its own is wrong and next to
        one that does not fit either: such a run is of other records; and when it is `vouched` for
        without (by where in the segment it begins). Raises OSError.
        """
        found = Refitted()
        if not self._file(segment).exists():
            return found
        before = {start: (end, crc) for start, end, crc in self._entries(segment)}
        records: list[tuple[int, int, int, int]] = []            # start, end, CRC, entry's CRC
        start = 0
        for end, crc in _of_records(segment, size, stop):
            there, known = before.get(start, (0, 0))
            records.append((start, end, crc, known if there == end else NONE_FITS))
            start = end
        fits = [True, *(known in (0, crc) for _, _, crc, known in records), True]
        for number, (start, end, crc, known) in enumerate(records, 1):
            if fits[number]:
                found.entries.append((end, known))
            elif known == NONE_FITS or not (fits[number - 1] and fits[number + 1]):
                found.entries.append((end, crc))
                found.made += 1
            elif vouched(start):
                found.entries.append((end, crc))
                found.made += 1
                found.kept.append(start)
            else:
                found.entries.append((end, known))
        return found

    def _file(self, segment: Path) -> Path:
        return self._root / CHECKSUMS / segment.name

    def _entry(self, segment: Path, offset: int) -> tuple[int, int] | None:
        return next(((end, crc) for start, end, crc in self._entries(segment)
                     if start == offset and crc), None) if self.hold else None

    def _entries(self, segment: Path) -> list[tuple[int, int, int]]:
        """(start, end, CRC) of each, as far as they ascend."""
        path = self._file(segment)
        found: list[tuple[int, int, int]] = []
        if not path.exists():
            return found
        raw = path.read_bytes()
        start = 0
        for end, crc in ENTRY.iter_unpack(raw[:len(raw) // ENTRY.size * ENTRY.size]):
            if end <= start:
                break
            found.append((start, end, crc))
            start = end
        return found

    def write(self, segment: Path, entries: list[tuple[int, int]]) -> None:
        """Replace a segment's: (end, CRC) of each. Raises OSError."""
        write_atomically(self._file(segment),
                         b"".join(ENTRY.pack(end, crc) for end, crc in entries))


def _crc(record: bytes) -> int:
    return crc32c(record) or ALL_BITS


def _of_records(segment: Path, size: int, stop: int) -> Iterator[tuple[int, int]]:
    """(end, CRC) of each record before `stop` of a segment as it is now, of the blank one too."""
    scan = LogScan(os.fsencode(segment.parent), [(int(segment.name), size)],
                   stop=int(segment.name) + stop)
    end = 0
    while (raw := scan.next()) is not None:
        end += len(raw)
        yield end, _crc(raw)
    with segment.open("rb") as file:
        file.seek(end)
        head = file.read(BLANK_BYTES)
    if len(head) == BLANK_BYTES and HEAD.unpack(head)[1] == MAGIC_BLANK:
        yield size, _crc(head)


def _made(content: mmap.mmap, before: dict[int, tuple[int, int]],
          ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Entries from before; new ones where something was written, and where there was no entry."""
    found = []
    begins = sorted(before)
    at = 0
    while at + BLANK_BYTES <= len(content):
        number = bisect.bisect_right(ranges, (at, len(content))) - 1
        written = number >= 0 and at < ranges[number][1]
        size, magic = HEAD.unpack_from(content, at)
        if at in before and not written:
            found.append(before[at])
        elif magic == MAGIC_BLANK:
            found.append((len(content), _crc(content[at:at + BLANK_BYTES])))
        elif magic == MAGIC_MESSAGE and RECORD_BYTES_MIN <= size <= len(content) - at:
            found.append((at + size, _crc(content[at:at + size])))
        else:
            further = begins[bisect.bisect_right(begins, at):]
            if not further:
                break
            found.append((further[0], 0))
        at = found[-1][0]
    return found
