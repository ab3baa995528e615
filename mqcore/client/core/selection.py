"""Which queue a message goes to: in turn, or by the hash of a key (client.md 2.4, 2.5, 2.11)."""
from __future__ import annotations

import random
from collections.abc import Sequence

from mqcore.client.core.faults import FaultTable
from mqcore.client.errors import ConfigError
from mqcore.client.message import MessageQueue

_TURN_MASK = 0x7FFF_FFFF


def java_hash(key: object) -> int:
    """Java's hash code of a str, int or bool, 32 bits with sign; raises ConfigError for others."""
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        if not -(1 << 63) <= key < 1 << 63:
            raise ConfigError(f"shard of {key.bit_length()} bits: expected a 64-bit number")
        bits = key & 0xFFFF_FFFF_FFFF_FFFF
        return _signed(key if -(1 << 31) <= key < 1 << 31 else bits ^ bits >> 32)
    if isinstance(key, str):
        units = key.encode("utf-16-be", "surrogatepass")
        value = 0
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
        return _signed(value)
    raise ConfigError(f"shard {key!r}: expected a str, int or bool, not {type(key).__name__}")


def _signed(value: int) -> int:
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def queue_by_shard(queues: Sequence[MessageQueue], key: object) -> MessageQueue:
    """The queue that Java's SelectMessageQueueByHash gives a message with this key."""
    return queues[abs(java_hash(key)) % len(queues)]


class QueueTurns:
    """The queues of one topic in turn, from a random start."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = random.randrange(_TURN_MASK)

    def next(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """The next one; after a failure at `last_broker` one of another broker if there is one."""
        if last_broker is not None:
            for _ in queues:
                queue = self._plain(queues)
                if queue.broker_name != last_broker:
                    return queue
        return self._plain(queues)

    def next_available(
        self, queues: Sequence[MessageQueue], faults: FaultTable, now: float
    ) -> MessageQueue:
        """The next one whose broker nothing speaks against, else one of the least bad broker."""
        for _ in queues:
            queue = self._plain(queues)
            if faults.is_available(queue.broker_name, now):
                return queue
        broker = faults.least_bad(now)
        own = [queue for queue in queues if queue.broker_name == broker]
        if own:
            return self._plain(own)
        if broker is not None:
            faults.forget(broker)
        return self._plain(queues)

    def _plain(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        self._turn = (self._turn + 1) & _TURN_MASK
        return queues[self._turn % len(queues)]
