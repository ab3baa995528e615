"""What a machine does in a while: CPU time is compared with it, not with a clock."""
from __future__ import annotations

import time
from collections.abc import Iterator

TEXTS = 100_000
_quickest = 0.0                    # the quickest unit of this process so far; 0: none yet


def unit() -> float:
    """CPU seconds of a list of TEXTS texts: some ten milliseconds."""
    global _quickest
    best = 1e9
    for _ in range(5):
        began = time.thread_time()
        assert len([str(number) for number in range(TEXTS)]) == TEXTS
        best = min(best, time.thread_time() - began)
    _quickest = min(_quickest or best, best)
    return best


def units(seconds: float, most: float) -> float:
    """
    What took so many CPU seconds, in units: of the quickest one so far where even these are at
    most `most`, which costs nothing, else of one that is measured now.
    """
    if _quickest and seconds <= most * _quickest:
        return seconds / _quickest
    return seconds / unit()


def longest_step(job: Iterator[object]) -> float:
    """CPU seconds of a job's longest stretch between two pauses."""
    longest = 0.0
    while True:
        began = time.thread_time()
        try:
            next(job)
        except StopIteration:
            return max(longest, time.thread_time() - began)
        longest = max(longest, time.thread_time() - began)
