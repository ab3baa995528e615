"""
Waiting for a condition: looks again and again, up to a deadline. Who has waited for long looks less
often: it is late by LATE of its wait at most, and takes the others' time no longer.
"""
from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WAIT_S = 60.0                     # long: others may use the machine
LOOK_S, LOOK_S_MAX = 0.005, 0.05
LATE = 0.05


def until_next_look(waited_s: float) -> float:
    """Seconds until the condition is looked at again."""
    return min(max(LOOK_S, waited_s * LATE), LOOK_S_MAX)


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> float:
    """Wait until `condition()` is true; seconds that it took. AssertionError that says `what`."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < timeout_s, f"not within {timeout_s} s: {what}"
        time.sleep(until_next_look(waited))
    return time.monotonic() - began


async def wait_until_async(
    condition: Callable[[], object], what: str, timeout_s: float = WAIT_S,
) -> None:
    """The same beside other tasks."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < timeout_s, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(until_next_look(waited))
