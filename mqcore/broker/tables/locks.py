"""
Queue locks of orderly consumers (broker.md 7.5; RocketMQ 4.9.8: RebalanceLockManager).

In memory only: after a restart every queue is free.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

LOCK_COUNT_MAX = 1_000_000
EXPIRED_AT_ONCE = 10_000           # that are dropped by one call


class Queue(NamedTuple):
    """A message queue as clients name it."""

    topic: str
    broker: str
    queue_id: int


class _Lock(NamedTuple):
    client: str
    renewed_ms: int


class LockTable:
    """(group, queue) -> who holds it and since when. A lock that is not renewed expires."""

    def __init__(self, expiry_ms: int) -> None:
        self.expiry_ms = expiry_ms
        # in the order in which they were renewed
        self._locks: OrderedDict[tuple[str, Queue], _Lock] = OrderedDict()

    def lock(self, group: str, client: str, queues: Iterable[Queue], now_ms: int) -> list[Queue]:
        """Take or renew what can be; returns the queues that the client holds now."""
        granted = []
        for queue in queues:
            held = self._locks.get((group, queue))
            if held is None and len(self._locks) >= LOCK_COUNT_MAX:
                self.expire(now_ms)
                if len(self._locks) >= LOCK_COUNT_MAX:
                    continue
            if held is None or held.client == client or self._expired(held, now_ms):
                self._locks[group, queue] = _Lock(client, now_ms)
                self._locks.move_to_end((group, queue))
                granted.append(queue)
        return granted

    def unlock(self, group: str, client: str, queues: Iterable[Queue]) -> None:
        """Release the client's own locks; those of others stay."""
        for queue in queues:
            held = self._locks.get((group, queue))
            if held is not None and held.client == client:
                del self._locks[group, queue]

    def expire(self, now_ms: int) -> None:
        """Drop locks that nobody renewed, the oldest first, a limited number of them."""
        for _ in range(EXPIRED_AT_ONCE):
            key = next(iter(self._locks), None)
            if key is None or not self._expired(self._locks[key], now_ms):
                return
            del self._locks[key]

    def _expired(self, lock: _Lock, now_ms: int) -> bool:
        return abs(now_ms - lock.renewed_ms) > self.expiry_ms      # the clock may be set back
