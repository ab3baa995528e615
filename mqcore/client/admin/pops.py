"""POP: messages that were delivered and are not acknowledged (pop.md 5)."""
from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from mqcore.client.admin.bodies import Fields, document
from mqcore.client.admin.link import Found, Link, Target, limited
from mqcore.client.core.options import check_group, check_topic
from mqcore.wire.codes import RequestCode, ResponseCode

ANSWERED = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


class InFlight(Struct, frozen=True):
    """
    A queue's messages that a group has got by POP and has not acknowledged.

    committed        the lowest such message: where a 4.x member of the group would begin
    next_offset      the first message that was never delivered
    unacknowledged   their number
    invisible        how many are with a consumer; the others wait to be delivered again
    attempts_max     most deliveries of one message
    oldest           when the one was delivered whose latest delivery is the oldest
    visible_first    when the first one is visible again, and when the last one is, if nothing is
    visible_last     acknowledged or prolonged; None: none is invisible
    """

    group: str
    topic: str
    broker_name: str
    queue_id: int
    committed: int
    next_offset: int
    unacknowledged: int
    invisible: int
    attempts_max: int
    fifo: bool
    oldest: datetime | None
    visible_first: datetime | None
    visible_last: datetime | None


class Pops(Link):
    """Questions of AsyncAdmin about POP."""

    @limited
    async def in_flight(
        self, group: str | None = None, topic: str | None = None, *, cluster: str | None = None,
    ) -> Found[InFlight]:
        """
        Queues with messages that a group has got by POP and has not acknowledged, on each master
        that serves POP (32006).

        group     only of this group; None = all
        topic     only of this topic; None = all
        cluster   only the masters of this cluster; None = all
        Sorted by group, topic, broker, queue.
        """
        ext: dict[str, str | None] = {}
        if group is not None:
            check_group(group)
            ext["consumerGroup"] = group
        if topic is not None:
            check_topic(topic)
            ext["topic"] = topic

        async def one(target: Target) -> tuple[list[InFlight], bool]:
            answer = await self._ask(target.address, RequestCode.GET_POP_STATE, ext,
                                     accept=ANSWERED)
            if answer.code != ResponseCode.SUCCESS:
                return [], False                 # it serves none: nothing is in flight there
            body = document(answer, target.address)
            return ([_in_flight(row, target.name) for row in body.objects("queues")],
                    body.flag("more"))

        answers, failures = await self._read(
            "what is in flight", await self._masters(None, cluster), one)
        rows = [row for _, (found, _) in answers for row in found]
        return Found(tuple(sorted(rows, key=lambda row: (
            row.group, row.topic, row.broker_name, row.queue_id))), failures,
            any(more for _, (_, more) in answers))


def _in_flight(row: Fields, broker_name: str) -> InFlight:
    return InFlight(
        row.text("consumerGroup"), row.text("topic"), broker_name, row.number("queueId"),
        row.number("committedOffset"), row.number("nextOffset"), row.number("unacknowledged"),
        row.number("invisible"), row.number("attemptsMax"), row.flag("fifo"),
        row.time("oldestPopTime"), row.time("firstVisibleTime"), row.time("lastVisibleTime"))
