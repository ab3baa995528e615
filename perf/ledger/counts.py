"""Counters of a broker's processes: of counting.c, and what the kernel keeps of each process."""
from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

FOLDER_VARIABLE = "MQCORE_LEDGER"
SOURCE = Path(__file__).with_name("counting.c")
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-fPIC", "-shared")
FORMAT = struct.Struct("<4q")
MINOR_FAULTS_FIELD = 7                  # of /proc/PID/stat, behind the name


class LedgerError(RuntimeError):
    """Something cannot be counted here."""


@dataclass(frozen=True)
class Counts:
    """
    Of one process so far, or between two looks.

    copied, allocations, clocks, calls: as in counting.c; switches: how often its threads went to
    sleep by themselves; pages: that it touched first, or anew after a fork.
    """

    copied: float = 0
    allocations: float = 0
    clocks: float = 0
    calls: float = 0
    switches: float = 0
    pages: float = 0

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) - getattr(other, name) for name in FIGURES))

    def __mul__(self, factor: float) -> Counts:
        return Counts(*(getattr(self, name) * factor for name in FIGURES))


FIGURES = tuple(field.name for field in fields(Counts))


def preloaded(source: Path, folder: Path) -> Path:
    """A library of one C file. Raises LedgerError."""
    compiler, library = shutil.which("cc"), folder / source.with_suffix(".so").name
    if compiler is None:
        raise LedgerError("cc: expected a C compiler")
    made = subprocess.run([compiler, *FLAGS, "-o", str(library), str(source), "-ldl"],
                          capture_output=True, text=True)
    if made.returncode:
        raise LedgerError(f"{source.name} cannot be compiled: {made.stderr}")
    return library


@contextlib.contextmanager
def counting(folder: Path, *before: Path) -> Iterator[Path]:
    """
    Programs that are executed meanwhile count into a folder, which is yielded. before: libraries
    whose calls are counted.
    """
    numbers = folder / "counts"
    numbers.mkdir()
    words = {"LD_PRELOAD": " ".join(map(str, (*before, preloaded(SOURCE, folder)))),
             FOLDER_VARIABLE: str(numbers)}
    kept = {name: os.environ.get(name) for name in words}
    os.environ.update(words)
    try:
        yield numbers
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def look(numbers: Path, pid: int) -> Counts:
    """The counts of a running process so far."""
    try:
        counted = FORMAT.unpack((numbers / str(pid)).read_bytes()[:FORMAT.size])
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        slept = sum(int(line.split()[1]) for task in Path(f"/proc/{pid}/task").iterdir()
                    for line in (task / "status").read_text().splitlines()
                    if line.startswith("voluntary_ctxt_switches:"))
    except OSError as error:
        raise LedgerError(f"process {pid} is not counted: {error}") from None
    return Counts(*counted, slept, int(stat[MINOR_FAULTS_FIELD]))


def private_bytes(pids: Sequence[int]) -> int:
    """Memory of processes that is backed by no file: each page shared among those that have it."""
    return sum(int(line.split()[1]) << 10 for pid in pids
               for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
               if line.startswith("Pss_Anon:"))
