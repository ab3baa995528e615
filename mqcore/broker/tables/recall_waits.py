"""
Recalls that are stored, until it is known whether they were in time: when the timer has read them,
and has the outcome of all that it handed over before (timer TM9), and the key index has that, too.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mqcore.broker.request import Request
from mqcore.wire.recall_handle import RecallHandle

WAITS_MAX = 1_000
WAIT_MS = 1_000
LOOK_MS = 2


class Standing(NamedTuple):
    """cleared: a queue offset; published, dispatched: the log's ends, for readers and queues."""

    cleared: int
    published: int
    dispatched: int


class Recall(NamedTuple):
    request: Request
    handle: RecallHandle
    known: bool                # False: the time for it is over


@dataclass(slots=True)
class _Wait:
    request: Request
    handle: RecallHandle
    queue_offset: int
    end_ms: int
    in_time: bool
    position: int              # what was delivered before it stands before this end of the log


class RecallWaits:
    def __init__(self) -> None:
        self._waits: list[_Wait] = []

    def __len__(self) -> int:
        return len(self._waits)

    def add(
        self, request: Request, handle: RecallHandle, queue_offset: int, position: int,
        now_ms: int, *, in_time: bool,
    ) -> bool:
        """
        queue_offset, position: of the stored recall; in_time: its message cannot have been handed
        over, and only the index has to have what was stored before. False: too many wait.
        """
        if len(self._waits) >= WAITS_MAX:
            return False
        self._waits.append(_Wait(request, handle, queue_offset, now_ms + WAIT_MS, in_time,
                                 position + 1 if in_time else -1))
        return True

    def due(self, standing: Standing, now_ms: int) -> list[Recall]:
        """Those that wait no longer."""
        due, waiting = [], []
        for wait in self._waits:
            if wait.position < 0 and standing.cleared > wait.queue_offset:
                wait.position = standing.published
            known = 0 <= wait.position <= standing.dispatched
            if known or now_ms >= wait.end_ms:
                due.append(Recall(wait.request, wait.handle, known or wait.in_time))
            else:
                waiting.append(wait)
        self._waits = waiting
        return due
