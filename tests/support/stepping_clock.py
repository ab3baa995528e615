"""
A wall clock that is set when told, beneath any process: C and Python, parents and children.

    clock = SteppingClock.create(folder)                      # needs cc, as the build does
    with clock.worn(monkeypatch), mqcore_up(folder) as broker:
        clock.ahead_s = 3600                                  # an hour ahead, from now on

The steady clock is as it is, and so are both clocks of the test itself.
"""
from __future__ import annotations

import contextlib
import struct
import subprocess
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path

import pytest

from tests.support.failing_disk import compiler

SOURCE = Path(__file__).with_name("stepping_clock.c")
OFFSET = struct.Struct("=q")


class SteppingClock:
    """The clock that preloaded processes share."""

    def __init__(self, library: Path, path: Path) -> None:
        self._library, self._path = library, path
        with path.open("r+b") as file:
            self._memory = mmap(file.fileno(), 0)

    @classmethod
    def create(cls, folder: Path) -> SteppingClock:
        """Compile the library into `folder`; the clock is right at first."""
        folder.mkdir(parents=True, exist_ok=True)
        library, path = folder / "stepping_clock.so", folder / "clock"
        subprocess.run([compiler() or "cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o",
                        str(library), str(SOURCE), "-ldl"], check=True)
        path.write_bytes(OFFSET.pack(0))
        return cls(library, path)

    @contextlib.contextmanager
    def worn(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """What is started within the block goes by this clock."""
        with monkeypatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(self._library))
            patch.setenv("STEPPING_CLOCK", str(self._path))
            yield

    @property
    def ahead_s(self) -> float:
        return OFFSET.unpack(self._memory)[0] / 1e9

    @ahead_s.setter
    def ahead_s(self, seconds: float) -> None:
        OFFSET.pack_into(self._memory, 0, int(seconds * 1e9))
