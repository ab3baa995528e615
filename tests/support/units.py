"""What a machine does in a while: CPU time is compared with it, not with a clock."""
from __future__ import annotations

import time
from collections.abc import Iterator

TEXTS = 100_000


def unit() -> float:
    """CPU seconds of a list of TEXTS texts: some ten milliseconds."""
    best = 1e9
    for _ in range(5):
        began = time.thread_time()
        assert len([str(number) for number in range(TEXTS)]) == TEXTS
        best = min(best, time.thread_time() - began)
    return best


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
