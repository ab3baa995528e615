"""Bytes of a log at rest or beside its writer, for who compares it with another one."""
from __future__ import annotations

from mqcore.store import files
from mqcore.store.crc32 import crc32c
from mqcore.store.log.folders import LogFolders


def log_crc(folders: LogFolders, start: int, end: int, segment_bytes: int) -> int:
    """CRC-32C of the log's bytes in [start, end), which lie in one segment. Raises OSError."""
    if start == end:
        return crc32c(b"")
    base = start - start % segment_bytes
    for first, path in folders.segments():
        if first == base:
            with path.open("rb") as file, files.named(path):
                file.seek(start - base)
                return crc32c(file.read(end - start))
    raise FileNotFoundError(f"no segment of the log begins at {base}")
