"""
Waiting for a condition: looks again and again, up to a deadline.

A look may ask brokers or run a query, and take from a full machine what is waited for: so pauses
grow with the time that was waited, and are three times as long as a look.
"""
from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

# long: others may use the machine; tests that are to fail do not wait so long (tests/mutants)
WAIT_S = float(os.environ.get("MQCORE_TEST_WAIT_S", "60"))
LOOK_S, LOOK_S_MAX = 0.005, 0.1


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> float:
    """Wait until `condition()` is true; seconds that it took. AssertionError that says `what`."""
    began = looks = time.monotonic()
    while not condition():
        time.sleep(_pause_before(timeout_s, what, began, looks))
        looks = time.monotonic()
    return time.monotonic() - began


def _pause_before(timeout_s: float, what: str, began: float, looks: float) -> float:
    now = time.monotonic()
    assert now - began < timeout_s, f"not within {timeout_s} s: {what}"
    return pause_s(now - began, now - looks)


def pause_s(waited_s: float, look_s: float) -> float:
    """Until the next look, when so long was waited and the last look took so long."""
    return min(LOOK_S_MAX, max(LOOK_S, waited_s / 20, 3 * look_s))


async def wait_until_async(
    condition: Callable[[], object], what: str, timeout_s: float = WAIT_S,
) -> None:
    """The same beside other tasks."""
    began = looks = time.monotonic()
    while not condition():
        await asyncio.sleep(_pause_before(timeout_s, what, began, looks))
        looks = time.monotonic()
