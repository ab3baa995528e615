"""
The process behind mqcore/admin/shell/limited.py. Only what the work needs is imported.

A request and an answer: HEAD, then so many bytes.
"""
from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Final

HEAD: Final = struct.Struct("<I?")     # bytes; whether they say why there is no answer
MEMORY_BYTES_MAX: Final = 512 << 20
NICER: Final = 10


def main(work: str, seconds: float) -> None:
    """Answer requests until there are no more."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGPROF, signal.SIG_DFL)       # which ends the process, in native code too
    signal.signal(signal.SIGINT, signal.SIG_IGN)        # the other end of the pipe decides
    os.nice(NICER)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    module, _, name = work.partition(":")
    answer: Callable[[bytes], bytes] = getattr(import_module(module), name)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    while head := requests.read(HEAD.size):
        request = requests.read(HEAD.unpack(head)[0])
        signal.setitimer(signal.ITIMER_PROF, seconds)
        failed = False
        try:
            said = answer(request)
        except (ValueError, MemoryError, RecursionError, OverflowError) as error:
            said, failed = (str(error) or type(error).__name__).encode(errors="replace"), True
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(HEAD.pack(len(said), failed))
        answers.write(said)
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
