"""
Queue locks of orderly consumers (broker.md 7.5; RocketMQ 4.9.8: RebalanceLockManager).

In memory only: after a restart every queue is free.
"""
from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from mqcore.broker.tables.shares import Room

LOCKS_BYTES_MAX = 256 << 20
LOCK_BYTES = 450                   # of memory, beside its texts
EXPIRED_AT_ONCE = 10_000           # that are dropped by one call


class Queue(NamedTuple):
    """A message queue as clients name it."""

    topic: str
    broker: str
    queue_id: int

    def as_json(self) -> dict[str, str | int]:
        return {"brokerName": self.broker, "queueId": self.queue_id, "topic": self.topic}


class _Lock(NamedTuple):
    client: str
    renewed_ms: int
    payer: int                     # the connection whose share of the room it has ...
    cost: int                      # ... of that many bytes


class LockTable:
    """
    (group, queue) -> who holds it and since when. A lock that is not renewed expires. Where a
    connection's share of the room ends its client gets no more locks, as if others held them.
    """

    def __init__(self, expiry_ms: int) -> None:
        self.expiry_ms = expiry_ms
        # in the order in which they were renewed
        self._locks: OrderedDict[tuple[str, Queue], _Lock] = OrderedDict()
        self._room = Room(LOCKS_BYTES_MAX)

    def lock(
        self, connection: int, group: str, client: str, queues: Iterable[Queue], now_ms: int
    ) -> list[Queue]:
        """Take or renew what can be; returns the queues that the client holds now."""
        granted = []
        for queue in queues:
            key = group, queue
            held = self._locks.get(key)
            if held is not None and held.client != client:
                if not self._expired(held, now_ms):
                    continue
                self._drop(key)
                held = None
            if held is not None:
                self._locks[key] = held._replace(renewed_ms=now_ms)
                self._locks.move_to_end(key)
            elif not self._take(connection, key, client, now_ms):
                continue
            granted.append(queue)
        return granted

    def unlock(self, group: str, client: str, queues: Iterable[Queue]) -> None:
        """Release the client's own locks; those of others stay."""
        for queue in queues:
            held = self._locks.get((group, queue))
            if held is not None and held.client == client:
                self._drop((group, queue))

    def expire(self, now_ms: int) -> None:
        """Drop locks that nobody renewed, the oldest first, a limited number of them."""
        for _ in range(EXPIRED_AT_ONCE):
            key = next(iter(self._locks), None)
            if key is None or not self._expired(self._locks[key], now_ms):
                return
            self._drop(key)

    def _take(self, connection: int, key: tuple[str, Queue], client: str, now_ms: int) -> bool:
        group, queue = key
        cost = LOCK_BYTES + sum(map(sys.getsizeof, (group, client, queue.topic, queue.broker)))
        if not self._room.may_take(connection, cost):
            self.expire(now_ms)
            if not self._room.may_take(connection, cost):
                return False
        self._room.take(connection, cost)
        self._locks[key] = _Lock(client, now_ms, connection, cost)
        return True

    def _drop(self, key: tuple[str, Queue]) -> None:
        lock = self._locks.pop(key)
        self._room.take(lock.payer, -lock.cost)

    def _expired(self, lock: _Lock, now_ms: int) -> bool:
        return abs(now_ms - lock.renewed_ms) > self.expiry_ms      # the clock may be set back
