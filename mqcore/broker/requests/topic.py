"""
What there is about one topic: the bounds of its queues, who consumes it; the system topics.

broker.md 9.3, 10.2, remoting.md 4.4, 5.4 (RocketMQ 4.9.8: AdminBrokerProcessor, TopicValidator).
"""
from __future__ import annotations

from mqcore.broker.core import Core
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
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.fastjson import ObjectKey


@answers(RequestCode.GET_TOPIC_STATS_INFO)
def topic_stats(core: Core, request: Request) -> OutcomeJob:
    """GET_TOPIC_STATS_INFO (202): bounds and newest store time of each write queue."""
    name = Fields.of(request.command).text("topic")
    topic = core.topics.get(name)
    if topic is None:
        return unknown_topic(name)
    table = {}
    for queue_id in range(topic.write_queue_count):
        if queue_id % ROWS_A_TURN == 0:
            yield
        low, high = bounds(core, name, queue_id)
        newest_ms = core.ports.store.store_time(name, queue_id, high - 1) if high > 0 else 0
        table[message_queue(core, name, queue_id)] = {
            "lastUpdateTimestamp": max(newest_ms, 0), "maxOffset": high, "minOffset": low,
        }
    return (yield from json_answer({"offsetTable": table}, built=True))


@answers(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
def topic_consumers(core: Core, request: Request) -> OutcomeJob:
    """QUERY_TOPIC_CONSUME_BY_WHO (300): groups that are online on it or have offsets of it."""
    topic = Fields.of(request.command).text("topic")
    groups = core.offsets.groups_of(topic)
    yield
    for number, (name, group) in enumerate(list(core.clients.consumers.items()), 1):
        if topic in group.subscriptions and not core.offsets.has(name, topic):
            groups.append(name)
        if number % ROWS_A_TURN == 0:
            yield
    return (yield from json_answer({"groupList": groups}))


@answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
def system_topics(core: Core, request: Request) -> Answer:
    """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
    names = sorted(core.topics.system_names())
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps({"topicList": names}))


# -- of 5.x, for its tools (RocketMQ 5: AdminBrokerProcessor) --------------------------------------


@answers(RequestCode.GET_TOPIC_CONFIG)
def topic_config(core: Core, request: Request) -> Answer:
    """GET_TOPIC_CONFIG (351): a topic's own settings; there is no queue mapping here."""
    name = Fields.of(request.command).text("topic")
    topic = core.topics.get(name)
    if topic is None:
        return refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps({"attributes": {}} | topic.as_json()))


@answers(RequestCode.QUERY_TOPICS_BY_CONSUMER)
def group_topics(core: Core, request: Request) -> OutcomeJob:
    """QUERY_TOPICS_BY_CONSUMER (343): the topics that a group has offsets of."""
    group = Fields.of(request.command).text("group")
    return json_answer({"topicList": core.offsets.topics_of(group)})


@answers(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
def group_subscription(core: Core, request: Request) -> Answer:
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345): what an online group wants of a topic, if it does."""
    fields = Fields.of(request.command)
    group, topic = fields.text("group"), fields.text("topic")
    subscription = core.clients.subscription(group, topic)
    answer: dict[str, object] = {"group": group, "topic": topic}
    if subscription is not None:
        answer["subscriptionData"] = subscription.as_json()
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps(answer))


# -- for the other requests about queues -----------------------------------------------------------


def unknown_topic(name: str) -> Answer:
    return refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")


def bounds(core: Core, topic: str, queue_id: int) -> tuple[int, int]:
    """(first offset, next offset) of a queue; zeros for one that never had a message."""
    return core.ports.store.queue_range(topic, queue_id) or (0, 0)


def message_queue(core: Core, topic: str, queue_id: int) -> ObjectKey:
    """MessageQueue (remoting.md 5.4) as a key of a map."""
    return ObjectKey.of(brokerName=core.settings.broker.name, queueId=queue_id, topic=topic)
