"""Bytes of a log at rest or beside its writer, for who compares it with another one."""
from __future__ import annotations

from mqcore.store import files
from mqcore.store.crc32 import crc32c
from mqcore.store.log.folders import LogFolders

OVERLAP_BYTES = 16 << 10


def log_crc(folders: LogFolders, start: int, end: int, segment_bytes: int) -> int:
    """CRC-32C of the log's bytes in [start, end), which lie in one segment. Raises OSError."""
    return crc32c(log_bytes(folders, start, end, segment_bytes))


def last_bytes(folders: LogFolders, first: int, end: int, segment_bytes: int) -> bytes:
    """
    The last of the log's bytes, which begins at `first` and ends at `end`: at most OVERLAP_BYTES
    of one segment, without byte 0: who asks for the log from there has none of it. Raises
    OSError.
    """
    base = max(end - 1, 0) // segment_bytes * segment_bytes
    start = max(end - OVERLAP_BYTES, base, first, 1)
    return log_bytes(folders, start, end, segment_bytes) if start < end else b""


def log_bytes(folders: LogFolders, start: int, end: int, segment_bytes: int) -> bytes:
    """The log's bytes in [start, end), which lie in one segment. Raises OSError."""
    if start == end:
        return b""
    base = start - start % segment_bytes
    for first, path in folders.segments():
        if first == base:
            with path.open("rb") as file, files.named(path):
                file.seek(start - base)
                return file.read(end - start)
    raise FileNotFoundError(f"no segment of the log begins at {base}")
