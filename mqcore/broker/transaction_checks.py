"""
What the transaction-check process leaves to the coordinator: whom to ask, and offsets to keep.

broker.md 5.4, 5.6 (RocketMQ 4.9.8: AbstractTransactionalMessageCheckListener, Broker2Client,
TransactionalMessageBridge). The frames come ready made; any instance of the producer group may be
asked, and each in its turn.
"""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.transaction_requests import HALF_TOPIC

OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
QUEUE_COUNT = 1
TURNS_MAX = 65_536                      # groups whose turn is remembered


class TransactionChecks:
    """Round robin over the producers of each group."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._turns: dict[str, int] = {}

    def ask(self, group: str, frame: bytes) -> bool:
        """Send a check to one producer of `group`; False: none is there: the next round asks."""
        members = self._core.clients.producers.get(group)
        if not members:
            return False
        if len(self._turns) >= TURNS_MAX:
            self._turns.clear()
        turn = self._turns.get(group, 0) % len(members)
        self._turns[group] = turn + 1
        for number, connection in enumerate(members):
            if number == turn:
                self._core.ports.connections.send(connection, frame)
        return True

    def progress(self, half_offset: int, op_offset: int, now_ms: int) -> None:
        """
        Both queues are settled below these offsets: kept in consumerOffset.json, as in stock. The
        half topic is there from the process's first word on; the op topic never is (9.2).
        """
        self.need_topic(HALF_TOPIC, now_ms)
        self._core.offsets.commit(GROUP, HALF_TOPIC, 0, half_offset)
        self._core.offsets.commit(GROUP, OP_TOPIC, 0, op_offset)

    def need_topic(self, name: str, now_ms: int) -> None:
        """A topic of the broker's own, made on demand (broker.md 9.2)."""
        self._core.topics.create_on_demand(name, QUEUE_COUNT, now_ms)
