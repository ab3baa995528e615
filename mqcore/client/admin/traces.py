"""Message traces: who sent a message, who consumed it, how long that took (client.md 7.1)."""
from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from msgspec import Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import when
from mqcore.client.admin.link import Link, Unreachable, limited, now_ms
from mqcore.client.admin.messages import QUERY_COUNT_MAX, Messages
from mqcore.client.core.options import check_topic
from mqcore.client.core.trace import FIELD_END, RECORD_END
from mqcore.client.received import ReceivedMessage
from mqcore.wire.codes import TRACE_TOPIC
from mqcore.wire.numbers import whole_number

CONTEXTS: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")


class TracedSend(Struct, frozen=True):
    """A send, as its producer told; `took` in seconds, `client` the producer's address."""

    group: str
    topic: str
    tags: str
    keys: tuple[str, ...]
    at: datetime | None
    took: float
    broker: str
    body_size: int
    success: bool
    client: str


class TracedConsume(Struct, frozen=True):
    """
    A try to consume, as the consumer told.

    success   None: it began, nothing was told of its end
    outcome   SUCCESS, TIME_OUT, EXCEPTION, RETURNNULL, FAILED, or "" while there is none
    """

    group: str
    at: datetime | None
    retries: int
    took: float
    success: bool | None
    outcome: str
    client: str


class TracedEnd(Struct, frozen=True):
    """The end of a transaction: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""

    group: str
    topic: str
    at: datetime | None
    state: str
    from_check: bool


class MessageTrace(Struct, frozen=True):
    """Traces of one message by its producer and consumers, in the order of time."""

    message_id: str
    sends: tuple[TracedSend, ...]
    consumes: tuple[TracedConsume, ...]
    ends: tuple[TracedEnd, ...]
    unreachable: tuple[Unreachable, ...] = ()


class Traces(Messages, Link):
    """What AsyncAdmin does with traces."""

    @limited
    async def trace(self, message_id: str, *, trace_topic: str = TRACE_TOPIC) -> MessageTrace:
        """The traces of a message (queryMsgTraceById).

        message_id    its client's id
        trace_topic   where its clients write traces
        Nothing known: empty. Raises NoRouteError when there is no trace topic.
        """
        arguments.text(message_id, "message_id")
        found = await self._query(check_topic(trace_topic, "trace_topic"), message_id,
                                  QUERY_COUNT_MAX, 0, now_ms(), unique=False)
        return _trace(message_id, list(found), found.unreachable)


def _trace(
    message_id: str, messages: list[ReceivedMessage], unreachable: tuple[Unreachable, ...]
) -> MessageTrace:
    sends: list[TracedSend] = []
    ends: list[TracedEnd] = []
    begun: dict[str, TracedConsume] = {}
    for message in messages:
        client = message.born_host[0]
        for kind, fields in trace_records(message.body):
            if kind == "Pub" and fields[4] == message_id:
                sends.append(_send(fields, client))
            elif kind == "EndTransaction" and fields[4] == message_id:
                ends.append(TracedEnd(fields[2], fields[3], when(_number(fields[0])), fields[10],
                                      fields[11] == "true"))
            elif kind == "SubBefore" and fields[4] == message_id:
                begun[fields[3]] = TracedConsume(
                    fields[2], when(_number(fields[0])), _number(fields[5]), 0.0, None, "",
                    fields[7] or client)
    for message in messages:
        for kind, fields in trace_records(message.body):
            if kind == "SubAfter" and fields[1] == message_id and fields[0] in begun:
                before = begun[fields[0]]
                code = _number(fields[5])
                begun[fields[0]] = TracedConsume(
                    before.group, before.at, before.retries, _number(fields[2]) / 1000,
                    fields[3] == "true", CONTEXTS[code] if 0 <= code < len(CONTEXTS) else "",
                    before.client)
    return MessageTrace(
        message_id, tuple(sorted(sends, key=lambda send: _order(send.at))),
        tuple(sorted(begun.values(), key=lambda consume: _order(consume.at))),
        tuple(sorted(ends, key=lambda end: _order(end.at))), unreachable)


def trace_records(body: bytes) -> Iterator[tuple[str, list[str]]]:
    """Kind and fields of each record; fields that a sender left out are empty."""
    for record in body.decode("utf-8", "replace").split(RECORD_END):
        kind, _, rest = record.partition(FIELD_END)
        fields = ["" if field == "null" else field for field in rest.split(FIELD_END)]
        yield kind.strip(), fields + [""] * (14 - len(fields))


def _send(fields: list[str], client: str) -> TracedSend:
    """A `Pub` record; old clients have no offset message id before its end."""
    success = fields[12] if fields[12] else fields[11]
    return TracedSend(
        fields[2], fields[3], fields[5], tuple(fields[6].split()), when(_number(fields[0])),
        _number(fields[9]) / 1000, fields[7], _number(fields[8]), success == "true",
        fields[13] or client)


def _number(text: str) -> int:
    return whole_number(text) or 0


def _order(at: datetime | None) -> float:
    return 0.0 if at is None else at.timestamp()
