"""
The entries of a consume queue, as they lie in its files (broker.md 10.2, remoting.md 4.4, 5.4).

RocketMQ 4.9.8: AdminBrokerProcessor, QueryConsumeQueueResponseBody.
"""
from __future__ import annotations

from typing import Any

from mqcore.broker.core import Core
from mqcore.broker.ports import ConsumeQueueEntry
from mqcore.broker.request import (
    REMARK_LEFT_OVER,
    ROWS_A_TURN,
    Answer,
    Fields,
    OutcomeJob,
    Request,
    answers,
    json_answer,
    refused,
)
from mqcore.broker.tables.config_file import pretty
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.tags import EXPRESSION_TAG, Subscription

ROWS_MAX = 10_000                 # of one answer: a megabyte of text
NO_FILTER_DATA = "null"           # what a group without an SQL filter has of it, as text


@answers(RequestCode.QUERY_CONSUME_QUEUE)
def query_consume_queue(core: Core, request: Request) -> OutcomeJob:
    """QUERY_CONSUME_QUEUE (321): rows from `index` on; with a group, whether it wants them."""
    fields = Fields.of(request.command)
    topic, queue_id = fields.text("topic"), fields.i32("queueId")
    index, count = fields.i64("index"), min(fields.i32("count"), ROWS_MAX)
    known = core.topics.get(topic)
    found = core.ports.store.queue_range(topic, queue_id)
    if found is None and not (known and 0 <= queue_id < known.write_queue_count):
        return refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
    low, high = found or (0, 0)
    if not low <= index < high:
        return Answer(ResponseCode.SUCCESS, f"Index {index} of {queue_id}@{topic} is not exist!")
    group = fields.text_or("consumerGroup", "")
    subscription = core.clients.subscription(group, topic) if group else None
    body: dict[str, Any] = {"maxQueueIndex": high, "minQueueIndex": low}
    if subscription is not None:
        sql = core.filters.get(group, topic)
        body |= {"subscriptionData": subscription.as_json(),
                 "filterData": pretty(sql.as_json()) if sql is not None else NO_FILTER_DATA}
    elif group:
        body["filterData"] = f"{group}@{topic} is not online!"
    rows = body["queueData"] = []
    for offset in range(index, min(index + count, high)):
        if offset % ROWS_A_TURN == 0:
            yield
        entry = core.ports.store.entry(topic, queue_id, offset)
        if entry is not None:
            rows.append(_row(entry, subscription))
    return (yield from json_answer(body, REMARK_LEFT_OVER))


def _row(entry: ConsumeQueueEntry, subscription: Subscription | None) -> dict[str, Any]:
    """eval: the queue entry alone does not keep the message from the group."""
    wanted = subscription is not None and (
        subscription.expression_type != EXPRESSION_TAG or subscription.matches_code(entry.tag_code)
    )
    return {
        "eval": wanted, "physicOffset": entry.position, "physicSize": entry.size,
        "tagsCode": entry.tag_code,
    }
