"""
Memory that is refused when told, to native code of one process: mqcore's, and OpenSSL's.

    memory = FailingMemory.create(folder)                     # needs cc, as the build does
    with mqcore_up(folder, program=memory.program) as broker:
        memory.arm(pid, at=17)                                # request number 17 from now on

What the interpreter asks for is not refused.
"""
from __future__ import annotations

import struct
import subprocess
from mmap import mmap
from pathlib import Path

from tests.support.failing_disk import compiler
from tests.support.mqcore_process import MQCORE

SOURCE = Path(__file__).with_name("failing_memory.c")
PLAN = struct.Struct("=qqqii")


class FailingMemory:
    """The plan that preloaded processes share. program: what starts one."""

    def __init__(self, library: Path, path: Path) -> None:
        self.program = ["env", f"LD_PRELOAD={library}", f"FAILING_MEMORY={path}", *MQCORE]
        with path.open("r+b") as file:
            self._memory = mmap(file.fileno(), 0)

    @classmethod
    def create(cls, folder: Path) -> FailingMemory:
        """Compile the library into `folder`; nothing is refused at first."""
        folder.mkdir(parents=True, exist_ok=True)
        library, path = folder / "failing_memory.so", folder / "plan"
        subprocess.run([compiler() or "cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o",
                        str(library), str(SOURCE), "-pthread"], check=True)
        path.write_bytes(PLAN.pack(0, -1, 0, 0, 0))
        return cls(library, path)

    def arm(self, pid: int, *, at: int = -1, sticky: bool = False) -> None:
        """Count a process's requests from 0 on and refuse number `at`; -1: none. sticky: and all
        behind it."""
        self.disarm()
        PLAN.pack_into(self._memory, 0, 0, at, 0, pid, int(sticky))

    def disarm(self) -> None:
        struct.pack_into("=i", self._memory, 24, 0)

    @property
    def count(self) -> int:
        return int(PLAN.unpack_from(self._memory)[0])

    @property
    def fired(self) -> int:
        """How many were refused."""
        return int(PLAN.unpack_from(self._memory)[2])
