"""
Offsets of consumers and bounds of queues.

broker.md 7.4, 10.2, 10.3 (RocketMQ 4.9.8: ConsumerManageProcessor, AdminBrokerProcessor).
"""
from __future__ import annotations

from collections.abc import Mapping

from mqcore.broker.core import Core
from mqcore.broker.names import check_topic
from mqcore.broker.request import (
    ROWS_A_TURN,
    Answer,
    Fields,
    OutcomeJob,
    Request,
    answers,
    json_answer,
    refused,
)
from mqcore.broker.tables.shares import address_of
from mqcore.wire.codes import GIVEN_BACK, RequestCode, ResponseCode

NO_STORE_TIME = -1


@answers(RequestCode.QUERY_CONSUMER_OFFSET)
def query_consumer_offset(core: Core, request: Request) -> Answer:
    """QUERY_CONSUMER_OFFSET (14)."""
    fields = Fields.of(request.command)
    group, topic, queue_id = _consumer_queue(fields)
    offset = core.offsets.query(group, topic, queue_id, core.ports.store)
    if offset is None:
        return Answer(
            ResponseCode.QUERY_NOT_FOUND,
            f"group {group} has no offset for queue {queue_id} of topic {topic}", {},
        )
    return _offset(offset)


@answers(RequestCode.UPDATE_CONSUMER_OFFSET)
def update_consumer_offset(core: Core, request: Request) -> Answer:
    """
    UPDATE_CONSUMER_OFFSET (15). What a slave gives back never takes a group backwards: its
    consumers may have come farther here since the slave asked. Nor beyond a queue's end: the queue
    that was read there was deleted here, and its numbers began anew.
    """
    fields = Fields.of(request.command)
    group, topic, queue_id = _consumer_queue(fields)
    check_topic(topic)
    offset = fields.i64("commitOffset")
    if fields.boolean(GIVEN_BACK):
        known = core.offsets.committed(group, topic, queue_id)
        if (known is not None and known >= offset) or (
                offset > core.ports.queues.end(topic, queue_id)):
            return Answer(ResponseCode.SUCCESS, ext={})
    if not core.offsets.commit(group, topic, queue_id, offset, address_of(request.remote)):
        return Answer(ResponseCode.SYSTEM_ERROR, core.offsets.full, {})
    if core.settings.is_slave:
        core.own_offsets.note(group, topic, queue_id, offset)
    return Answer(ResponseCode.SUCCESS, ext={})


@answers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
def search_offset(core: Core, request: Request) -> Answer:
    """SEARCH_OFFSET_BY_TIMESTAMP (29)."""
    fields = Fields.of(request.command)
    topic, queue_id = _queue(fields)
    return _offset(core.ports.store.offset_by_time(topic, queue_id, fields.i64("timestamp")))


@answers(RequestCode.GET_MAX_OFFSET)
def max_offset(core: Core, request: Request) -> Answer:
    """GET_MAX_OFFSET (30): the next offset to be written; 0 for an unknown queue."""
    bounds = core.ports.store.queue_range(*_queue(Fields.of(request.command)))
    return _offset(bounds[1] if bounds is not None else 0)


@answers(RequestCode.GET_MIN_OFFSET)
def min_offset(core: Core, request: Request) -> Answer:
    """GET_MIN_OFFSET (31); 0 for an unknown queue."""
    bounds = core.ports.store.queue_range(*_queue(Fields.of(request.command)))
    return _offset(bounds[0] if bounds is not None else 0)


@answers(RequestCode.GET_EARLIEST_MSG_STORETIME)
def earliest_store_time(core: Core, request: Request) -> Answer:
    """GET_EARLIEST_MSG_STORETIME (32); -1 for a queue without messages."""
    topic, queue_id = _queue(Fields.of(request.command))
    bounds = core.ports.store.queue_range(topic, queue_id)
    stored_ms = NO_STORE_TIME
    if bounds is not None and bounds[0] < bounds[1]:
        stored_ms = core.ports.store.store_time(topic, queue_id, bounds[0])
    return Answer(ResponseCode.SUCCESS, ext={"timestamp": str(stored_ms)})


@answers(RequestCode.QUERY_CORRECTION_OFFSET)
def smallest_offsets(core: Core, request: Request) -> OutcomeJob:
    """
    QUERY_CORRECTION_OFFSET (308): per queue the smallest offset of all groups but filterGroups.

    Offsets below a queue's data do not count. 4.9.8 forgets the offsets of filterGroups for good,
    and compares with compareGroup's only in intent (remoting.md 10): neither is done here.
    """
    fields = Fields.of(request.command)
    topic = fields.text("topic")
    left_out = set(fields.text_or("filterGroups", "").split(","))
    smallest: dict[int, int] = {}
    for group in core.offsets.groups_of(topic):
        yield
        if group in left_out:
            continue
        queues = core.offsets.of_queues(group, topic)
        for number, (queue_id, offset) in enumerate(queues.items(), 1):
            if number % ROWS_A_TURN == 0:
                yield
            bounds = core.ports.store.queue_range(topic, queue_id)
            if offset >= (bounds[0] if bounds is not None else 0):
                smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
    return (yield from json_answer({"correctionOffsets": smallest}))


@answers(RequestCode.CLONE_GROUP_OFFSET)
def clone_offsets(core: Core, request: Request) -> OutcomeJob:
    """
    CLONE_GROUP_OFFSET (314): a group gets another's offsets of a topic, or of all its topics.

    Unknown topics are left out, and unless `offline`, those that the source group, when it is
    connected, does not subscribe. 4.9.8 copies nothing when no topic is named.
    """
    fields = Fields.of(request.command)
    source, target = fields.text("srcGroup"), fields.text("destGroup")
    topic = fields.text_or("topic", "").strip()
    connected = core.clients.consumers.get(source)
    for name in [topic] if topic else core.offsets.topics_of(source):
        yield
        if core.topics.get(name) is None:
            continue
        if connected is not None and not fields.boolean("offline") and (
                connected.subscriptions and name not in connected.subscriptions):
            continue
        before = _named(core.offsets.of_queues(target, name))
        if not core.offsets.clone(source, target, name, address_of(request.remote)):
            return refused(ResponseCode.SYSTEM_ERROR, core.offsets.full)
        core.access.changed(request, before, _named(core.offsets.of_queues(target, name)),
                            what=f"{name}@{target}")
    return Answer(ResponseCode.SUCCESS)


def _named(queues: Mapping[int, int]) -> dict[str, object]:
    """Offsets for the audit."""
    return {f"offset of queue {queue_id}": offset for queue_id, offset in queues.items()}


def _consumer_queue(fields: Fields) -> tuple[str, str, int]:
    return fields.text("consumerGroup"), fields.text("topic"), fields.i32("queueId")


def _queue(fields: Fields) -> tuple[str, int]:
    return fields.text("topic"), fields.i32("queueId")


def _offset(offset: int) -> Answer:
    return Answer(ResponseCode.SUCCESS, ext={"offset": str(offset)})
