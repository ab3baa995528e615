"""
Where a run's shared memory lies: under a name in /dev/shm, or in a memfd.

/dev/shm is a file system with a size, often 64 MiB in a container: who touches a page of a named
segment that the file system cannot give any more dies of SIGBUS. So what a run surely uses of
named memory is allocated when it is made, and a table allocates before it grows (reserve.pxd). A
memfd lies on no file system: only the memory of the machine, or of the container, is its limit. It
has no name that others could open: they find it among the descriptors of the supervisor, whose
process id is the end of the segment's name in both cases.
"""
from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import posix_ipc

FOLDER = Path("/dev/shm")
PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
KINDS = ("auto", "named", "memfd")
SUPERVISOR_COMM = "mqcore: supervi"    # its title, as long as /proc/PID/comm has it
MIB = 1 << 20

Range = tuple[int, int]                # start and end


class SharedMemoryError(Exception):
    """Shared memory cannot be had as it was asked for; the text is one sentence with numbers."""


def make(name: str, size: int, kind: str, reserved: Sequence[Range]) -> tuple[int, bool]:
    """
    A descriptor of new shared memory of `size` bytes, and whether it has a name in /dev/shm.

    name: with a leading slash; kind: of KINDS, "auto" takes /dev/shm where it has room for all of
    it; reserved: what is allocated at once in named memory. Raises SharedMemoryError, and
    posix_ipc.ExistentialError when the name is taken.
    """
    total = memory_bytes()
    if size > total:
        raise SharedMemoryError(
            f"shared memory of {mib(size)} is more than the {mib(total)} of memory that there are: "
            "expected smaller processes.*_count_max or store.message_size_max_bytes")
    if kind != "memfd":
        free = free_bytes()
        if free >= size:
            with contextlib.suppress(_NoRoom):
                return _named(name, size, reserved), True
        if kind == "named":
            raise SharedMemoryError(
                f"{FOLDER} has {mib(free)} free, and the shared memory needs {mib(size)}: make it "
                'larger (docker run --shm-size), or set processes.shared_memory = "memfd"')
    fd = os.memfd_create(name.lstrip("/"), os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd, False


class _NoRoom(Exception):
    """/dev/shm was taken by others between the look and the reservation."""


def _named(name: str, size: int, reserved: Sequence[Range]) -> int:
    memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600, size=size)
    try:
        for start, end in reserved:
            os.posix_fallocate(memory.fd, start, end - start)
    except OSError as error:
        memory.close_fd()
        posix_ipc.unlink_shared_memory(name)
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise _NoRoom from error
        raise
    return int(memory.fd)


def open_existing(name: str) -> int:
    """A descriptor of the segment `name`. Raises posix_ipc.ExistentialError when there is none."""
    try:
        return os.open(FOLDER / name.lstrip("/"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        path = memfd_path(name)
        if path is None:
            raise posix_ipc.ExistentialError(f"there is no shared memory {name}") from None
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def memfd_path(name: str) -> Path | None:
    """The supervisor's descriptor of the memfd `name` in /proc; None: there is none."""
    pid = name.rpartition("-")[2]
    if not pid.isdigit():
        return None
    wanted = f"/memfd:{name.lstrip('/')} (deleted)"
    with contextlib.suppress(OSError):
        for one in (PROC / pid / "fd").iterdir():
            with contextlib.suppress(OSError):             # it was closed meanwhile
                if os.readlink(one) == wanted:
                    return one
    return None


def named(prefix: str) -> list[str]:
    """Names (with slash) of the segments in /dev/shm that begin with `prefix` (without slash)."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        return sorted(f"/{name}" for name in os.listdir(FOLDER) if name.startswith(prefix))
    return []


def remove_stale(own_prefix: str, is_alive: Callable[[int], bool]) -> None:
    """
    Take away the names of segments that nobody needs: those of our store (`own_prefix`), which is
    ours alone, and those whose supervisor is dead (`is_alive` of its process id). What is still
    mapped somewhere stays until that process ends.
    """
    for name in named("mqcore-"):
        pid = name.rpartition("-")[2]
        if name.startswith(f"/{own_prefix}") or (pid.isdigit() and not is_alive(int(pid))):
            with contextlib.suppress(PermissionError):
                unlink(name)


def names(prefix: str) -> list[str]:
    """Names of all segments that begin with `prefix`, those of memfds too."""
    found = set(named(prefix))
    for process in PROC.iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):             # it ended, or is not ours to look at
                if (process / "comm").read_text().startswith(SUPERVISOR_COMM):
                    found |= {name for name in _memfds(process) if name.startswith(f"/{prefix}")}
    return sorted(found)


def _memfds(process: Path) -> set[str]:
    """The memfds that a process made under its own process id."""
    found = set()
    for one in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            kind, _, rest = os.readlink(one).partition(":")
            name = rest.removesuffix(" (deleted)")
            if kind == "/memfd" and name.endswith(f"-{process.name}"):
                found.add(f"/{name}")
    return found


def unlink(name: str) -> None:
    """Take the name away, if it has one."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(FOLDER / name.lstrip("/"))


def free_bytes() -> int:
    """What /dev/shm can still take; 0 where there is none that we may write to."""
    try:
        room = os.statvfs(FOLDER)
    except OSError:
        return 0
    if not os.access(FOLDER, os.W_OK | os.X_OK):
        return 0
    if room.f_blocks == 0:             # mounted without a limit
        return memory_bytes()
    return room.f_bavail * room.f_frsize


def memory_bytes() -> int:
    """The memory of the machine, or of our control group if that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([total, *_group_limits()])


def _group_limits() -> list[int]:
    """The limits of our control group and of those above it (cgroup 2, then 1)."""
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = CGROUP / controllers
        limit = "memory.limit_in_bytes" if controllers else "memory.max"
        place = root / path.lstrip("/")
        for folder in (place, *place.parents):
            if not folder.is_relative_to(root):
                break
            with contextlib.suppress(OSError, ValueError):       # "max", or not shown in here
                found.append(int((folder / limit).read_text()))
    return found


def mib(size: int) -> str:
    """A size for a sentence."""
    return f"{size / MIB:.0f} MiB"
