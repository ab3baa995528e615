"""
Standard output and error of a process that serves: a courtesy. They may be closed, on a full disk,
or belong to a terminal that has gone; the process lives on.
"""
from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from mqcore.wire.printable import printable

STANDARD_FDS = (0, 1, 2)


def occupy_standard_fds() -> None:
    """
    Open /dev/null for each standard descriptor that is closed. A file of the store would get its
    number, and what the interpreter or a library writes to standard error would go there.
    """
    for fd in STANDARD_FDS:
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)     # the lowest free number
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)       # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)       # noqa: SIM115


def tell(text: str) -> None:
    """A line to standard output, if it takes one."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def complain(text: str) -> None:
    """The sentence that says why a process ends, to standard error, if it takes one."""
    with contextlib.suppress(OSError):
        print(f"mqcore: {printable(text)}", file=sys.stderr, flush=True)


def flush() -> None:
    """Write what standard output and error hold, if they take it."""
    for stream in _streams():
        with contextlib.suppress(OSError):
            stream.flush()


def _streams() -> list[TextIO]:
    return [stream for stream in (sys.stdout, sys.stderr) if stream is not None]


def give_up() -> None:
    """Before an exit: the interpreter would make an error of what cannot be written still."""
    for stream in _streams():
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
