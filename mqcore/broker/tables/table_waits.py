"""
Slaves of ours that wait until the tables are others than they know: a question of each, which is
answered soon behind a change, or when its time is over.

What changes is told a little later, with what else changes meanwhile: topics and groups after
NAMES_GATHER_MS, offsets, which change all the time, after OFFSETS_GATHER_MS. A change costs no more
than a look at versions, however many there are.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from mqcore.broker.request import Answer, Request
from mqcore.wire.codes import TABLES_CHANGED, ResponseCode

WAITS_MAX = 32                     # as many as a master has slaves
WAIT_MS_MAX = 10_000
NAMES_GATHER_MS = 5
OFFSETS_GATHER_MS = 50


class Versions(NamedTuple):
    """Texts of the tables' versions; of offsets None, where nobody waits for them."""

    topics: str
    groups: str
    offsets: str | None


@dataclass(slots=True)
class _Wait:
    request: Request
    known: Versions
    end_ms: int
    due_ms: int | None = None      # when a change is to be told

    def look(self, now: Versions, now_ms: int) -> None:
        """Note a change; one of names is told sooner than one of offsets that came before it."""
        gather_ms = None
        if (now.topics, now.groups) != (self.known.topics, self.known.groups):
            gather_ms = NAMES_GATHER_MS
        elif self.known.offsets not in (None, now.offsets):
            gather_ms = OFFSETS_GATHER_MS
        if gather_ms is not None:
            self.due_ms = min(self.due_ms or now_ms + gather_ms, now_ms + gather_ms)


class TableWaits:
    def __init__(self) -> None:
        self._waits: dict[int, _Wait] = {}     # by connection

    def __len__(self) -> int:
        return len(self._waits)

    def knows(self, connection: int) -> bool:
        return connection in self._waits

    def connections(self) -> set[int]:
        return set(self._waits)

    def add(self, request: Request, known: Versions, wait_ms: int) -> Answer | None:
        """
        None: it waits, in place of what its connection has asked before, which is never answered.
        An answer: there are too many.
        """
        if request.connection not in self._waits and len(self._waits) >= WAITS_MAX:
            return _answer(False)
        self._waits[request.connection] = _Wait(
            request, known, request.now_ms + min(max(wait_ms, 0), WAIT_MS_MAX))
        return None

    def forget(self, connection: int) -> None:
        self._waits.pop(connection, None)

    def due_in_ms(self, now: Callable[[], Versions], now_ms: int) -> int | None:
        """after how many ms `answer_due` has to tell of a change; None: there is none."""
        if not self._waits:
            return None
        versions, due = now(), []
        for wait in self._waits.values():
            wait.look(versions, now_ms)
            if wait.due_ms is not None:
                due.append(wait.due_ms - now_ms)
        return max(0, min(due)) if due else None

    def answer_due(
        self, now: Callable[[], Versions], now_ms: int, answer: Callable[[Request, Answer], None],
    ) -> None:
        """Answer what is due, and what has waited for long enough."""
        if not self._waits:
            return
        versions = now()
        for connection, wait in list(self._waits.items()):
            wait.look(versions, now_ms)
            told = wait.due_ms is not None and now_ms >= wait.due_ms
            if told or now_ms >= wait.end_ms:
                del self._waits[connection]
                answer(wait.request, _answer(wait.due_ms is not None))


def _answer(changed: bool) -> Answer:
    return Answer(ResponseCode.SUCCESS, ext={TABLES_CHANGED: "true" if changed else "false"})
