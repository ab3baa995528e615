"""
What clients say about themselves: heartbeats, leaving, members of a group, queue locks.

broker.md 7.2, 7.3, 7.5, 7.6 (RocketMQ 4.9.8: ClientManageProcessor, ConsumerManageProcessor,
RebalanceLockManager, Broker2Client).
"""
from __future__ import annotations

from collections.abc import Iterable

from mqcore.broker.clients import Client
from mqcore.broker.config_table import TablesFull
from mqcore.broker.core import Core
from mqcore.broker.filters import compiled
from mqcore.broker.locks import Queue
from mqcore.broker.pull_filters import not_enabled
from mqcore.broker.requests import Answer, FieldError, Fields, Request, body_object, refused
from mqcore.broker.subscriptions import (
    ENTRY_COUNT_MAX,
    ConsumerEntry,
    parse_heartbeat,
    parse_subscription_data,
)
from mqcore.broker.topics import SYS_FLAG_UNIT_SUB
from mqcore.wire import fastjson
from mqcore.wire.codes import RETRY_PREFIX, RequestCode, ResponseCode
from mqcore.wire.command import encode
from mqcore.wire.command import request as make_request
from mqcore.wire.tags import EXPRESSION_TAG


def heartbeat(core: Core, request: Request) -> Answer:
    """HEART_BEAT (34)."""
    beat = parse_heartbeat(body_object(request.command, "HeartbeatData"))
    client = Client(
        request.connection, beat.client_id, request.command.language, request.command.version,
        request.remote, request.now_ms,
    )
    try:
        for entry in beat.consumers:
            _register_consumer(core, entry, client, request.now_ms)
        for group in beat.producers:
            core.clients.register_producer(group, client)
    except TablesFull as error:
        return refused(ResponseCode.SYSTEM_ERROR, str(error))
    return Answer(ResponseCode.SUCCESS)


def _register_consumer(
    core: Core, entry: ConsumerEntry, client: Client, now_ms: int
) -> None:
    config = core.groups.find_or_create(entry.group, now_ms)
    if config is not None:
        core.topics.create_on_demand(
            RETRY_PREFIX + entry.group, config.retry_topic_queue_count, now_ms,
            SYS_FLAG_UNIT_SUB if entry.unit_mode else 0,
        )
    changed = core.clients.register_consumer(entry, client)
    core.filters.register(entry.group, entry.subscriptions.values(), now_ms)
    if changed:
        notify(core, [entry.group])


def notify(core: Core, groups: Iterable[str]) -> None:
    """
    NOTIFY_CONSUMER_IDS_CHANGED (40), one-way, to every member of each group.

    The broker's switch and the group's own decide (7.2).
    """
    if not core.settings.broker.notify_consumers_enable:
        return
    for group in groups:
        config = core.groups.get(group)
        if config is not None and not config.notify_consumers_enable:
            continue
        members = core.clients.members(group)
        if not members:
            continue
        frame = encode(make_request(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, oneway=True
        ))
        for connection in members:
            core.ports.connections.send(connection, frame)


def unregister(core: Core, request: Request) -> Answer:
    """UNREGISTER_CLIENT (35): this connection leaves the groups that the header names."""
    fields = Fields.of(request.command)
    fields.text("clientID")
    changed = core.clients.unregister(
        request.connection, fields.ext.get("producerGroup"), fields.ext.get("consumerGroup")
    )
    notify(core, changed)
    return Answer(ResponseCode.SUCCESS, ext={})


def check_client(core: Core, request: Request) -> Answer:
    """CHECK_CLIENT_CONFIG (46): tag expressions are fine, others if enabled and if they compile."""
    data = body_object(request.command, "CheckClientRequestBody").get("subscriptionData")
    if not isinstance(data, dict):
        raise FieldError("body: subscriptionData is missing: expected an object")
    subscription = parse_subscription_data(data)
    if subscription.expression_type == EXPRESSION_TAG:
        return Answer(ResponseCode.SUCCESS)
    if not core.settings.broker.property_filter_enable:
        return refused(*not_enabled(subscription.expression_type))
    try:
        compiled(subscription.expression, subscription.expression_type)
    except ValueError as error:
        return refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
    return Answer(ResponseCode.SUCCESS)


def consumer_list(core: Core, request: Request) -> Answer:
    """GET_CONSUMER_LIST_BY_GROUP (38)."""
    group = Fields.of(request.command).text("consumerGroup")
    ids = core.clients.consumer_ids(group)
    if not ids:
        return Answer(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {})
    return Answer(ResponseCode.SUCCESS, ext={}, body=fastjson.dumps({"consumerIdList": ids}))


def lock_queues(core: Core, request: Request) -> Answer:
    """LOCK_BATCH_MQ (41)."""
    group, client, queues = _lock_body(request)
    granted = core.locks.lock(group, client, queues, request.now_ms)
    body = fastjson.dumps({"lockOKMQSet": [
        {"brokerName": queue.broker, "queueId": queue.queue_id, "topic": queue.topic}
        for queue in granted
    ]})
    return Answer(ResponseCode.SUCCESS, body=body)


def unlock_queues(core: Core, request: Request) -> Answer:
    """UNLOCK_BATCH_MQ (42)."""
    core.locks.unlock(*_lock_body(request))
    return Answer(ResponseCode.SUCCESS)


def _lock_body(request: Request) -> tuple[str, str, list[Queue]]:
    body = body_object(request.command, "LockBatchRequestBody")
    group, client, items = body.get("consumerGroup"), body.get("clientId"), body.get("mqSet")
    if not isinstance(group, str) or not isinstance(client, str):
        raise FieldError("body: consumerGroup or clientId is missing: expected text")
    if items is None:
        items = []
    if not isinstance(items, list) or len(items) > ENTRY_COUNT_MAX:
        raise FieldError(f"body: mqSet: expected an array of at most {ENTRY_COUNT_MAX} queues")
    return group, client, [_queue(item) for item in items]


def _queue(item: object) -> Queue:
    if not isinstance(item, dict):
        raise FieldError("body: mqSet: expected objects")
    topic, broker, queue_id = item.get("topic"), item.get("brokerName"), item.get("queueId")
    if isinstance(queue_id, str) and queue_id.isdigit() and len(queue_id) <= 10:
        queue_id = int(queue_id)
    if not isinstance(topic, str) or not isinstance(broker, str) or not isinstance(queue_id, int):
        raise FieldError("body: mqSet: expected topic, brokerName and queueId in each queue")
    return Queue(topic, broker, queue_id)
