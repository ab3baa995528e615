"""
What requests touch (RocketMQ 4.9.8: PlainAccessValidator).

Stock knows a few codes and lets every other signed request pass. Here the others are looked at as
well, unless `acl.stock_permissions` says otherwise: what changes the broker needs an administrator,
what sends or reads messages, or moves a group's progress, needs the permission for that.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

from mqcore.acl.rules import PUB, SUB
from mqcore.wire import fastjson
from mqcore.wire.codes import RETRY_PREFIX, TRACE_TOPIC, RequestCode
from mqcore.wire.command import Command

R = RequestCode
STOCK_ADMIN_CODES = frozenset((
    R.UPDATE_AND_CREATE_TOPIC, R.UPDATE_BROKER_CONFIG, R.DELETE_TOPIC_IN_BROKER,
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, R.DELETE_SUBSCRIPTIONGROUP))
ADMIN_CODES = STOCK_ADMIN_CODES | {
    R.TRIGGER_DELETE_FILES, R.UPDATE_AND_CREATE_ACL_CONFIG, R.DELETE_ACL_CONFIG,
    R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, R.SUSPEND_CONSUMER, R.RESUME_CONSUMER,
    R.RESET_CONSUMER_OFFSET_IN_CONSUMER, R.RESET_CONSUMER_OFFSET_IN_BROKER,
    R.ADJUST_CONSUMER_THREAD_POOL, R.RESET_CONSUMER_CLIENT_OFFSET, R.INVOKE_BROKER_TO_RESET_OFFSET,
    R.REGISTER_FILTER_SERVER, R.REGISTER_MESSAGE_FILTER_CLASS, R.CLEAN_EXPIRED_CONSUMEQUEUE,
    R.CONSUME_MESSAGE_DIRECTLY, R.CLONE_GROUP_OFFSET, R.CLEAN_UNUSED_TOPIC,
    R.RESUME_CHECK_HALF_MESSAGE, R.DELETE_EXPIRED_COMMITLOG, R.SET_MESSAGE_REQUEST_MODE,
}
# An administrator, or the account of the broker itself, which is that of all brokers of its set.
SET_CODES = frozenset((R.GET_REPLICATION,))
BODIES_MAX = 384 << 10             # of a JSON body that is no strict JSON

Needs = list[tuple[str, int]]


class Unreadable(ValueError):
    """A body that does not say what it touches; the text says what was expected."""


class Wanted(NamedTuple):
    """What a request needs: an administrator, and permissions by name (a group's with %RETRY%)."""

    admin: bool
    permissions: Needs


def group(name: str) -> str:
    """A group as permissions name it."""
    return RETRY_PREFIX + name


def wanted(command: Command, *, stock: bool) -> Generator[None, None, Wanted]:
    """What a request at a broker needs, with pauses for long bodies. Raises Unreadable."""
    code = command.code
    ext = command.ext or {}
    admin = code in (STOCK_ADMIN_CODES if stock else ADMIN_CODES)
    fields = _STOCK.get(code) if stock else _FIELDS.get(code) or _STOCK.get(code)
    if fields is not None:
        return Wanted(admin, fields(ext))
    body = _BODIES.get(code)
    if body is None or (stock and code != R.HEART_BEAT):
        return Wanted(admin, [])
    return Wanted(admin, body((yield from _object(command))))


def _object(command: Command) -> Generator[None, None, dict[str, Any]]:
    try:
        value = yield from fastjson.loads_in_turns(command.body, relaxed_size_max=BODIES_MAX)
    except fastjson.JsonError as error:
        raise Unreadable(f"illegal state. {error}") from None
    if not isinstance(value, dict):
        raise Unreadable("illegal state. the body is no JSON object")
    return value


# -- header fields ---------------------------------------------------------------------------------

Ext = Mapping[str, str | None]


def _some(*pairs: tuple[str | None, int, bool]) -> Needs:
    """(name, bits, is it a group's); absent names are left out."""
    return [(group(name) if is_group else name, bits)
            for name, bits, is_group in pairs if name is not None]


def _send(ext: Ext) -> Needs:
    topic = ext.get("topic")
    if topic is not None and topic.startswith(RETRY_PREFIX):
        return _some((ext.get("group"), SUB, True))
    return _some((topic, PUB, False))


def _send_v2(ext: Ext) -> Needs:
    topic = ext.get("b")
    if topic is not None and topic.startswith(RETRY_PREFIX):
        return _some((ext.get("a"), SUB, True))
    return _some((topic, PUB, False))


def _any_send(ext: Ext) -> Needs:
    """What is touched: the topic by whichever of its names, and a group whose retry topic it is."""
    needs: Needs = []
    for name in ("topic", "b"):
        topic = ext.get(name)
        if topic is not None and topic.startswith(RETRY_PREFIX):
            needs.append((topic, SUB))
            needs += _some((ext.get("a" if name == "b" else "group"), SUB, True))
        elif topic is not None and topic != TRACE_TOPIC:
            needs.append((topic, PUB))
    return needs


def _topic(ext: Ext) -> Needs:
    return _some((ext.get("topic"), SUB, False))


def _recall(ext: Ext) -> Needs:
    return _some((ext.get("topic"), PUB, False))


def _consumer_group(ext: Ext) -> Needs:
    return _some((ext.get("consumerGroup"), SUB, True))


def _group_and_topic(ext: Ext) -> Needs:
    return _some((ext.get("topic"), SUB, False),
                 (ext.get("consumerGroup"), SUB, True))


def _send_back(ext: Ext) -> Needs:
    return _some((ext.get("group"), SUB, True))


_STOCK: dict[int, Callable[[Ext], Needs]] = {
    R.SEND_MESSAGE: _send, R.SEND_MESSAGE_V2: _send_v2, R.CONSUMER_SEND_MSG_BACK: _send_back,
    R.PULL_MESSAGE: _group_and_topic, R.QUERY_MESSAGE: _topic, R.UNREGISTER_CLIENT: _consumer_group,
    R.GET_CONSUMER_LIST_BY_GROUP: _consumer_group, R.UPDATE_CONSUMER_OFFSET: _group_and_topic,
}
_FIELDS: dict[int, Callable[[Ext], Needs]] = {
    R.SEND_MESSAGE: _any_send, R.SEND_MESSAGE_V2: _any_send, R.SEND_BATCH_MESSAGE: _any_send,
    R.SEND_REPLY_MESSAGE: _any_send, R.SEND_REPLY_MESSAGE_V2: _any_send,
    R.LITE_PULL_MESSAGE: _group_and_topic, R.RECALL_MESSAGE: _recall,
    R.QUERY_CONSUMER_OFFSET: _group_and_topic,
    R.QUERY_CONSUME_QUEUE: _topic,
}


def is_trace(command: Command) -> bool:
    """Whether it sends a trace: stock asks for nothing but a signature then."""
    ext = command.ext or {}
    sends = command.code in (R.SEND_MESSAGE, R.SEND_MESSAGE_V2, R.SEND_BATCH_MESSAGE)
    return sends and ext.get("b" if command.code != R.SEND_MESSAGE else "topic") == TRACE_TOPIC


# -- bodies ----------------------------------------------------------------------------------------


def _rows(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise Unreadable("illegal state. expected lists of objects")
    return value


def _named(value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, str):
        raise Unreadable("illegal state. a name is no text")
    return [value]


def _heartbeat(body: dict[str, Any]) -> Needs:
    needs: Needs = []
    for consumer in _rows(body.get("consumerDataSet")):
        needs += [(group(name), SUB) for name in _named(consumer.get("groupName"))]
        for subscription in _rows(consumer.get("subscriptionDataSet")):
            needs += [(topic, SUB) for topic in _named(subscription.get("topic"))]
    return needs


def _locks(body: dict[str, Any]) -> Needs:
    needs: Needs = [(group(name), SUB) for name in _named(body.get("consumerGroup"))]
    for queue in _rows(body.get("mqSet")):
        needs += [(topic, SUB) for topic in _named(queue.get("topic"))]
    return needs


def _assignment(body: dict[str, Any]) -> Needs:
    return [(str(body.get("topic")), SUB), (group(str(body.get("consumerGroup"))), SUB)]


_BODIES: dict[int, Callable[[dict[str, Any]], Needs]] = {
    R.HEART_BEAT: _heartbeat, R.LOCK_BATCH_MQ: _locks, R.UNLOCK_BATCH_MQ: _locks,
    R.QUERY_ASSIGNMENT: _assignment,
}


def subject(command: Command) -> str:
    """What an audit line says that a request is about."""
    ext = command.ext or {}
    for name in ("topic", "b", "group", "groupName", "consumerGroup", "accessKey",
                 "aclFileFullPath", "brokerName", "producerGroup"):
        value = ext.get(name)
        if value:
            return value
    return ""
