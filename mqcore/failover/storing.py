"""
Whether a broker that leads can do what it leads for: its log takes messages, and the others of the
set take its log (leadership FO11: shm/leadership.pxd). No clock and no disk: it is told what is
known.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from mqcore.layout import REFUSAL_DISK_FULL, REFUSAL_FLUSH_FAILED, REFUSAL_NONE

REFUSED_MS = 1000                 # a disk that is full for a moment is none that fails ...
TAKEN_MS = 1000                   # ... and one that takes one write between two failures does


class Reported(Protocol):
    """Of another member: every byte below `acked`; connected: there is a link."""

    @property
    def acked(self) -> int: ...

    @property
    def connected(self) -> bool: ...


class Moving:
    """
    How the others take the log while this broker leads. moved: enough others did so at one time.
    """

    def __init__(self) -> None:
        self.moved = False
        self._begun_ms = -1
        self._last: dict[int, tuple[int, int]] = {}      # by number: what it had, when it got it

    def still_ms(self, others: Collection[int], reports: Mapping[int, Reported], end: int,
                 now_ms: int, enough: int) -> int:
        """
        For how long fewer than `enough` of the others have had all there is, or got more; ms.
        others: their numbers; end: of the log.
        """
        if self._begun_ms < 0:
            self._begun_ms = now_ms
        before, self._last = self._last, {}
        for number in others:
            report = reports.get(number)
            acked, at_ms = before.get(number, (-1, -1))
            if report is not None and report.connected:
                if report.acked >= end or report.acked > acked >= 0:
                    at_ms = now_ms
                acked = report.acked
            self._last[number] = acked, at_ms
        moved_ms = sorted((at_ms for _, at_ms in self._last.values()), reverse=True)
        enough_ms = moved_ms[enough - 1] if len(moved_ms) >= enough else -1
        self.moved = self.moved or enough_ms >= 0
        return now_ms - max(enough_ms, self._begun_ms)


class Storing:
    """Whether the log of this broker takes messages, as its writer's words in shared memory say."""

    def __init__(self) -> None:
        self._refused_ms = self._taken_ms = self._unreadable_ms = -1
        self._published = self._grown_ms = -1

    def look(self, now_ms: int, refusal: int, published: int, *, waits: bool,
             patience_ms: int, unreadable: bool = False) -> str:
        """
        Why it takes none, "": it does. refusal: the writer's, a Refusal; waits: a process has
        messages for it, and waits only for its writer; patience_ms: with a writer that is silent,
        or with queues that are behind; unreadable: sends are refused, since queues are behind.
        """
        if refusal != REFUSAL_NONE:
            self._taken_ms = -1
            if self._refused_ms < 0:
                self._refused_ms = now_ms
        elif self._taken_ms < 0:
            self._taken_ms = now_ms
        elif now_ms - self._taken_ms >= TAKEN_MS:
            self._refused_ms = -1
        if published != self._published or not waits or self._grown_ms < 0:
            self._published, self._grown_ms = published, now_ms
        if refusal == REFUSAL_FLUSH_FAILED:
            return "a sync of its log has failed"
        if self._refused_ms >= 0 and now_ms - self._refused_ms >= REFUSED_MS:
            return ("its disk is full" if refusal == REFUSAL_DISK_FULL
                    else "writes to its log fail")
        if not unreadable:
            self._unreadable_ms = -1
        elif self._unreadable_ms < 0:
            self._unreadable_ms = now_ms
        elif now_ms - self._unreadable_ms > patience_ms:
            return "its queues take nothing, so its log refuses messages"
        still_ms = now_ms - self._grown_ms
        if still_ms > patience_ms:
            return f"its log has taken nothing for {still_ms / 1000:.1f} s"
        return ""
