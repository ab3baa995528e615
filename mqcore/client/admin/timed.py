"""Messages that wait for a time of delivery of their own (timer.md 4)."""
from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from msgspec import Struct

from mqcore.client.admin.bodies import Fields, document, when
from mqcore.client.admin.link import Link, limited
from mqcore.wire.codes import RequestCode

BOUNDS_MAX = 64


class TimedMessages(Struct, frozen=True):
    """
    A broker's messages that wait for a time of delivery of their own. Recalled ones count until
    that time.

    pending        messages
    counted        False: the broker began a moment ago, and there are more
    topics         messages by topic
    others         messages of topics that the broker counts together
    hours          (begin of an hour, messages that are due in it), in their order
    later          messages that are due more than two days after they were stored; in no hour
    next_due       the second in which the next one is due
    late           messages delivered since the broker's start, by how late they were
    late_bounds    seconds: late[i] messages were at most late_bounds[i] late, the last ones later
    late_sum       seconds, of all
    A stock 5 broker tells `topics` only.
    """

    pending: int
    counted: bool
    topics: Mapping[str, int]
    others: int
    hours: tuple[tuple[datetime, int], ...]
    later: int
    next_due: datetime | None
    late_bounds: tuple[float, ...]
    late: tuple[int, ...]
    late_sum: float

    def late_at_most(self, part: float) -> float | None:
        """Seconds that `part` (0 to 1) of the delivered were at most late; None: not known."""
        wanted = part * sum(self.late)
        below = 0
        for bound, count in zip(self.late_bounds, self.late, strict=False):
            below += count
            if below and below >= wanted:
                return bound
        return None


class Timed(Link):
    """What AsyncAdmin asks of messages with a time of delivery."""

    @limited
    async def timed_messages(self, broker: str) -> TimedMessages:
        """How many messages of a broker wait for a time of delivery, by topic and hour (61).

        broker   `host:port` or a name
        """
        target = await self._address(broker)
        answer = await self._ask(target.address, RequestCode.GET_TIMER_METRICS)
        body = document(answer, target.address)
        ours = body.object("timed")
        if not ours.members:
            counts = {str(topic): Fields(value, f"{body.where}.timingCount").number("count")
                      for topic, value in body.object("timingCount").members.items()}
            return TimedMessages(
                sum(counts.values()), True, MappingProxyType(counts), 0, (), 0, None, (), (), 0.0)
        lateness = ours.numbers("lateness")[:BOUNDS_MAX]
        topics = ours.object("topics")
        return TimedMessages(
            ours.number("pending"), ours.flag("counted"),
            MappingProxyType({str(topic): topics.number(topic) for topic in topics.members}),
            ours.number("others"), _hours(ours),
            ours.number("later"), when(1000 * ours.number("nextSecond")),
            tuple((1 << i) / 1000 for i in range(len(lateness) - 1)), lateness,
            ours.number("lateMillis") / 1000)


def _hours(ours: Fields) -> tuple[tuple[datetime, int], ...]:
    hours = [(when(1000 * begin), count) for begin, count in ours.by_number("hours").items()]
    return tuple(sorted((begin, count) for begin, count in hours if begin is not None))
