"""
How far consumer groups have come: per group, for all groups, in time.

broker.md 10.2, remoting.md 4.4, 5.4 (RocketMQ 4.9.8: AdminBrokerProcessor, ConsumeStats).
"""
from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import Any

from mqcore.broker.core import Core
from mqcore.broker.request import (
    ROWS_A_TURN,
    Fields,
    OutcomeJob,
    Request,
    answers,
    json_answer,
    long_answer,
)
from mqcore.broker.requests.topic import bounds, message_queue, unknown_topic
from mqcore.broker.tables.statistics import GROUP_GET_NUMS
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode


@answers(RequestCode.GET_CONSUME_STATS)
def consume_stats(core: Core, request: Request) -> OutcomeJob:
    """GET_CONSUME_STATS (208): of one topic, or of every topic that the group has offsets of."""
    fields = Fields.of(request.command)
    group, topic = fields.text("consumerGroup"), fields.text_or("topic", "")
    topics = [topic] if topic.strip() else core.offsets.topics_of(group)
    table: dict[Any, dict[str, int]] = {}
    tps = 0.0
    for number, name in enumerate(_of_interest(core, group, topics)):
        if number % ROWS_A_TURN == 0:
            yield
        config = core.topics.get(name)
        if config is not None:
            yield from _progress(core, group, name, config.read_queue_count, table)
            tps += _tps(core, group, name)
    return (yield from json_answer({"consumeTps": tps, "offsetTable": table}, built=True))


@answers(RequestCode.GET_BROKER_CONSUME_STATS)
def broker_consume_stats(core: Core, request: Request) -> OutcomeJob:
    """GET_BROKER_CONSUME_STATS (317): of every group that has a config."""
    only_ordered = Fields.of(request.command).boolean("isOrder")
    text = fastjson.Parts()
    text.add(b'{"brokerAddr":%s,"consumeStatsList":[' % _quoted(core.settings.advertised_addr))
    broker = _quoted(core.settings.broker.name)
    behind = rows = 0
    for at, group in enumerate(core.groups.all()):
        text.add(b"%s{%s:[" % (b"," if at else b"", _quoted(group.name)))
        separator = b""
        topics = _of_interest(core, group.name, core.offsets.topics_of(group.name))
        rows += 1 + len(topics)
        for name in topics:
            config = core.topics.get(name)
            if config is None or (only_ordered and not config.order):
                continue
            topic = _quoted(name)
            text.add(b'%s{"consumeTps":%s,"offsetTable":{' % (
                separator, fastjson.dumps(_tps(core, group.name, name))))
            separator = b","
            for queue_id in range(config.write_queue_count):
                end, place, place_ms = _place(core, group.name, name, queue_id)
                behind += end - place
                # -- MessageQueue (remoting.md 5.4) as a key of a map
                text.add(b'%s{"brokerName":%s,"queueId":%d,"topic":%s}:{"brokerOffset":%d,'
                         b'"consumerOffset":%d,"lastTimestamp":%d}' % (
                             b"," if queue_id else b"", broker, queue_id, topic, end, place,
                             place_ms))
                rows += 1
                if rows >= ROWS_A_TURN:
                    rows = 0
                    yield
            text.add(b"}}")
        text.add(b"]}")
        if rows >= ROWS_A_TURN:
            rows = 0
            yield
    text.add(b'],"totalDiff":%d}' % behind)
    return long_answer(text.done())


def _quoted(text: str) -> bytes:
    return fastjson.quote(text).encode()


@answers(RequestCode.QUERY_CONSUME_TIME_SPAN)
def consume_time_span(core: Core, request: Request) -> OutcomeJob:
    """QUERY_CONSUME_TIME_SPAN (303): store times of each queue's ends and of the group's place."""
    fields = Fields.of(request.command)
    name, group = fields.text("topic"), fields.text("group")
    topic = core.topics.get(name)
    if topic is None:
        return unknown_topic(name)
    store = core.ports.store
    spans = []
    for queue_id in range(topic.write_queue_count):
        if queue_id % ROWS_A_TURN == 0:
            yield
        low, high = bounds(core, name, queue_id)
        first_ms = store.store_time(name, queue_id, low)
        last_ms = store.store_time(name, queue_id, high - 1)
        place = core.offsets.committed(group, name, queue_id) or 0
        place_ms = store.store_time(name, queue_id, place - 1) if place > 0 else first_ms
        next_ms = store.store_time(name, queue_id, place) if place < high else 0
        spans.append({
            "consumeTimeStamp": place_ms, "consumeTimeStampStr": _local_time(place_ms),
            "delayTime": core.wall_ms(request.now_ms) - next_ms if next_ms > 0 else 0,
            "maxTimeStamp": last_ms, "maxTimeStampStr": _local_time(last_ms),
            "messageQueue": dict(message_queue(core, name, queue_id)),
            "minTimeStamp": first_ms, "minTimeStampStr": _local_time(first_ms),
        })
    return (yield from json_answer({"consumeTimeSpanSet": spans}, built=True))


def _of_interest(core: Core, group: str, topics: list[str]) -> list[str]:
    """Without the topics that a group which is online does not subscribe to (any more)."""
    online = core.clients.consumers.get(group)
    if online is None or not online.subscriptions:
        return topics
    return [topic for topic in topics if topic in online.subscriptions]


def _progress(
    core: Core, group: str, topic: str, queue_count: int, table: dict[Any, dict[str, int]],
) -> Generator[None, None, None]:
    """OffsetWrapper of each queue: the queue's end, the group's offset, when it was stored."""
    for queue_id in range(queue_count):
        if queue_id % ROWS_A_TURN == 0:
            yield
        end, place, place_ms = _place(core, group, topic, queue_id)
        table[message_queue(core, topic, queue_id)] = {
            "brokerOffset": end, "consumerOffset": place, "lastTimestamp": place_ms,
        }


def _place(core: Core, group: str, topic: str, queue_id: int) -> tuple[int, int, int]:
    """The queue's end, the group's offset, when the message before that was stored."""
    place = max(core.offsets.committed(group, topic, queue_id) or 0, 0)
    place_ms = core.ports.store.store_time(topic, queue_id, place - 1) if place > 0 else 0
    return bounds(core, topic, queue_id)[1], place, max(place_ms, 0)


def _tps(core: Core, group: str, topic: str) -> float:
    """Messages a second in the last minute."""
    windows = core.statistics.windows(GROUP_GET_NUMS, f"{topic}@{group}")
    return windows.minute.tps if windows is not None else 0.0


def _local_time(at_ms: int) -> str:
    """A store time for people, such as 2026-11-21#08:51:16:016."""
    at = datetime.fromtimestamp(at_ms // 1000)
    return f"{at:%Y-%m-%d#%H:%M:%S}:{at_ms % 1000:03d}"
