"""
The abort file: there while a store is open, and what the next start learns from it.

Stock brokers only look whether it is there (store.md 1). Ours holds two words, the flush mode and
the boot of the machine: as long as that is the same, what was written is in the page cache, synced
or not, and only processes can have died.
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mqcore.store.files import read as read_file
from mqcore.store.files import write_atomically

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class LastRun:
    """How the run before this one ended."""

    clean: bool                # no abort file
    ours: bool = False         # an unclean end of ours: the abort file has our two words
    synced: bool = False       # it was in sync mode
    same_boot: bool = False    # the machine was not started since


def boot_id() -> str:
    """Of this start of the machine; empty when the system has none."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def read(abort: Path) -> LastRun:
    """What the abort file says; a stock broker's is empty. Raises OSError."""
    try:
        words = read_file(abort).decode("ascii", errors="replace").split()
    except FileNotFoundError:
        return LastRun(clean=True)
    if len(words) != 2:
        return LastRun(clean=False)
    return LastRun(clean=False, ours=True, synced=words[0] == "sync",
                   same_boot=words[1] == boot_id())


def mark(abort: Path, flush_mode: str) -> None:
    """A run begins: an end without `abort` being removed is unclean. Raises OSError."""
    write_atomically(abort, f"{flush_mode} {boot_id()}".strip().encode("ascii"))
