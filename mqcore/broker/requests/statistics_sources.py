"""
Where the statistics come from (broker.md 11.1; RocketMQ 4.9.8: BrokerStatsManager).

While messages pass, counters in shared memory are added to, and nothing else happens. Every ten
seconds this module asks by how much they grew, and says whose items that is:

    TOPIC_PUT_*, QUEUE_PUT_*   what became readable in the queues; the second of SCHEDULE_TOPIC_XXXX
    GROUP_GET_*                what pulls handed out
    QUEUE_GET_NUMS             how far the delay levels were delivered
    SNDBCK_PUT_NUMS            noted when a copy is stored (send_back.py)

A message that a transaction commits counts as put, and what transaction checks read counts for
nobody: both other than in stock.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator

from mqcore.broker.core import Core
from mqcore.broker.request import ROWS_A_TURN
from mqcore.broker.tables.statistics import (
    GROUP_GET_LATENCY,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    NOTHING,
    QUEUE_GET_NUMS,
    QUEUE_PUT_NUMS,
    QUEUE_PUT_SIZE,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    Count,
    Item,
)
from mqcore.wire.codes import SCHEDULE_TOPIC

SCHEDULE_GROUP = "SCHEDULE_CONSUMER"            # who consumes the delay topic, in stock's words


class Counts(defaultdict[Item, Count]):
    """Item -> count; nothing at first."""

    def __init__(self) -> None:
        super().__init__(lambda: NOTHING)

    def add(self, name: str, key: str, total: int, calls: int) -> None:
        self[name, key] = self[name, key].plus(Count(total, calls))


def since_last_time(core: Core) -> Generator[None, None, Counts]:
    """All counts since the last call; the first one may find any. With pauses."""
    counts = Counts()
    for number, queue in enumerate(core.ports.queues.growth(), 1):
        if number % ROWS_A_TURN == 0:
            yield
        counts.add(TOPIC_PUT_NUMS, queue.topic, queue.messages, queue.calls)
        counts.add(TOPIC_PUT_SIZE, queue.topic, queue.bytes, queue.calls)
        if queue.topic == SCHEDULE_TOPIC:
            key = f"{queue.topic}@{queue.queue_id}"
            counts.add(QUEUE_PUT_NUMS, key, queue.messages, queue.calls)
            counts.add(QUEUE_PUT_SIZE, key, queue.bytes, queue.calls)
    yield
    for number, pulled in enumerate(core.ports.pulls.advances(), 1):
        if number % ROWS_A_TURN == 0:
            yield
        key = f"{pulled.topic}@{pulled.group}"
        counts.add(GROUP_GET_NUMS, key, pulled.messages, pulled.pulls)
        counts.add(GROUP_GET_SIZE, key, pulled.bytes, pulled.pulls)
        counts.add(GROUP_GET_LATENCY, f"{pulled.queue_id}@{key}", pulled.took_ms, pulled.pulls)
    _count_deliveries(core, counts)
    return counts


def _count_deliveries(core: Core, counts: Counts) -> None:
    """Messages of the delay topic that were delivered; level n is queue n - 1."""
    before = core.statistics.delay_offsets
    after = core.ports.figures.delay_offsets()
    if after is None:
        return
    core.statistics.delay_offsets = dict(after)
    if before is None:
        return
    for level, offset in after.items():
        delivered = offset - before.get(level, offset)
        if delivered > 0:
            counts.add(QUEUE_GET_NUMS, f"{SCHEDULE_TOPIC}@{level - 1}@{SCHEDULE_GROUP}",
                       delivered, delivered)
            counts.add(GROUP_GET_NUMS, f"{SCHEDULE_TOPIC}@{SCHEDULE_GROUP}", delivered, delivered)
