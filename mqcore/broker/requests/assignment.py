"""
Queues that the broker assigns to the members of a group, and whether they pull or pop.

pop.md 5 (RocketMQ 5.3.3: QueryAssignmentProcessor). Each broker assigns its own queues.
"""
from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from mqcore.broker.core import Core
from mqcore.broker.names import check_group
from mqcore.broker.request import (
    I32_MAX,
    I32_MIN,
    Answer,
    FieldError,
    OutcomeJob,
    Request,
    answers,
    body_object,
    json_answer,
    refused,
)
from mqcore.broker.tables.request_modes import POP, PULL, ModesFull, RequestMode
from mqcore.wire.codes import PERM_READ, RETRY_PREFIX, RequestCode, ResponseCode

BROADCASTING = "BROADCASTING"


def averagely(position: int, members: int, queues: int) -> list[int]:
    """AVG: runs of queues, the first members have one more where it does not divide."""
    each, more = divmod(queues, members)
    begin = position * each + min(position, more)
    return list(range(begin, begin + each + (position < more)))


def by_circle(position: int, members: int, queues: int) -> list[int]:
    """AVG_BY_CIRCLE: in turn."""
    return list(range(position, queues, members))


STRATEGIES: dict[str, Callable[[int, int, int], list[int]]] = {
    "AVG": averagely, "AVG_BY_CIRCLE": by_circle}


@answers(RequestCode.QUERY_ASSIGNMENT)
def query_assignment(core: Core, request: Request) -> OutcomeJob:
    """QUERY_ASSIGNMENT (400): without a member where the group or the strategy is not known."""
    body = yield from body_object(request, "QueryAssignmentRequestBody")
    topic, group = _text(body, "topic"), _text(body, "consumerGroup")
    mode = core.modes.get(topic, group)
    queues = _assigned(core, topic, group, mode, body)
    answer: dict[str, Any] = {}
    if queues is not None:
        answer["messageQueueAssignments"] = [
            {"messageQueue": {"brokerName": core.settings.broker.name, "queueId": queue,
                              "topic": topic}, "mode": mode.mode} for queue in queues]
    return (yield from json_answer(answer))


def _assigned(
    core: Core, topic: str, group: str, mode: RequestMode, body: dict[str, Any],
) -> list[int] | None:
    found = core.topics.get(topic)
    if found is None or not found.perm & PERM_READ:
        return None
    count = found.read_queue_count
    if body.get("messageModel") == BROADCASTING:
        return list(range(count))
    members = core.clients.consumer_ids(group)
    allocate = STRATEGIES.get(str(body.get("strategyName")))
    client = body.get("clientId")
    if not members or allocate is None:
        return None
    if mode.mode == POP and not 0 < mode.share_count < len(members) - 1:
        return [-1] if count else []               # each member pops from all queues
    if client not in members:
        return []
    position = members.index(str(client))
    if mode.mode == POP and len(members) > count:
        return [position % count] if count else []  # no member is without a queue
    shared = mode.share_count + 1 if mode.mode == POP else 1
    return sorted({queue for further in range(shared) for queue in allocate(
        (position + further) % len(members), len(members), count)})


@answers(RequestCode.SET_MESSAGE_REQUEST_MODE)
def set_request_mode(core: Core, request: Request) -> OutcomeJob:
    """SET_MESSAGE_REQUEST_MODE (401): once it is in its file."""
    body = yield from body_object(request, "SetMessageRequestModeRequestBody")
    topic, group = _text(body, "topic"), _text(body, "consumerGroup")
    mode, share = body.get("mode", PULL), body.get("popShareQueueNum", 0)
    if topic.startswith(RETRY_PREFIX):
        return refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
    if mode not in (PULL, POP):
        raise FieldError(f"body: mode is {mode!r:.40}: expected PULL or POP")
    if not isinstance(share, int) or not I32_MIN <= share <= I32_MAX:
        raise FieldError(f"body: popShareQueueNum is {share!r:.40}: expected a number")
    if mode == POP and not core.settings.serves_pop:
        return refused(ResponseCode.SYSTEM_ERROR,
                       "this broker serves no POP: set broker.pop_enable or grpc.enable")
    if core.topics.get(topic) is None:
        return refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic:.127}] not exist")
    check_group(group, core.groups.has(group))
    try:
        core.modes.put(topic, group, RequestMode(mode, share))
    except ModesFull as error:
        return refused(ResponseCode.SYSTEM_ERROR, str(error))
    outcome = core.once_modes_saved(request, lambda: Answer(ResponseCode.SUCCESS))
    return (yield from outcome) if isinstance(outcome, Generator) else outcome


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.strip():
        raise FieldError(f"body: {name} is missing: expected text")
    return value
