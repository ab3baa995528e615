"""
Offsets of connected consumers: moved to a time, and asked for.

broker.md 10.3, remoting.md 4.4, 4.8 (RocketMQ 4.9.8: AdminBrokerProcessor, Broker2Client). The
broker's own table stays as it is: the consumers drop their queues, take the new offsets and commit.
Tools move the offsets of groups that are not connected by themselves, with code 15.
"""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.request import (
    REMARK_LEFT_OVER,
    ROWS_A_TURN,
    Answer,
    Fields,
    OutcomeJob,
    Request,
    answers,
    refused,
)
from mqcore.broker.tables.client_calls import CallEnd
from mqcore.broker.tables.clients import Client
from mqcore.wire import fastjson
from mqcore.wire.codes import LanguageCode, RequestCode, ResponseCode, version_ordinal, version_text
from mqcore.wire.command import Command, encode
from mqcore.wire.command import request as make_request

STATUS_TIMEOUT_MS = 5_000
OLDEST_CLIENT = version_ordinal("V3_0_7_SNAPSHOT")      # earlier ones know neither 220 nor 221
TO_THE_END = -1                                         # as a timestamp


@answers(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
def reset_offsets(core: Core, request: Request) -> OutcomeJob:
    """
    INVOKE_BROKER_TO_RESET_OFFSET (222): tell every consumer of a group where to continue (220).

    Only a group that has an offset of each queue can be moved, and back alone unless it is forced.
    """
    fields = Fields.of(request.command)
    topic, group = fields.text("topic"), fields.text("group")
    timestamp_ms, force = fields.i64("timestamp"), fields.boolean("isForce")
    config = core.topics.get(topic)
    if config is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"topic {topic} does not exist")
    targets: dict[int, int] = {}
    before: dict[str, object] = {}
    for queue_id in range(config.write_queue_count):
        if queue_id % ROWS_A_TURN == 0:
            yield
        committed = core.offsets.committed(group, topic, queue_id)
        if committed is None or committed < 0:
            return refused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
        target = _target(core, topic, queue_id, timestamp_ms)
        targets[queue_id] = target if force or target < committed else committed
        before[f"offset of queue {queue_id}"] = committed
    members = _members(core, group)
    if not members:
        return refused(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic}"
            f" Timestamp: {timestamp_ms}")
    too_old = _too_old(members)
    if too_old is not None:
        return too_old
    core.access.changed(request, before, {
        f"offset of queue {queue_id}": offset for queue_id, offset in targets.items()},
        what=f"{topic}@{group}")
    broker = core.settings.broker.name
    table = {
        fastjson.ObjectKey.of(brokerName=broker, queueId=queue_id, topic=topic): offset
        for queue_id, offset in targets.items()
    }
    body = yield from fastjson.dumps_in_turns({"offsetTable": table})
    pushed = body
    if request.command.language == LanguageCode.CPP:       # the tool's word for a group of C++
        pushed = yield from fastjson.dumps_in_turns({"offsetTable": [
            {**key.as_dict(), "offset": offset} for key, offset in table.items()]})
    frame = encode(make_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {
        "topic": topic, "isForce": "false", "group": group, "timestamp": str(timestamp_ms),
    }, pushed, oneway=True))
    for client in _members(core, group):
        yield
        core.ports.connections.send(client.connection, frame)
    return Answer(ResponseCode.SUCCESS, REMARK_LEFT_OVER, body=body)


def _target(core: Core, topic: str, queue_id: int, timestamp_ms: int) -> int:
    """Where a queue's consumer has to continue: never beyond the next message to be stored."""
    bounds = core.ports.store.queue_range(topic, queue_id)
    end = bounds[1] if bounds is not None else 0
    if timestamp_ms == TO_THE_END:
        return end
    return min(max(core.ports.store.offset_by_time(topic, queue_id, timestamp_ms), 0), end)


@answers(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
def consumer_status(core: Core, request: Request) -> Answer | None:
    """
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): the offsets that consumers have in memory (221).

    Of one client id, or of all members; those that do not answer are left out. All are asked at
    once, where 4.9.8 asks one after the other.
    """
    fields = Fields.of(request.command)
    topic, group = fields.text("topic"), fields.text("group")
    wanted = fields.text_or("clientAddr", "").strip()
    members = _members(core, group)
    if not members:
        return refused(ResponseCode.SYSTEM_ERROR,
                       f"consumer group {group} has no member that is connected")
    asked = [client for client in members if wanted in ("", client.client_id)]
    too_old = _too_old(asked)
    if too_old is not None:
        return too_old
    tables: dict[str, object] = {}
    missing = {client.connection for client in asked}

    def finish() -> None:
        core.answer(request, Answer(ResponseCode.SUCCESS, REMARK_LEFT_OVER, body=fastjson.dumps(
            {"consumerTable": tables, "messageQueueTable": {}})))

    def ask(client: Client) -> None:
        def done(end: Command | CallEnd) -> None:
            table = _queue_table(end)
            if table is not None:
                tables[client.client_id] = table
            missing.discard(client.connection)
            if not missing:
                finish()

        core.calls.call(client.connection, make_request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": group},
        ), STATUS_TIMEOUT_MS, done, request.now_ms)

    if not asked:
        finish()
    for client in asked:
        ask(client)
    return None


def _queue_table(end: Command | CallEnd) -> dict[object, object] | None:
    """messageQueueTable of a client's answer; None when there is none."""
    if isinstance(end, CallEnd) or end.code != ResponseCode.SUCCESS:
        return None
    try:
        body = fastjson.loads(end.body)
    except fastjson.JsonError:
        return None
    table = body.get("messageQueueTable") if isinstance(body, dict) else None
    return table if isinstance(table, dict) else None


def _members(core: Core, group: str) -> list[Client]:
    found = core.clients.consumers.get(group)
    return list(found.members.values()) if found is not None else []


def _too_old(members: list[Client]) -> Answer | None:
    """The refusal when one of them cannot be asked; nobody has been told anything by then."""
    for client in members:
        if client.version < OLDEST_CLIENT:
            return refused(
                ResponseCode.SYSTEM_ERROR,
                f"consumer {client.client_id} has version {version_text(client.version)}:"
                " expected V3_0_7_SNAPSHOT or later")
    return None
