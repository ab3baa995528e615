"""Waiting for a condition: looks again and again, up to a deadline."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WAIT_S = 60.0                     # long: others may use the machine
LOOK_S = 0.005


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> float:
    """Wait until `condition()` is true; seconds that it took. AssertionError that says `what`."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"not within {timeout_s} s: {what}"
        time.sleep(LOOK_S)
    return time.monotonic() - began


async def wait_until_async(
    condition: Callable[[], object], what: str, timeout_s: float = WAIT_S,
) -> None:
    """The same beside other tasks."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(LOOK_S)
