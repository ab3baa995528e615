"""Processes and threads as Linux counts them: their state, how long they ran and waited."""
from __future__ import annotations

from pathlib import Path


def threads_ns(process: int | str = "self") -> dict[str, tuple[int, int]]:
    """
    How long each of a process's threads has run, and how long it has waited for a processor. Empty
    where the kernel does not say it, and of a process that has ended.
    """
    found = {}
    for schedstat in Path("/proc", str(process), "task").glob("*/schedstat"):
        try:
            ran, waited, *_ = schedstat.read_text().split()
        except (FileNotFoundError, ProcessLookupError):      # it has ended
            continue
        found[schedstat.parent.name] = int(ran), int(waited)
    return found


def stat_words(process: int) -> list[str]:
    """
    The words of /proc/PID/stat from the state, a letter, on: behind the name, which may hold any
    byte.
    Raises OSError; FileNotFoundError or ProcessLookupError of a process that is gone.
    """
    text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    return text.rpartition(")")[2].split()


def processor_ns(*processes: int | str) -> tuple[int, int]:
    """The sums of `threads_ns` of some processes; of this one where none is named."""
    times = [one for process in processes or ("self",) for one in threads_ns(process).values()]
    return sum(ran for ran, _ in times), sum(waited for _, waited in times)
