"""
A backup as a stream: a tar (ustar) of regular files, the manifest last.

What is read is believed as little as a manifest: only members that a backup has, each once, and
nothing but plain files. Python's tarfile would follow more forms than that, and keep their headers
in memory whatever their size.
"""
from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from mqcore.backup.errors import BadBackupError
from mqcore.backup.manifest import MANIFEST_BYTES_MAX, NAME, name_trouble
from mqcore.backup.pieces import written
from mqcore.store import files

RECORD: Final = 512
COPY_BYTES: Final = 1 << 20
SIZE_MAX: Final = 1 << 40                # of one file
REGULAR: Final = (b"0", b"\0")
PADDING: Final = bytes(RECORD)


class TarWriter:
    """Writes members to a stream."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def begin(self, name: str, size: int, mtime_s: int) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = size, mtime_s, files.OWN_FILE_MODE
        self._out.write(info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape"))

    def write(self, content: bytes) -> None:
        self._out.write(content)

    def end(self, size: int) -> None:
        self._out.write(PADDING[:-size % RECORD])

    def close(self) -> None:
        self._out.write(PADDING * 2)
        self._out.flush()


def unpack(stream: BinaryIO, folder: Path, took: Callable[[int], None]) -> bytes:
    """
    The members of a backup go below a folder; the manifest's bytes. Raises BadBackupError: the
    stream is cut off, or no backup; OSError.
    """
    manifest: bytes | None = None
    for name, size in _members(stream):
        if manifest is not None:
            raise BadBackupError(f"the stream goes on behind {NAME}, with {name[:200]!r}")
        if name == NAME:
            if size > MANIFEST_BYTES_MAX:
                raise BadBackupError(f"{NAME}: {size} bytes")
            manifest = b"".join(_content(stream, name, size))
            continue
        trouble = name_trouble(name)
        if trouble is not None:
            raise BadBackupError(f"the stream: {trouble}")
        files.make_folders((folder / name).parent)
        try:
            with written(folder / name, size) as put:
                at = 0
                for piece in _content(stream, name, size):
                    put(piece, at)
                    at += len(piece)
                    took(len(piece))
        except FileExistsError:
            raise BadBackupError(f"the stream has {name} twice") from None
    if manifest is None:
        raise BadBackupError(f"the stream ends without {NAME}: cut off, or no backup")
    return manifest


def _members(stream: BinaryIO) -> Iterator[tuple[str, int]]:
    """Name and size of each member; its content is to be read before the next is asked for."""
    while True:
        head = _exactly(stream, RECORD, "between two files")
        if head == PADDING:
            return
        try:
            info = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise BadBackupError(f"the stream is no tar: {error}") from None
        if info.type not in REGULAR or head[257:262] != b"ustar":
            raise BadBackupError(f"the stream: {info.name[:200]!r} is no plain file")
        if not 0 <= info.size <= SIZE_MAX:
            raise BadBackupError(f"the stream: {info.name[:200]!r} has {info.size} bytes")
        yield info.name, info.size


def _content(stream: BinaryIO, name: str, size: int) -> Iterator[bytes]:
    left = size
    while left:
        piece = _exactly(stream, min(COPY_BYTES, left), name)
        left -= len(piece)
        yield piece
    _exactly(stream, -size % RECORD, name)


def _exactly(stream: BinaryIO, size: int, where: str) -> bytes:
    pieces = []
    left = size
    while left:
        piece = stream.read(left)
        if not piece:
            raise BadBackupError(f"the stream is cut off: {where}")
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
