"""
A disk that fails when told, beneath any process: C and Python, parents and children.

    library = build(folder)                                  # needs cc, as the build does
    disk = FailingDisk.create(folder / "plan", root)
    subprocess.run(..., env=disk.environment(library))       # counts the calls on files below root
    disk.arm(at=17, error=errno.EIO)

Kinds of trouble: "once" (call number `at` fails), "short" (it writes half and says so), "torn" (it
writes half and fails), "sticky" (from it on every call that changes something fails), "writes" and
"syncs" (from it on every one of these fails), "slow" (from it on every write takes `error` ms
longer). Short and torn concern writes of at least two bytes. `arm_site` has "site": the first call
of a kind on a kind of file fails.
"""
from __future__ import annotations

import os
import shutil
import struct
import subprocess
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path

SOURCE = Path(__file__).with_name("failing_disk.c")
HEAD = struct.Struct("=qqqiiii256si120s")
CALL = struct.Struct("=ii120s")
CALLS_MAX = 16384
KINDS = ("once", "short", "torn", "sticky", "writes", "syncs", "slow", "site")
CALLS = ("open", "read", "write", "truncate", "allocate", "sync", "rename", "unlink", "mkdir",
         "rmdir")


@dataclass(frozen=True)
class Call:
    """One call on a file; the path below the root."""

    name: str
    path: str
    size: int


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def build(folder: Path) -> Path:
    """The library that is preloaded."""
    library = folder / "failing_disk.so"
    subprocess.run([compiler() or "cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o",
                    str(library), str(SOURCE), "-ldl"], check=True)
    return library


class FailingDisk:
    """The plan that preloaded processes share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._memory = mmap(file.fileno(), 0)

    @classmethod
    def create(cls, path: Path, root: Path) -> FailingDisk:
        """A plan in the file `path` that concerns all below the folder `root`."""
        path.write_bytes(bytes(HEAD.size + CALL.size * CALLS_MAX))
        made = cls(path)
        made.turn_to(root)
        return made

    def turn_to(self, root: Path) -> None:
        """Concern all below another folder from now on; nothing goes wrong, nothing is counted."""
        prefix = os.fsencode(root) + b"/"
        HEAD.pack_into(self._memory, 0, 0, -1, 0, 0, 0, 0, len(prefix), prefix, 0, b"")

    def environment(self, library: Path) -> dict[str, str]:
        return {**os.environ, "LD_PRELOAD": str(library), "FAILING_DISK": str(self.path)}

    def arm(self, *, at: int = -1, error: int = 0, kind: str = "once") -> None:
        """Count from 0 on, and let call `at` go wrong; -1: none."""
        root = HEAD.unpack_from(self._memory)[-4:-2]
        HEAD.pack_into(self._memory, 0, 0, at, 0, 1, error, KINDS.index(kind), *root, 0, b"")

    def arm_site(self, site: str, error: int) -> None:
        """Let the first call at `site` ("unlink commitlog/N") go wrong, whichever number it has."""
        name, _, path = site.partition(" ")
        root = HEAD.unpack_from(self._memory)[-4:-2]
        HEAD.pack_into(self._memory, 0, 0, -1, 0, 1, error, KINDS.index("site"), *root,
                       CALLS.index(name), path.encode())

    def disarm(self) -> None:
        """Nothing goes wrong, nothing is counted."""
        struct.pack_into("=i", self._memory, 24, 0)

    @property
    def count(self) -> int:
        return int(HEAD.unpack_from(self._memory)[0])

    @property
    def fired(self) -> int:
        """How many calls went wrong."""
        return int(HEAD.unpack_from(self._memory)[2])

    def calls(self) -> list[Call]:
        """All calls since `arm`, as many as fit."""
        assert self.count <= CALLS_MAX, f"{self.count} calls"
        return [self.call(number) for number in range(self.count)]

    def call(self, number: int) -> Call:
        """One of the first CALLS_MAX calls since `arm`."""
        name, size, path = CALL.unpack_from(self._memory, HEAD.size + number * CALL.size)
        return Call(CALLS[name], path.partition(b"\0")[0].decode(), size)
