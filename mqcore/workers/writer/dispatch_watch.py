"""
Whether what is stored becomes readable: a broker that cannot show messages takes no more of them.

The dispatcher may lag behind the writer for a while: at a peak of sends, after a kill. It may not
stand still for long, as one does that dies again and again, nor fall behind without an end.
"""
from __future__ import annotations

import logging

from mqcore.participants import DISPATCHER, WRITER
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.retention import QueueLives
from mqcore.shm.segment import Segment

LOOK_MS_MAX = 2000               # what one look adds: who was stopped himself blames nobody
CAUGHT_UP_BYTES = 1 << 20        # behind by no more, the dispatcher counts as caught up

log = logging.getLogger("mqcore.writer")


class DispatchWatch:
    """
    The writer's look at the dispatcher, between turns.

    stall_ms: how long it may stand still while something is behind it; behind_bytes_max: how far
    behind it may be; replicated_only: it waits for slaves (dispatch D5), which is not its fault.
    """

    def __init__(self, segment: Segment, stall_ms: int, behind_bytes_max: int, *,
                 replicated_only: bool = False) -> None:
        self._segment = segment
        self._stall_ms = stall_ms
        self._behind_bytes_max = behind_bytes_max
        self._replicas = ReplicaPen(segment) if replicated_only else None
        self._lives = QueueLives(segment)
        self.refuses = bool(segment.log_state()["unreadable"])
        # before the first clients come, a start waits for the dispatcher
        self._watches = segment.incarnation(WRITER.slot) > 1
        self._stood_ms = 0
        self._dispatched = -1
        self._beat_ms = 0
        self._looked_ms = 0

    def look(self, now_ms: int) -> None:
        """Stop or take writes as the dispatcher's position says; now_ms: steady clock."""
        state = self._segment.log_state()
        end = state["published"]
        if self._replicas is not None:
            end = self._replicas.shown_end(end)
        behind = end - state["dispatched"]
        self._watches = self._watches or behind <= CAUGHT_UP_BYTES
        if behind <= 0 or self._moves(state["dispatched"]):
            self._stood_ms = 0
        else:
            self._stood_ms += min(now_ms - self._looked_ms, LOOK_MS_MAX)
        self._dispatched, self._looked_ms = state["dispatched"], now_ms
        if not self._watches:
            return
        if self.refuses:
            if behind <= CAUGHT_UP_BYTES and self._stood_ms == 0:
                self._say(False)
                log.warning("writes are taken again: the dispatcher has caught up")
        elif self._stood_ms >= self._stall_ms:
            self._say(True)
            log.error("writes are refused: the dispatcher has stood still for %d ms, %d bytes are "
                      "not readable", self._stood_ms, behind)
        elif behind > self._behind_bytes_max:
            self._say(True)
            log.error("writes are refused: the dispatcher is %d bytes behind, more than "
                      "store.dispatch_behind_bytes_max", behind)

    def _say(self, refuses: bool) -> None:
        self.refuses = refuses
        self._segment.set_unreadable(refuses)

    def _moves(self, dispatched: int) -> bool:
        """Whether it continued since the last look, or removes the files of queues meanwhile."""
        beat, before = self._segment.slot(DISPATCHER.slot)["beat_ms"], self._beat_ms
        self._beat_ms = beat
        return dispatched != self._dispatched or (beat != before and bool(self._lives.begun()))
