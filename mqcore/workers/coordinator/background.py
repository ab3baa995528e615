"""
Work beside the coordinator's loop: one thread at a time, in small steps.

The interpreter is one thread's at a time. A step takes a millisecond or two; after each the
thread sleeps, so that the loop continues at once when it has something to do.
"""
from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

BREATH_S = 0.0005

Done = Callable[[OSError | None], None]


class Background:
    """The rules' Background (mqcore.broker.ports) for an asyncio loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._hurry = False

    def run(self, steps: Iterator[None], done: Done) -> None:
        """As the port says. The one before has to be done."""
        self._thread = threading.Thread(target=self._run, args=(steps, done), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for what is under way; nothing may be begun afterwards."""
        self._hurry = True
        if self._thread is not None:
            self._thread.join()

    def _run(self, steps: Iterator[None], done: Done) -> None:
        end = partial(done, None)
        try:
            for _ in steps:
                if not self._hurry:
                    time.sleep(BREATH_S)
        except OSError as error:
            end = partial(done, error)
        except BaseException as error:     # our own mistake: raised where it ends this process
            end = partial(_raise, error)
        self._loop.call_soon_threadsafe(end)


def _raise(error: BaseException) -> None:
    raise error
