"""
The Python side's one door to the disk: every write, sync, truncate, rename and removal that rules
and housekeeping do to a store goes through `calls`, so that a test can put a recorder or a failing
disk in its place. (The native side's door is mqcore/store/io.pxd.)

All functions raise OSError, and it names the file. Short writes are carried on; EINTR is Python's
own business (PEP 475).
"""
from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqcore.store.io import wipe_file

FILE_MODE, FOLDER_MODE = 0o644, 0o755
OWN_FILE_MODE, OWN_FOLDER_MODE = 0o600, 0o700      # of copies, and of what a new store lies in


@dataclass
class Calls:
    """The system calls, as in the module os; wipe: io.pxd's, which keeps a file's length."""

    open: Callable[..., int] = os.open
    write_at: Callable[..., int] = os.pwrite
    truncate: Callable[..., None] = os.ftruncate
    wipe: Callable[[int, int, int], None] = wipe_file
    sync: Callable[[int], None] = os.fsync
    sync_data: Callable[[int], None] = os.fdatasync
    rename: Callable[..., None] = os.replace
    unlink: Callable[..., None] = os.unlink
    make_folder: Callable[..., None] = os.mkdir
    remove_folder: Callable[..., None] = os.rmdir
    close: Callable[[int], None] = os.close


calls = Calls()


@contextmanager
def replaced(**others: Callable[..., Any]) -> Iterator[None]:
    """For tests: other calls in place of these, for the length of a block."""
    before = {name: getattr(calls, name) for name in others}
    try:
        for name, call in others.items():
            setattr(calls, name, call)
        yield
    finally:
        for name, call in before.items():
            setattr(calls, name, call)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An OSError out of the block says which file it is about."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


@contextmanager
def opened(path: Path, flags: int, mode: int = FILE_MODE) -> Iterator[int]:
    """A descriptor for the length of a block; mode: of a new file. No pipe is waited for."""
    with named(path):
        fd = calls.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
        try:
            yield fd
        finally:
            calls.close(fd)


def error_text(error: int, folder: Path) -> str:
    """What an errno of a write below `folder` says; a disk is also full when no inode is free."""
    if error == errno.ENOSPC:
        with contextlib.suppress(OSError):
            disk = os.statvfs(folder)
            if disk.f_files and not disk.f_favail:
                return "no inode is free on the store's file system"
    return os.strerror(error)


def read(path: Path) -> bytes:
    """The whole of a file of the store's: of a regular one."""
    with named(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "no regular file", os.fspath(path))
            return file.read()


def write_all(fd: int, content: bytes | memoryview, offset: int = 0) -> None:
    """The whole of `content` at a place in a file."""
    view = memoryview(content)
    while view:
        written = calls.write_at(fd, view, offset)
        view, offset = view[written:], offset + written


def write_in_place(path: Path, content: bytes) -> None:
    """Write and sync the first bytes of a file; for what is smaller than a disk tears."""
    with opened(path, os.O_RDWR | os.O_CREAT) as fd:
        write_all(fd, content)
        calls.sync_data(fd)


def write_new(
    path: Path, content: bytes | Sequence[bytes], *, mode: int = FILE_MODE
) -> None:
    """
    Give a file this content, which may be in pieces, and sync it; its name may still be lost with
    the power. mode: of a new file.
    """
    size = 0
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode) as fd:
        for piece in [content] if isinstance(content, bytes) else content:
            write_all(fd, piece, size)
            size += len(piece)
        calls.sync(fd)


def write_atomically(
    path: Path, content: bytes | Sequence[bytes], *, keep: Path | None = None,
    mode: int = FILE_MODE
) -> None:
    """
    Replace a file: a crash leaves the old or the new content, whole. content: as in `write_new`.
    keep: the old content stays under this name, replaced in the same way. mode: of the new file.
    """
    make_folders(path.parent)
    temporary = beside(path, ".tmp")
    write_new(temporary, content, mode=mode)
    if keep is not None and path.exists():
        kept = beside(keep, ".tmp")
        write_new(kept, read(path))
        calls.rename(kept, keep)
    calls.rename(temporary, path)
    sync_folder(path.parent)


def make_own(path: Path) -> None:
    """
    Before a segment is written in place: one with further names, those of backups, is left to them,
    and this name gets a copy.
    """
    path = path.resolve()
    if path.stat().st_nlink == 1:
        return
    copy = path.parent.with_name(f".{path.name}.own")     # a segment's folder has segments alone
    shutil.copyfile(path, copy)
    with opened(copy, os.O_RDWR) as fd:
        calls.sync(fd)
    calls.rename(copy, path)
    sync_folder(path.parent)


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def make_folders(folder: Path, mode: int = FOLDER_MODE) -> None:
    """A folder and those above it, if they are not there."""
    if folder.is_dir():
        return
    make_folders(folder.parent, mode)
    try:
        calls.make_folder(folder, mode)
    except FileExistsError:
        if not folder.is_dir():
            raise


def unlink(path: Path) -> None:
    """Take a file's name away."""
    calls.unlink(path)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    with opened(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
        calls.sync(fd)
