"""Notices a listener that blocks the event loop (heartbeats and answers wait meanwhile)."""
from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

BLOCKED_S = 1.0
LOOK_S = 0.5

log: Final = logging.getLogger("mqcore.client")


async def watch_loop(name: str, calls: Callable[[], int]) -> None:
    """Warn, with the listener's name, when the loop stood still while it was called."""
    while True:
        before, began = calls(), time.monotonic()
        await asyncio.sleep(LOOK_S)
        late = time.monotonic() - began - LOOK_S
        if late > BLOCKED_S and calls() != before:
            log.warning(
                "listener %s blocked the event loop for %.1f s: heartbeats and answers waited;"
                " what blocks belongs into a plain function with run_in_thread=True", name, late)
