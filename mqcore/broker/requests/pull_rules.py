"""
Which pulls are refused, and which have an offset outside their queue.

broker.md 6.1, 6.2, 6.4 (RocketMQ 4.9.8: PullMessageProcessor). Serving processes answer regular
pulls themselves and ask about all others; the answer is a refusal, 21 for an offset that is out of
range, or Redo once the group is there.
"""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.request import REDO, Answer, FieldError, Fields, Outcome, Request, answers
from mqcore.broker.requests.pull_filters import given_expression, known_expression
from mqcore.broker.requests.pull_header import PullHeader
from mqcore.broker.tables.groups import GroupConfig
from mqcore.broker.tables.shares import address_of
from mqcore.broker.tables.topics import is_readable
from mqcore.wire import fastjson
from mqcore.wire.codes import (
    OFFSET_MOVED_TOPIC,
    PULL_FLAG_COMMIT,
    PULL_FLAG_SUBSCRIPTION,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.properties import KEYS, TAGS

NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"


def pull_asks(group: GroupConfig, *, readable: bool) -> bool:
    """
    True when every pull of a group has to be decided here, not only by a serving process.

    readable: the broker's own permission. Besides these: anything unknown or out of range, a
    subscription that is missing or older than the request, an expression not seen before.
    """
    return not (readable and group.consume_enable and group.consume_broadcast_enable)


@answers(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
def handle_pull(core: Core, request: Request) -> Outcome:
    """Decide about one pull. A refusal has an empty header, as 4.9.8 sends it."""
    try:
        header = PullHeader.read(Fields.of(request.command))
    except FieldError as error:
        return Answer(ResponseCode.SYSTEM_ERROR, str(error), {})
    refusal = _refusal(core, header, request.now_ms)
    if refusal is not None:
        code, remark = refusal
        return Answer(code, remark, {})
    return _moved(core, header, request) or REDO


def _refusal(
    core: Core, header: PullHeader, now_ms: int
) -> tuple[ResponseCode, str] | None:
    """The first rule of broker.md 6.1 that says no."""
    if not core.readable:
        return ResponseCode.NO_PERMISSION, (
            f"the broker {core.settings.advertised_addr} is not readable"
        )
    group = core.groups.find_or_create(header.group, now_ms)
    if group is None:
        return ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, (
            f"consumer group {header.group} does not exist"
        )
    if not group.consume_enable:
        return ResponseCode.NO_PERMISSION, f"consumer group {header.group} may not consume"
    topic = core.topics.get(header.topic)
    if topic is None:
        return ResponseCode.TOPIC_NOT_EXIST, f"topic {header.topic} does not exist"
    if not is_readable(topic):
        return ResponseCode.NO_PERMISSION, f"topic {header.topic} is not readable"
    if not 0 <= header.queue_id < topic.read_queue_count:
        return ResponseCode.SYSTEM_ERROR, (
            f"queue {header.queue_id} of topic {header.topic}:"
            f" expected 0 to {topic.read_queue_count - 1}"
        )
    if header.sys_flag & PULL_FLAG_SUBSCRIPTION:
        return given_expression(core, header, now_ms)
    return known_expression(core, header, group)


def _moved(core: Core, header: PullHeader, request: Request) -> Answer | None:
    """
    21 when the offset lies outside the queue (broker.md 6.2, 6.4); None when it does not, and in a
    slave, which moves nobody's. Nor is who read at the former leader moved back by one that was
    just elected (leadership FO10).
    """
    if core.settings.is_slave:
        return None
    taking_over = core.ports.queues.taking_over          # first: the range is no older then
    low, high = core.ports.store.queue_range(header.topic, header.queue_id) or (0, 0)
    if taking_over and header.offset > high:
        return None
    if high == 0:
        if header.offset == 0:
            return None
        status, begin = NO_MESSAGE_IN_QUEUE, 0
    elif header.offset < low:
        status, begin = OFFSET_TOO_SMALL, low
    elif header.offset > high:
        status, begin = OFFSET_OVERFLOW_BADLY, high
    else:
        return None
    _append_event(core, header, begin, request.now_ms)
    if header.sys_flag & PULL_FLAG_COMMIT:
        core.offsets.commit(header.group, header.topic, header.queue_id, header.commit_offset,
                            address_of(request.remote))
    return Answer(ResponseCode.PULL_OFFSET_MOVED, status, {
        "suggestWhichBrokerId": str(_suggested(core, header)),
        "nextBeginOffset": str(begin),
        "minOffset": str(low),
        "maxOffset": str(high),
    })


def _suggested(core: Core, header: PullHeader) -> int:
    """Where to read from next: nothing was read, the consumer counts as near (broker.md 6.4)."""
    group = core.groups.get(header.group)
    if group is None or not core.settings.broker.slave_read_enable:
        return 0
    return group.broker_id


def _append_event(core: Core, header: PullHeader, begin: int, now_ms: int) -> None:
    """Tell readers of OFFSET_MOVED_EVENT that a group's offset had to move (broker.md 6.4)."""
    body = fastjson.dumps({
        "consumerGroup": header.group,
        "messageQueue": {
            "brokerName": core.settings.broker.name, "queueId": header.queue_id,
            "topic": header.topic,
        },
        "offsetNew": begin,
        "offsetRequest": header.offset,
    })
    # group names are not checked (broker.md 9.5), but what separates properties cannot be in one
    label = header.group.replace("\x01", "").replace("\x02", "")
    properties = {KEYS: label, TAGS: label} if label else {}
    core.ports.appender.append(OFFSET_MOVED_TOPIC, 0, body, properties,
                               born_ms=core.wall_ms(now_ms))
