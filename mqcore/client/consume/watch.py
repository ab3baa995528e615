"""Notices a listener that blocks the event loop (heartbeats and answers wait meanwhile)."""
from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from mqcore.client.events import SlowListener
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.instance import ClientInstance

BLOCKED_S = 1.0
LOOK_S = 0.5

log: Final = logging.getLogger("mqcore.client")

# Called with the listener's name, what it works on, since how many seconds, and if it comes again
Slow = Callable[[str, Sequence[ReceivedMessage], float, bool], None]


def slow_of(instance: ClientInstance) -> Slow:
    """The function that tells the application that its listener is slow."""
    def slow(name: str, messages: Sequence[ReceivedMessage], seconds: float, expired: bool) -> None:
        instance.tell(SlowListener(
            client_id=instance.client_id, listener=name, messages=tuple(messages),
            seconds=seconds, expired=expired))

    return slow


async def watch_loop(name: str, calls: Callable[[], int], slow: Slow) -> None:
    """Warn, with the listener's name, when the loop stood still while it was called."""
    while True:
        before, began = calls(), time.monotonic()
        await asyncio.sleep(LOOK_S)
        late = time.monotonic() - began - LOOK_S
        if late > BLOCKED_S and calls() != before:
            log.warning(
                "listener %s blocked the event loop for %.1f s: heartbeats and answers waited;"
                " what blocks belongs into a plain function with run_in_thread=True", name, late)
            slow(name, (), late, False)
