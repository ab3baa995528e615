"""How a member of a group behaves, whatever its role."""
from __future__ import annotations

from dataclasses import dataclass, field

from mqcore.client.consume import pulling
from mqcore.client.core.allocate import Allocate, allocate_averagely
from mqcore.client.core.offsets import ConsumeFrom
from mqcore.client.core.rebalance import PULL_IDLE_S, Limits
from mqcore.client.received import ReceivedMessage
from mqcore.wire.codes import RETRY_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Names as brokers know them, times in seconds.

    manual_commit   nothing is committed before the role marks it (AssignedQueue.marked)
    """

    group: str
    broadcast: bool = False
    orderly: bool = False
    has_retry_topic: bool = True
    manual_commit: bool = False
    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    start_ms: int = 0
    allocate: Allocate = allocate_averagely
    limits: Limits = field(default_factory=Limits)
    pull_batch: int = 32
    pull_interval: float = 0.0
    consume_type: str = "CONSUME_PASSIVELY"
    suspend: float = pulling.SUSPEND_S
    send_subscription: bool = False
    pull_flags: int = 0
    idle_max: float | None = PULL_IDLE_S
    kind: type[ReceivedMessage] = ReceivedMessage

    @property
    def locks(self) -> bool:
        """Whether queues are locked at their brokers; broadcasting would not renew locks."""
        return self.orderly and not self.broadcast

    @property
    def retry_topic(self) -> str:
        return RETRY_PREFIX + self.group
