"""
Requests of clients about themselves: heartbeats, leaving, members of a group, queue locks.

broker.md 7.2, 7.3, 7.5, 7.6 (RocketMQ 4.9.8: ClientManageProcessor, ConsumerManageProcessor,
RebalanceLockManager, Broker2Client).
"""
from __future__ import annotations

from collections.abc import Generator, Iterable

from mqcore.acl.rules import Account
from mqcore.broker.core import Core
from mqcore.broker.names import check_group, check_topic
from mqcore.broker.request import (
    ROWS_A_TURN,
    Answer,
    FieldError,
    Fields,
    OutcomeJob,
    Request,
    answers,
    body_object,
    json_answer,
    refused,
)
from mqcore.broker.requests.pull_filters import not_enabled
from mqcore.broker.tables.clients import Client
from mqcore.broker.tables.config_table import TablesFull
from mqcore.broker.tables.filters import compiled
from mqcore.broker.tables.locks import Queue
from mqcore.broker.tables.subscriptions import (
    CLIENT_ID_LENGTH_MAX,
    ENTRY_COUNT_MAX,
    HEARTBEAT_NAME_MAX,
    ConsumerEntry,
    Heartbeat,
    check_length,
    parse_heartbeat,
    parse_subscription_data,
)
from mqcore.wire import fastjson
from mqcore.wire.codes import RETRY_PREFIX, RequestCode, ResponseCode
from mqcore.wire.command import encode
from mqcore.wire.command import request as make_request
from mqcore.wire.numbers import I32_MAX, I32_MIN, whole_number
from mqcore.wire.tags import EXPRESSION_TAG
from mqcore.wire.topics import SYS_FLAG_UNIT_SUB

QUEUES_A_TURN = 500             # that are locked between two pauses
DIGEST_BYTES_A_TURN = 1 << 20


@answers(RequestCode.HEART_BEAT)
def heartbeat(core: Core, request: Request) -> OutcomeJob:
    """
    HEART_BEAT (34). The same bytes once more, with nothing changed since, are not read again.

    In turns: each group is registered as a whole, others may be served between two groups.
    """
    command = request.command
    said = (command.version, command.language, account_of(request),
            (yield from _digest(command.body)))
    if core.clients.repeated(request.connection, said, _changes(core), request.now_ms):
        return Answer(ResponseCode.SUCCESS)
    beat = yield from parse_heartbeat((yield from body_object(request, "HeartbeatData")))
    try:
        outcome = yield from _register(core, request, beat, said)
    except FieldError:
        yield from _let_go(beat)
        raise
    yield from _let_go(beat)
    return outcome


def account_of(request: Request) -> str:
    """The access key of the sender; "" where it has none."""
    return request.account.access_key if isinstance(request.account, Account) else ""


def _digest(body: bytes) -> Generator[None, None, tuple[int, ...]]:
    """A digest that tells bodies apart, with pauses."""
    view = memoryview(body)
    digest = [len(body)]
    for begin in range(0, len(body), DIGEST_BYTES_A_TURN):
        if begin:
            yield
        digest.append(hash(view[begin:begin + DIGEST_BYTES_A_TURN]))
    return tuple(digest)


def _let_go(beat: Heartbeat) -> Generator[None, None, None]:
    """Free tens of thousands of objects: their contents are in the tables, or refused."""
    for entry in beat.consumers:
        yield
        yield from fastjson.dismantled(entry.subscriptions)


def _register(core: Core, request: Request, beat: Heartbeat, said: object) -> OutcomeJob:
    for entry in beat.consumers:                     # all or nothing of a heartbeat
        yield
        check_group(entry.group, core.groups.has(entry.group))
        for number, topic in enumerate(entry.subscriptions, 1):
            check_topic(topic)
            if number % ROWS_A_TURN == 0:
                yield
    client = Client(
        request.connection, beat.client_id, request.command.language, request.command.version,
        request.remote, request.now_ms, account_of(request),
    )
    before = _changes(core)
    try:
        for entry in beat.consumers:
            yield from _register_consumer(core, entry, client, request.now_ms)
        for number, group in enumerate(beat.producers, 1):
            core.clients.register_producer(group, client)
            if number % ROWS_A_TURN == 0:
                yield
    except TablesFull as error:
        return refused(ResponseCode.SYSTEM_ERROR, str(error))
    if _changes(core) == before:           # else others may have changed what it registered
        core.clients.remember(client, said, before)
    return Answer(ResponseCode.SUCCESS)


def _changes(core: Core) -> tuple[int, ...]:
    """The same numbers as before: what a heartbeat would do is done."""
    return (core.clients.changes, core.groups.version.counter, core.topics.version.counter,
            core.config_version.counter)


def _register_consumer(
    core: Core, entry: ConsumerEntry, client: Client, now_ms: int
) -> Generator[None, None, None]:
    config = core.groups.find_or_create(entry.group, now_ms)
    if config is not None:
        core.topics.create_on_demand(
            RETRY_PREFIX + entry.group, config.retry_topic_queue_count, now_ms,
            SYS_FLAG_UNIT_SUB if entry.unit_mode else 0,
        )
    changed = yield from core.clients.register_consumer(entry, client)
    yield from core.filters.register(entry.group, entry.subscriptions.values(), now_ms)
    if changed:
        yield from notify(core, [entry.group])


def notify(
    core: Core, groups: Iterable[str], *, member_lost: bool = False,
) -> Generator[None, None, None]:
    """
    NOTIFY_CONSUMER_IDS_CHANGED (40), one-way, to every member of each group.

    The broker's switch and the group's own decide (broker.md 7.2); of a connection's end the
    broker's alone.
    """
    if not core.settings.broker.notify_consumers_enable:
        return
    for group in groups:
        yield
        config = core.groups.get(group)
        if config is not None and not config.notify_consumers_enable and not member_lost:
            continue
        members = core.clients.members(group)
        if not members:
            continue
        frame = encode(make_request(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, oneway=True
        ))
        for number, connection in enumerate(members, 1):
            core.ports.connections.send(connection, frame)
            if number % ROWS_A_TURN == 0:
                yield


@answers(RequestCode.UNREGISTER_CLIENT)
def unregister(core: Core, request: Request) -> OutcomeJob:
    """UNREGISTER_CLIENT (35): this connection leaves the groups that the header names."""
    fields = Fields.of(request.command)
    fields.text("clientID")
    group = fields.ext.get("consumerGroup")
    if group:                          # as in stock, a goodbye makes its group
        core.groups.find_or_create(group, request.now_ms)
    changed = yield from core.clients.unregister(
        request.connection, fields.ext.get("producerGroup"), group
    )
    yield from notify(core, changed)
    return Answer(ResponseCode.SUCCESS, ext={})


@answers(RequestCode.CHECK_CLIENT_CONFIG)
def check_client(core: Core, request: Request) -> OutcomeJob:
    """CHECK_CLIENT_CONFIG (46): tag expressions are fine, others if enabled and if they compile."""
    body = yield from body_object(request, "CheckClientRequestBody")
    data = body.get("subscriptionData")
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


@answers(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
def consumer_list(core: Core, request: Request) -> Answer | OutcomeJob:
    """GET_CONSUMER_LIST_BY_GROUP (38)."""
    group = Fields.of(request.command).text("consumerGroup")
    ids = core.clients.consumer_ids(group)
    if not ids:
        return Answer(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {})
    return json_answer({"consumerIdList": ids}, ext={})


@answers(RequestCode.LOCK_BATCH_MQ)
def lock_queues(core: Core, request: Request) -> OutcomeJob:
    """LOCK_BATCH_MQ (41)."""
    group, client, queues = yield from _lock_body(request)
    check_group(group, core.groups.has(group))
    granted: list[Queue] = []
    for start in range(0, len(queues), QUEUES_A_TURN):
        some = queues[start:start + QUEUES_A_TURN]
        for topic in {queue.topic for queue in some}:
            check_topic(topic)
        granted += core.locks.lock(request.connection, group, client, some, request.now_ms)
        yield
    return (yield from json_answer({"lockOKMQSet": granted}))


@answers(RequestCode.UNLOCK_BATCH_MQ)
def unlock_queues(core: Core, request: Request) -> OutcomeJob:
    """UNLOCK_BATCH_MQ (42)."""
    group, client, queues = yield from _lock_body(request)
    for start in range(0, len(queues), QUEUES_A_TURN):
        core.locks.unlock(group, client, queues[start:start + QUEUES_A_TURN])
        yield
    return Answer(ResponseCode.SUCCESS)


def _lock_body(request: Request) -> Generator[None, None, tuple[str, str, list[Queue]]]:
    body = yield from body_object(request, "LockBatchRequestBody")
    group, client, items = body.get("consumerGroup"), body.get("clientId"), body.get("mqSet")
    if not isinstance(group, str) or not isinstance(client, str):
        raise FieldError("body: consumerGroup or clientId is missing: expected text")
    check_length("clientId", client, CLIENT_ID_LENGTH_MAX)
    if items is None:
        items = []
    if not isinstance(items, list) or len(items) > ENTRY_COUNT_MAX:
        raise FieldError(f"body: mqSet: expected an array of at most {ENTRY_COUNT_MAX} queues")
    queues: list[Queue] = []
    for start in range(0, len(items), QUEUES_A_TURN):
        queues += map(_queue, items[start:start + QUEUES_A_TURN])
        yield
    return group, client, queues


def _queue(item: object) -> Queue:
    if not isinstance(item, dict):
        raise FieldError("body: mqSet: expected objects")
    topic, broker, queue_id = item.get("topic"), item.get("brokerName"), item.get("queueId")
    if isinstance(queue_id, str):
        queue_id = whole_number(queue_id, I32_MIN, I32_MAX)
    if not isinstance(topic, str) or not isinstance(broker, str) or not isinstance(queue_id, int):
        raise FieldError("body: mqSet: expected topic, brokerName and queueId in each queue")
    if not I32_MIN <= queue_id <= I32_MAX:
        raise FieldError(f"body: mqSet: queueId: expected a number from {I32_MIN} to {I32_MAX}")
    check_length("mqSet: brokerName", broker, HEARTBEAT_NAME_MAX)
    return Queue(topic, broker, queue_id)
