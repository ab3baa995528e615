"""
Consume queue extension files for the Python processes: units by address, deleting what is over.

store.md 3.6 (RocketMQ 4.9.8: ConsumeQueueExt); mqcore/store/queue/extension.pxd has the layout and
the rules. The dispatcher alone writes and deletes these files.
"""
from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from mqcore.layout import CQ_FILLER_RECORD_SIZE
from mqcore.store.files import unlink
from mqcore.store.paths import FILE_NAME, queue_folder
from mqcore.store.recovery.errors import DamagedStoreError

ADDRESS_BASE = -(1 << 63)
ADDRESS_LAST = -2147483649
HEAD = struct.Struct(">hqqh")
ENTRY = struct.Struct(">qiq")


@dataclass(frozen=True, slots=True)
class Unit:
    """What an entry refers to: the message's tag code, its store time in ms, its filters' bits."""

    tag_code: int
    store_time_ms: int
    bits: bytes


def is_address(tag_code: int) -> bool:
    """Whether the third field of a queue entry is the address of a unit."""
    return tag_code <= ADDRESS_LAST


def read_unit(
    folder: Path, file_bytes: int, topic: str, queue_id: int, address: int
) -> Unit | None:
    """
    The unit at an address that a queue entry holds, or None: it was deleted, or never got to disk.

    folder: of all extension files, file_bytes: the size of one. Raises OSError.
    """
    place = address - ADDRESS_BASE
    first = place // file_bytes * file_bytes
    try:
        path = queue_folder(folder, topic, queue_id) / f"{first:020d}"
        with path.open("rb", buffering=0) as file:
            head = os.pread(file.fileno(), HEAD.size, place - first)
            if len(head) < HEAD.size:
                return None
            size, tag_code, store_time_ms, length = HEAD.unpack(head)
            if length < 0 or size != HEAD.size + length:
                return None
            bits = os.pread(file.fileno(), length, place - first + HEAD.size)
    except FileNotFoundError:
        return None
    return Unit(tag_code, store_time_ms, bits) if len(bits) == length else None


def check_sizes(folder: Path, file_bytes: int) -> None:
    """Raises DamagedStoreError for an extension file that has not the size that is set."""
    if not folder.is_dir():
        return
    for path in folder.glob("*/*/*"):
        if FILE_NAME.fullmatch(path.name) and path.stat().st_size not in (0, file_bytes):
            raise DamagedStoreError(
                f"{path}: {path.stat().st_size} bytes, expected {file_bytes} "
                "(store.queue_extension_file_bytes)")


def trim(folder: Path, file_bytes: int, queue_folder: Path, queue_file_entries: int,
         first_offset: int) -> int:
    """
    Delete the extension files of one queue that end at or before the unit of its first entry.

    folder, queue_folder: of this queue; queue_file_entries: entries of a queue file; first_offset:
    the queue's first entry. The last file stays. Returns how many went. Raises OSError.
    """
    if not folder.is_dir():
        return 0
    starts = sorted(int(entry.name) for entry in os.scandir(folder)
                    if FILE_NAME.fullmatch(entry.name))
    if len(starts) < 2:
        return 0
    file_first = first_offset // queue_file_entries * queue_file_entries
    try:
        with (queue_folder / f"{file_first * ENTRY.size:020d}").open("rb", buffering=0) as file:
            raw = os.pread(file.fileno(), ENTRY.size, (first_offset - file_first) * ENTRY.size)
    except FileNotFoundError:
        return 0
    if len(raw) < ENTRY.size:
        return 0
    _, size, tag_code = ENTRY.unpack(raw)
    if size <= 0 or size == CQ_FILLER_RECORD_SIZE or not is_address(tag_code):
        return 0
    deleted = 0
    for start in starts[:-1]:
        if start + file_bytes > tag_code - ADDRESS_BASE:
            break
        unlink(folder / f"{start:020d}")
        deleted += 1
    return deleted
