"""
The locks of a store: of the broker that runs on it, and of commands that work on it at rest.

A store has locks on two things, and a broker takes both.

- The file `lock`. Byte 0 has the record lock that stock brokers take, so that ours and stock ones
  exclude each other. An operator may remove the file, and then a second one can be made and locked.
- The folders: STORE, and each folder of the commit log, wherever it lies. `flock` on a folder's own
  descriptor finds the folder by any path: a symbolic link, a bind mount, another container. Two
  stores that share a folder of the log exclude each other by it.

File systems of the network refuse `flock` on a folder; there the file's lock is the only one.
A copy of a store has folders and a file of its own, and is free.
"""
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mqcore.store import files, io
from mqcore.store.log import owner
from mqcore.store.log.folders import LOG, LogFolders

WAIT_S = 10.0                    # a start waits so long for the processes of an earlier run
LOOK_S = 0.02
WITHOUT_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)   # of a file system

GUARDED = ("open", "rename", "unlink", "make_folder", "remove_folder")    # of files.Calls


class StoreInUseError(RuntimeError):
    """A broker runs on the store."""


def hold_record_lock(fd: int, kind: int) -> None:
    """
    The lock that stock brokers ask for, on the open file: one of the process would be gone as soon
    as any other descriptor of the file is closed. Raises BlockingIOError when another has it.
    """
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 1, 0))


def lock_holder(fd: int) -> int:
    """
    The process whose lock keeps `hold_record_lock` from writing, 0: none; -1: a lock that is no
    process's, as a command's of ours. Takes none.
    """
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def holder(root: Path) -> int:
    """
    The process that runs on a store, 0: none; -1: one that cannot be named, since it is a command
    or its file `lock` was removed. Nothing is kept locked. Raises OSError.
    """
    pid = _record_holder(root)
    if pid:
        return pid
    try:
        FolderLocks([root], fcntl.LOCK_SH).release()
    except BlockingIOError:
        return -1
    return 0


class FolderLocks:
    """
    Locks on the given folders that exist; kind: LOCK_SH or LOCK_EX of fcntl. They last
    until the last process ends that has inherited them. until_s: how long they are tried for, of
    the steady clock. Raises BlockingIOError with the folder that another has, OSError.
    """

    def __init__(self, folders: Iterable[Path], kind: int, *, until_s: float = 0.0) -> None:
        self._fds: dict[Path, int] = {}
        locked: set[tuple[int, int]] = set()
        try:
            for path in dict.fromkeys(folders):
                try:
                    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                self._fds[path] = fd
                if _identity(os.fstat(fd)) not in locked:
                    _flock(fd, kind, path, until_s)
                    locked.add(_identity(os.fstat(fd)))
        except BaseException:
            self.release()
            raise

    @property
    def paths(self) -> list[Path]:
        return list(self._fds)

    def leads_elsewhere(self) -> Path | None:
        """The first path that no longer leads to the folder that it led to; None: all do."""
        return next((path for path, fd in self._fds.items() if not _leads_to(path, fd)), None)

    def release(self) -> None:
        while self._fds:
            os.close(self._fds.popitem()[1])


class StoreLock:
    """
    The locks of a command on a store at rest: no broker, ours or stock's, starts on it meanwhile.

    log: where its commit log lies, None: in STORE/commitlog; changes: the command writes, and
    excludes other commands too. Raises StoreInUseError, OSError.
    """

    def __init__(self, root: Path, log: LogFolders | None = None, *, changes: bool = False) -> None:
        self._fd = -1
        self._folders: FolderLocks | None = None
        path = root / "lock"
        flags = os.O_RDWR | os.O_CREAT if changes else os.O_RDONLY
        record, whole = ((fcntl.F_WRLCK, fcntl.LOCK_EX) if changes
                         else (fcntl.F_RDLCK, fcntl.LOCK_SH))
        with contextlib.suppress(FileNotFoundError):
            self._fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        try:
            if self._fd >= 0:
                hold_record_lock(self._fd, record)
                _flock(self._fd, whole, path, 0.0)
            self._folders = FolderLocks(folders_of(root, log), whole)
        except (BlockingIOError, PermissionError) as error:
            self.release()
            raise StoreInUseError(
                f"{error.filename or path}: a broker runs on this store") from None
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._folders is not None:
            self._folders.release()


class BrokerLock:
    """
    The locks of a broker on its store, from its start to its end: of the process that makes it the
    record lock, of that and all that it forks the others. As long as it lasts, none of them makes,
    changes or removes one of the store's folders, or a name below it, whose path leads elsewhere:
    ESTALE.

    made_again: how often the file `lock` was removed. Raises StoreInUseError, OSError.
    """

    def __init__(self, root: Path, log: LogFolders) -> None:
        self._path = root / "lock"
        self._lost = ""
        self.made_again = 0
        self._fds: list[int] = []
        taken = StoreInUseError(f"the store {root} is in use by another broker")
        if _record_holder(root):
            raise taken
        until_s = time.monotonic() + WAIT_S
        try:
            self._folders = FolderLocks(folders_of(root, log), fcntl.LOCK_EX, until_s=until_s)
        except BlockingIOError as error:
            raise StoreInUseError(f"{error.filename} is in use by another broker, or by processes "
                                  "of an earlier run") from None
        try:
            self._fds += [os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                          for _ in range(2)]
            if not _record_locked(self._own):
                raise taken
            _flock(self._fds[1], fcntl.LOCK_EX, self._path, until_s)
        except BlockingIOError:
            self._close()
            raise StoreInUseError(f"processes of an earlier run still use the store {root}"
                                  ) from None
        except BaseException:
            self._close()
            raise
        owner.mark_opened(self._own)
        self._guard(root)

    @property
    def _own(self) -> int:
        return self._fds[0]

    def look(self) -> str:
        """
        Why the store is no longer this broker's, "": it is. A removed file `lock` is made again, so
        that stock brokers stay away; where another program has locked a new one first, that stays
        so until the end of this broker, since it may have written already.
        """
        path = self._folders.leads_elsewhere()
        if path is not None:
            return f"{path} does not lead to the folder that this broker has opened"
        if not self._lost and not _leads_to(self._path, self._own):
            self._lost = self._make_again()
        return self._lost

    def _make_again(self) -> str:
        """The file anew, or why not: where it says that it was opened, it was by another broker."""
        word = os.pread(self._own, len(owner.ALONE), 0)
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            return f"{self._path} is gone and cannot be made again ({error.strerror})"
        if not _record_locked(fd) or os.pread(fd, 1, 0):
            os.close(fd)
            return f"{self._path} was removed, and another broker has made its own"
        files.write_all(fd, word)
        self._fds.append(self._own)              # its descriptor stays: children have its lock
        self._fds[0] = fd
        self.made_again += 1
        return ""

    def _guard(self, root: Path) -> None:
        """Stand at both doors to the disk, mqcore.store.files and mqcore.store.io."""
        status = os.stat(root)
        io.own(os.fsencode(root), status.st_dev, status.st_ino)
        real = files.Calls()
        below = tuple(f"{path}/" for path in self._folders.paths)

        def check(path: os.PathLike[str] | str) -> None:
            if f"{os.fspath(path)}/".startswith(below) and self._folders.leads_elsewhere():
                raise OSError(errno.ESTALE, "its store's path leads elsewhere", os.fspath(path))

        def open_file(path: Path, flags: int, mode: int = files.FILE_MODE) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                check(path)
            return real.open(path, flags, mode)

        def checked(call: Callable[..., None]) -> Callable[..., None]:
            def checking(path: Path, *more: Any) -> None:
                check(path)
                call(path, *more)

            return checking

        files.calls.open = open_file
        for name in GUARDED[1:]:
            setattr(files.calls, name, checked(getattr(real, name)))

    def release(self) -> None:
        self._close()
        for name in GUARDED:
            setattr(files.calls, name, getattr(files.Calls, name))
        io.own(b"", 0, 0)

    def _close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())
        self._folders.release()


def folders_of(root: Path, log: LogFolders | None) -> list[Path]:
    """The folders that a store's owner locks: its own, and those of its commit log."""
    return [root, *(log.all() if log is not None and log.all() else [root / LOG])]


def _identity(status: os.stat_result) -> tuple[int, int]:
    """Of a file or folder, whatever path leads to it."""
    return (status.st_dev, status.st_ino)


def _leads_to(path: Path, fd: int) -> bool:
    try:
        return _identity(os.stat(path)) == _identity(os.fstat(fd))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _record_holder(root: Path) -> int:
    with contextlib.suppress(FileNotFoundError), files.opened(root / "lock", os.O_RDONLY) as fd:
        return lock_holder(fd)
    return 0


def _record_locked(fd: int) -> bool:
    """Take the record lock as a lock of this process, whose id others are told."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _flock(fd: int, kind: int, path: Path, until_s: float) -> None:
    """`flock`, tried until that time of the steady clock. Raises BlockingIOError, OSError."""
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= until_s:
                error.filename = os.fspath(path)
                raise
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
            return
        time.sleep(LOOK_S)
