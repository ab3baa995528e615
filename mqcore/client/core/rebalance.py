"""Changes of a member's held queues when its share is known (client.md 4.6)."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mqcore.client.message import MessageQueue

PULL_IDLE_S = 120.0             # a queue without any pull for so long is taken anew
COUNT_MAX = 1_000
BYTES_MAX = 100 * 1024 * 1024
SPAN_MAX = 2_000


@dataclass(slots=True, frozen=True)
class Changes:
    """Queues to give up first, then those to take; one that stood still is in both."""

    give_up: list[MessageQueue]
    take: list[MessageQueue]

    def __bool__(self) -> bool:
        return bool(self.give_up or self.take)


def changes(
    last_pulls: Mapping[MessageQueue, float], share: Iterable[MessageQueue], now: float, *,
    idle_max: float | None = PULL_IDLE_S,
) -> Changes:
    """From the held queues of a topic (with the time of their last pulls) to a new share.

    `idle_max` is the self-repair: None = a queue may stand still.
    """
    wanted = set(share)
    give_up = sorted(
        queue for queue, at in last_pulls.items()
        if queue not in wanted or (idle_max is not None and now - at > idle_max)
    )
    kept = set(last_pulls) - set(give_up)
    return Changes(give_up, sorted(wanted - kept))


@dataclass(slots=True, frozen=True)
class Limits:
    """Unfinished messages of one queue beyond which it is not pulled; None = no limit for topics.

    The limits of a topic are shared out among the held queues when they change (client.md 4.4).
    """

    count_max: int = COUNT_MAX
    bytes_max: int = BYTES_MAX
    span_max: int = SPAN_MAX
    topic_count_max: int | None = None
    topic_bytes_max: int | None = None

    def shared(self, queue_count: int) -> Limits:
        """The limits of one queue while `queue_count` are held."""
        if queue_count < 1:
            return self
        return replace(
            self,
            count_max=self.count_max if self.topic_count_max is None
            else max(1, self.topic_count_max // queue_count),
            bytes_max=self.bytes_max if self.topic_bytes_max is None
            else max(1, self.topic_bytes_max // queue_count),
        )
