"""
How far one log is behind another, in messages, how fast bytes go from one to the other, and how
fast they may.
"""
from __future__ import annotations

import logging
import os
import struct
from bisect import bisect_right
from pathlib import Path

from mqcore.layout import CHECKSUM_ENTRY_SIZE
from mqcore.store import files
from mqcore.store.log.folders import LogFolders

log = logging.getLogger("mqcore.ha-master")

END = struct.Struct(">I")        # of an entry: where its record ends in the segment


class Behind:
    """
    For who asks at each turn of a loop: a call reads a few files, and what is known of a whole
    segment it keeps. So a count of many segments is too small at first: it grows from call to call.
    """

    FILES_A_CALL = 4

    def __init__(self, folders: LogFolders, segment_bytes: int) -> None:
        self._folders = folders
        self._segment_bytes = segment_bytes
        self._known: dict[int, int] = {}         # of whole segments between the two, by their start
        self._is_readable = True

    def messages(self, start: int, end: int) -> int:
        """
        How many messages the log has from position `start` to `end`, as its checksums count them:
        what another broker wrote has few. 0 where they cannot be read, which is logged once.
        """
        try:
            found = self._messages(max(start, 0), end)
            self._is_readable = True
            return found
        except OSError as error:
            if self._is_readable:
                log.warning("how many messages slaves are behind is not known: %s", error)
            self._is_readable = False
            return 0

    def _messages(self, start: int, end: int) -> int:
        size, total, left = self._segment_bytes, 0, self.FILES_A_CALL
        known: dict[int, int] = {}
        for base in range(start - start % size, end, size) if start < end else ():
            is_whole = start <= base and base + size <= end
            count = self._known.get(base) if is_whole else None
            if count is None:
                if not left:
                    continue
                left -= 1
                count = _messages(self._folders.checksums_of(base), max(start - base, 0),
                                  min(end - base, size), size)
            if is_whole:
                known[base] = count
            total += count
        self._known = known
        return total


def _messages(path: Path, start: int, end: int, segment_bytes: int) -> int:
    """Of one segment, between two places in it."""
    try:
        with files.opened(path, os.O_RDONLY) as fd:
            ends = _Ends(fd)
            found = bisect_right(ends, end) - bisect_right(ends, start)
            is_closed = len(ends) > 0 and end == segment_bytes and ends[-1] >= end
            return found - is_closed             # the last one is of the blank record
    except FileNotFoundError:                    # deleted meanwhile
        return 0


class _Ends:
    """The ends that a file of checksums has, ascending; read where they are looked at."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._count = os.fstat(fd).st_size // CHECKSUM_ENTRY_SIZE
        low, high = 0, self._count
        while low < high:                        # behind the last are zeros
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self[middle] else (low, middle)
        self._count = low

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> int:
        if number < 0:
            number += self._count
        if not 0 <= number < self._count:
            raise IndexError(number)
        raw = os.pread(self._fd, END.size, number * CHECKSUM_ENTRY_SIZE)
        return int(END.unpack(raw.ljust(END.size, b"\0"))[0])


class Courtesy:
    """
    How fast who catches up may get the log. As fast as it goes, but while messages come and
    processors are short (this process waits for one), those who send go first: who catches up gets
    GAIN times what comes, so that it gets there, and LEAST_A_SECOND at least.
    """

    GAIN = 1.25
    LEAST_A_SECOND = 128 << 20
    COMES_A_SECOND = 1 << 20                     # less is not worth a pause
    WAITS_SHARE = 0.1                            # of the time that it would have run

    def __init__(self, end: int, now_s: float, processor: tuple[int, int]) -> None:
        """end: of the log, a position; now_s: on a steady clock; processor: processor_ns()."""
        self._end, self._now_s, self._processor = end, now_s, processor

    def a_second(self, end: int, now_s: float, processor: tuple[int, int]) -> int:
        """In bytes, by what was since the last call; 0: there is no limit."""
        comes = (end - self._end) / max(now_s - self._now_s, 0.001)
        ran, waited = (now - before for now, before in zip(
            processor, self._processor, strict=True))
        self._end, self._now_s, self._processor = end, now_s, processor
        if comes < self.COMES_A_SECOND or waited <= self.WAITS_SHARE * (ran + waited):
            return 0
        return max(round(self.GAIN * comes), self.LEAST_A_SECOND)


class Pace:
    """How fast a count grows, looked at now and then."""

    WINDOW_S = 5.0

    def __init__(self, total: int, now_s: float) -> None:
        """now_s: on a steady clock."""
        self._before = total, now_s
        self._a_second = 0

    def a_second(self, total: int, now_s: float) -> int:
        """Over the last whole WINDOW_S."""
        before, since_s = self._before
        if now_s - since_s >= self.WINDOW_S:
            self._a_second = max(round((total - before) / (now_s - since_s)), 0)
            self._before = total, now_s
        return self._a_second
