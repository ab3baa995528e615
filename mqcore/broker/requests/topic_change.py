"""
Topics that are made and changed by request (17).

broker.md 9.1, 9.4 (RocketMQ 4.9.8: AdminBrokerProcessor).
"""
from __future__ import annotations

from collections.abc import Generator
from typing import Any

from mqcore.broker import registration
from mqcore.broker.core import Core
from mqcore.broker.registration import BrokerRegistration
from mqcore.broker.request import (
    REMARK_LEFT_OVER,
    Answer,
    FieldError,
    Fields,
    Outcome,
    OutcomeJob,
    Request,
    answers,
    refused,
)
from mqcore.broker.tables.config_table import TablesFull
from mqcore.broker.tables.topics import QUEUES_OF_A_TOPIC_MAX, filter_type, name_trouble
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.topics import KIND_ATTRIBUTE, MESSAGE_TYPES, TopicConfig

PERM_MAX = 0xF
# of RocketMQ 5, with the values that this broker serves
ATTRIBUTES = {
    KIND_ATTRIBUTE: (*MESSAGE_TYPES, "UNSPECIFIED"),
    "queue.type": ("SimpleCQ",),
    "cleanup.policy": ("DELETE",),
}
FULL_REGISTRATION_TOPICS_MAX = 2_000  # above that, only the changed topic is registered


@answers(RequestCode.UPDATE_AND_CREATE_TOPIC)
def update_topic(core: Core, request: Request) -> Outcome | OutcomeJob:
    """UPDATE_AND_CREATE_TOPIC (17): answered once the name servers know the topic."""
    topic = topic_from_request(core, request)
    if isinstance(topic, Answer):
        return topic
    before = core.topics.get(topic.name)
    try:
        core.topics.update(topic, request.now_ms)
    except TablesFull as error:
        return Answer(ResponseCode.SYSTEM_ERROR, str(error))
    return core.once_saved(
        request, core.topics, "the topic", lambda: _tell_of(core, topic, before, request))


def topic_from_request(core: Core, request: Request) -> TopicConfig | Answer:
    """
    The topic that UPDATE_AND_CREATE_TOPIC (17) asks for, or the refusal.

    The order field is ignored: the order flag comes from the name server (broker.md 9.4).
    """
    fields = Fields.of(request.command)
    name = fields.text("topic")
    trouble = name_trouble(name)
    if trouble is not None:
        return refused(ResponseCode.SYSTEM_ERROR, trouble)
    if core.topics.is_system(name):
        return refused(
            ResponseCode.SYSTEM_ERROR, f"The topic[{name}] is conflict with system topic."
        )
    tags = filter_type(fields.text("topicFilterType"))
    if tags is None:
        raise FieldError("header field topicFilterType: expected SINGLE_TAG or MULTI_TAG")
    return TopicConfig(
        name,
        _bounded(fields, "readQueueNums", QUEUES_OF_A_TOPIC_MAX),
        _bounded(fields, "writeQueueNums", QUEUES_OF_A_TOPIC_MAX),
        _bounded(fields, "perm", PERM_MAX),
        tags,
        fields.i32_or("topicSysFlag", 0),
        more=_more(core.topics.get(name), fields.text_or("attributes", "")),
    )


def _more(before: TopicConfig | None, said: str) -> dict[str, Any] | None:
    """
    What only RocketMQ 5 knows of a topic: what it had, with the changes that are said, as in
    "+message.type=FIFO,-cleanup.policy" (grpc.md 2.9). Raises FieldError.
    """
    more = dict(before.more) if before is not None and before.more else {}
    if not said.strip():
        return more or None
    attributes = dict(more.get("attributes") or {})
    for change in said.split(","):
        name, is_set, value = change.strip().partition("=")
        sign, name, value = name[:1], name[1:].strip(), value.strip()
        if sign not in ("+", "-") or (sign == "+") != bool(is_set):
            raise FieldError(
                f"header field attributes has {change!r:.80}: expected +NAME=VALUE or -NAME")
        if name not in ATTRIBUTES:
            raise FieldError(f"header field attributes: unsupported key: {name:.80}")
        if sign == "-":
            attributes.pop(name, None)
        elif value not in ATTRIBUTES[name]:
            raise FieldError(f"header field attributes: {name} is {value!r:.40}: expected one of "
                             f"{', '.join(ATTRIBUTES[name])}")
        else:
            attributes[name] = value
    more["attributes"] = attributes
    return more


def _bounded(fields: Fields, name: str, most: int) -> int:
    value = fields.i32(name)
    if not 0 <= value <= most:
        raise FieldError(f"header field {name} is {value}: expected 0 to {most}")
    return value


def _tell_of(
    core: Core, topic: TopicConfig, before: TopicConfig | None, request: Request
) -> OutcomeJob:
    core.access.changed(request, before.as_json() if before else {}, topic.as_json())
    answer = Answer(ResponseCode.SUCCESS, REMARK_LEFT_OVER)
    words = yield from _registration_of(core, topic)
    if words is None:
        return answer
    core.ports.registrar.register(
        words, one_way=False, done=lambda: core.answer(request, answer))
    return None


def _registration_of(
    core: Core, topic: TopicConfig
) -> Generator[None, None, BrokerRegistration | None]:
    """
    A registration after one topic changed.

    4.9.8 sends only that topic; a name server that has just restarted then takes the new version
    for the whole table (broker.md 1.5 [Q]). A table that is not large goes whole.
    """
    if len(core.topics.all()) <= FULL_REGISTRATION_TOPICS_MAX:
        core.topics.unregistered = False
        return (yield from core.registration())
    return (yield from registration.build(core.settings, core.topics.as_saved()[0], [topic]))
