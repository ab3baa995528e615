"""Bytes of a backup on their way: read at a rate, summed by block, linked, cloned or copied."""
from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mqcore.backup.errors import BadBackupError
from mqcore.backup.manifest import BLOCK_BYTES, Entry, Part, part_name
from mqcore.store import files
from mqcore.store.crc32 import crc32c

FICLONE: Final = 0x40049409
SYNCS_AT_ONCE: Final = 32
TAIL_BYTES: Final = 64 << 10
NOT_HERE: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOENT, errno.EOPNOTSUPP,
                   errno.ENOSYS, errno.EINVAL, errno.EACCES, errno.ENOTTY)
ZEROS: Final = bytes(BLOCK_BYTES)
LINKED, CLONED, COPIED = "linked", "cloned", "copied"

Put = Callable[[bytes, int], None]       # bytes, and where in the part they belong


class Pace:
    """At most so many bytes a second, None: as they come; told: called with each count."""

    def __init__(self, rate: int | None = None, told: Callable[[int], None] | None = None) -> None:
        self._rate = rate
        self._told = told
        self._began = time.monotonic()
        self.bytes = 0

    def took(self, count: int) -> None:
        self.bytes += count
        if self._told is not None:
            self._told(self.bytes)
        if self._rate is not None:
            ahead_s = self.bytes / self._rate - (time.monotonic() - self._began)
            if ahead_s > 0:
                time.sleep(ahead_s)


def summed(fd: int, offset: int, size: int, pace: Pace, put: Put | None = None) -> list[int]:
    """
    The CRC-32C of each block of `size` bytes at `offset` of a file; put: gets them, too. Raises
    BadBackupError when the file ends before, and OSError.
    """
    sums = []
    buffer = bytearray(min(BLOCK_BYTES, size))
    for at in range(0, size, BLOCK_BYTES):
        view = memoryview(buffer)[:min(BLOCK_BYTES, size - at)]
        got = 0
        while got < len(view):
            count = os.preadv(fd, [view[got:]], offset + at + got)
            if count == 0:
                raise BadBackupError(f"the file ends after {at + got} bytes, expected {size}")
            got += count
        sums.append(crc32c(view))
        if put is not None:
            put(bytes(view), at)
        pace.took(len(view))
    return sums


def data_size(fd: int) -> int:
    """Bytes of a file up to its last one that is not zero."""
    end = 0
    length = os.fstat(fd).st_size
    try:
        while end < length:
            end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:           # nothing but a hole behind `end`
            raise
    while end > 0:
        start = max(0, end - TAIL_BYTES)
        kept = os.pread(fd, end - start, start).rstrip(b"\0")
        if kept:
            return start + len(kept)
        end = start
    return 0


@contextmanager
def opened_below(folder: Path, name: str) -> Iterator[int]:
    """
    A regular file below a folder, for reading; nothing on the way to it is a link. Raises
    BadBackupError where it is missing or something else, and OSError.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    parts = name.split("/")
    fds: list[int] = []
    try:
        with files.named(folder / name):
            fds.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            for part in parts[:-1]:
                fds.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=fds[-1]))
            fds.append(os.open(parts[-1], flags | os.O_NONBLOCK, dir_fd=fds[-1]))
            if not stat.S_ISREG(os.fstat(fds[-1]).st_mode):
                raise BadBackupError(f"{folder / name}: no file")
        yield fds[-1]
    except OSError as error:
        if len(fds) <= len(parts) and error.errno in (
                errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            raise BadBackupError(f"{folder / name}: missing, or no file of a backup") from None
        raise
    finally:
        for fd in reversed(fds):
            os.close(fd)


def read_part(folder: Path, entry: Entry, part: Part, pace: Pace, put: Put | None) -> None:
    """
    Read a part from the folder of all backups, held against its sums. Raises BadBackupError,
    OSError.
    """
    name = f"{part.backup}/{part_name(entry.name, part)}"
    with opened_below(folder, name) as fd:
        size = os.fstat(fd).st_size
        if size != part.size:
            raise BadBackupError(f"{folder / name}: {size} bytes, expected {part.size}")
        try:
            sums = summed(fd, 0, part.size, pace, put)
        except BadBackupError as error:
            raise BadBackupError(f"{folder / name}: {error}") from None
    wrong = next((at for at, both in enumerate(zip(sums, part.crc32c, strict=True))
                  if both[0] != both[1]), None)
    if wrong is not None:
        raise BadBackupError(f"{folder / name}: other bytes than its sum was made of, between "
                             f"{wrong * BLOCK_BYTES} and {(wrong + 1) * BLOCK_BYTES}: damaged")


def link(fd: int, target: Path) -> bool:
    """Another name for an open file; False: not on this device, or not ours to link."""
    with files.opened(target.parent, os.O_RDONLY | os.O_DIRECTORY) as folder:
        try:
            os.link(f"/proc/self/fd/{fd}", target.name, src_dir_fd=folder, dst_dir_fd=folder,
                    follow_symlinks=True)
        except OSError as error:
            if error.errno in NOT_HERE:
                return False
            raise
    return True


def clone(fd: int, target: Path) -> bool:
    """A file with the same blocks (reflink); False: the file system has no such thing."""
    with files.opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as copy:
        try:
            fcntl.ioctl(copy, FICLONE, fd)
        except OSError as error:
            if error.errno not in NOT_HERE:
                raise
            cloned = False
        else:
            cloned = True
    if not cloned:
        files.unlink(target)
    return cloned


@contextmanager
def written(target: Path, size: int) -> Iterator[Put]:
    """A new file of `size` bytes: called with bytes and their place; zeros become holes."""
    with files.opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
        def put(content: bytes, at: int) -> None:
            if content != ZEROS[:len(content)]:
                files.write_all(fd, content, at)

        yield put
        files.calls.truncate(fd, size)


def sync_tree(folder: Path) -> None:
    """Bring every file below a folder, and every name, to the disk. Raises OSError."""
    found, folders = [], [folder]
    for path, below, names in os.walk(folder):
        found += [Path(path, name) for name in names]
        folders += [Path(path, name) for name in below]
    with ThreadPoolExecutor(SYNCS_AT_ONCE) as syncs:       # of which the disk makes few
        for paths, sync in ((found, _sync_file), (reversed(folders), files.sync_folder)):
            for done in [syncs.submit(sync, path) for path in paths]:
                done.result()


def _sync_file(path: Path) -> None:
    with files.opened(path, os.O_RDONLY | os.O_NOFOLLOW) as fd:
        files.calls.sync(fd)
