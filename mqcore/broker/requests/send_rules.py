"""
Which sends are refused, and what a refused or unusual one needs before it can be stored.

broker.md 2.2 steps 1 to 13, 2.5 (RocketMQ 4.9.8: SendMessageProcessor,
AbstractSendMessageProcessor). Serving processes store regular messages themselves and ask about all
others; the answer is a refusal, or Redo once topics and groups are there.
"""
from __future__ import annotations

import time
from dataclasses import dataclass

from mqcore.broker.core import Core
from mqcore.broker.request import (
    REDO,
    Answer,
    FieldError,
    Fields,
    Outcome,
    PendingOutcome,
    Redo,
    Request,
    answers,
)
from mqcore.broker.tables.topics import name_trouble
from mqcore.wire.codes import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SEND_FORBIDDEN,
    TIMER_TOPIC,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.numbers import I32_MAX, I32_MIN, I64_MAX, I64_MIN, whole_number
from mqcore.wire.properties import (
    DELAY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_PROPERTIES,
    TRANSACTION_PREPARED,
    decode_properties,
)
from mqcore.wire.properties import LENGTH_MAX as PROPERTIES_LENGTH_MAX
from mqcore.wire.records import FLAG_TRANSACTION_MASK
from mqcore.wire.topics import TopicConfig

VERSION_3_4_9 = 121               # from here on a client's own retry limit counts
DLQ_QUEUE_COUNT = 1
RETRY_QUEUE_COUNT = 1

_UNIT_MS = {TIMER_DELAY_SEC: 1000, TIMER_DELAY_MS: 1}
_LONG_NAMED = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE))
_V2_NAMES = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d",
    "queueId": "e", "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i",
    "reconsumeTimes": "j", "unitMode": "k", "maxReconsumeTimes": "l", "batch": "m",
}


class SendRefusal(Exception):
    """A rule says no; carries the code and the remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


@dataclass(slots=True, frozen=True)
class SendHeader:
    """The header of 10, 310, 320, 324, 325 as far as rules look at it (remoting.md 4.1)."""

    producer_group: str
    topic: str
    default_topic: str
    default_queue_count: int
    queue_id: int
    sys_flag: int
    born_ms: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int | None
    unit_mode: bool
    batch: bool

    @classmethod
    def read(cls, request: Request) -> SendHeader:
        """Raises FieldError for a field that is missing or no number."""
        fields = Fields.of(request.command)
        short = request.command.code not in _LONG_NAMED
        names = _V2_NAMES if short else {name: name for name in _V2_NAMES}
        limit = names["maxReconsumeTimes"]
        return cls(
            producer_group=fields.text_or(names["producerGroup"], ""),
            topic=fields.text(names["topic"]),
            default_topic=fields.text(names["defaultTopic"]),
            default_queue_count=fields.i32(names["defaultTopicQueueNums"]),
            queue_id=fields.i32(names["queueId"]),
            sys_flag=fields.i32(names["sysFlag"]),
            born_ms=fields.i64(names["bornTimestamp"]),
            flag=fields.i32(names["flag"]),
            properties=fields.text_or(names["properties"], ""),
            reconsume_times=fields.i32_or(names["reconsumeTimes"], 0),
            max_reconsume_times=fields.i32(limit) if fields.ext.get(limit) is not None else None,
            unit_mode=fields.boolean(names["unitMode"]),
            batch=fields.boolean(names["batch"])
            or request.command.code == RequestCode.SEND_BATCH_MESSAGE,
        )


def send_asks(topic: TopicConfig, *, writable: bool) -> bool:
    """
    True when every send to a topic has to be decided here, not by a serving process alone.

    writable: the broker's own permission. Besides these: an unknown topic, a queue out of range, a
    transactional or delayed message.
    """
    return (
        topic.name in SEND_FORBIDDEN
        or topic.name.startswith(RETRY_PREFIX)
        or (topic.order and not writable)
    )


@answers(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
def handle_send(core: Core, request: Request) -> Outcome:
    """Decide about one send; every response has the fields MSG_REGION and TRACE_ON (step 3)."""
    ext = answer_fields(core)
    try:
        return _decide(core, request, SendHeader.read(request))
    except SendRefusal as refusal:
        return Answer(refusal.code, refusal.remark, ext)
    except FieldError as error:
        return Answer(ResponseCode.SYSTEM_ERROR, str(error), ext)


def answer_fields(core: Core) -> dict[str, str | None]:
    """What every answer to a send says, refusals too (step 3)."""
    broker = core.settings.broker
    return {"MSG_REGION": broker.region_id, "TRACE_ON": "true" if broker.trace_on else "false"}


def _decide(core: Core, request: Request, header: SendHeader) -> Redo | PendingOutcome:
    """Nothing is stored under a topic that a kill would lose: stock saves it before, too (9.2)."""
    checked_topic(core, request, header)                                          # steps 4 to 9
    target = REDO
    if header.topic.startswith(RETRY_PREFIX) and not header.batch:                # step 10
        target = _retry_target(core, request, header)
    waits = _check_content(core, request, header)   # broker.md 2.2 step 13, 2.3, 2.5
    if waits and core.topics.is_unsaved(TIMER_TOPIC):
        return core.topics.hold(TIMER_TOPIC, target, Answer(
            ResponseCode.SYSTEM_ERROR, f"the topic {TIMER_TOPIC} cannot be saved",
            answer_fields(core)))
    topic = header.topic if target.topic is None else target.topic
    if not core.topics.is_unsaved(topic):
        return target
    return core.topics.hold(topic, target, Answer(
        ResponseCode.SYSTEM_ERROR, f"the topic {topic} cannot be saved", answer_fields(core)))


def checked_topic(core: Core, request: Request, header: SendHeader) -> TopicConfig:
    """The topic of a send that may be stored, made if need be. Raises SendRefusal."""
    broker = core.settings.broker
    if core.wall_ms(request.now_ms) < broker.accept_sends_from_ms:                # step 4
        opens = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(broker.accept_sends_from_ms / 1000))
        raise SendRefusal(ResponseCode.SYSTEM_ERROR, f"no messages are accepted before {opens} UTC")
    found = core.topics.get(header.topic)
    if not core.writable and found is not None and found.order:                   # step 5
        raise SendRefusal(
            ResponseCode.NO_PERMISSION,
            f"the broker {core.settings.advertised_addr} is not writable",
        )
    trouble = name_trouble(header.topic)                                          # step 6
    if trouble is not None:
        raise SendRefusal(ResponseCode.SYSTEM_ERROR, trouble)
    if header.topic in SEND_FORBIDDEN:                                            # step 7
        raise SendRefusal(
            ResponseCode.NO_PERMISSION, f"messages to the system topic {header.topic} are refused"
        )
    topic = found or _create(core, header, request.now_ms)                        # step 8
    queue_count = max(topic.write_queue_count, topic.read_queue_count)
    if header.queue_id >= queue_count:                                            # step 9
        raise SendRefusal(
            ResponseCode.SYSTEM_ERROR,
            f"queue {header.queue_id} of topic {header.topic}: expected less than {queue_count}",
        )
    return topic


def _create(core: Core, header: SendHeader, now_ms: int) -> TopicConfig:
    topic = core.topics.create_from_template(
        header.topic, header.default_topic, header.default_queue_count, header.unit_mode, now_ms
    )
    if topic is None and header.topic.startswith(RETRY_PREFIX):
        topic = core.topics.create_on_demand(header.topic, RETRY_QUEUE_COUNT, now_ms)
    if topic is None and core.topics.refused:
        raise SendRefusal(
            ResponseCode.SYSTEM_ERROR,
            f"no topic {header.topic} can be made: it cannot be saved: {core.topics.refused}",
        )
    if topic is None:
        raise SendRefusal(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic {header.topic} does not exist, and no template allows to make it"
            f" (asked for {header.default_topic})",
        )
    return topic


def _retry_target(core: Core, request: Request, header: SendHeader) -> Redo:
    """A message that has been retried often enough goes to the group's dead letter queue."""
    name = header.topic[len(RETRY_PREFIX):]
    group = core.groups.find_or_create(name, request.now_ms)
    if group is None:
        raise SendRefusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {name} does not exist"
        )
    limit = group.retry_times_max
    if request.command.version >= VERSION_3_4_9 and header.max_reconsume_times is not None:
        limit = header.max_reconsume_times
    if header.reconsume_times < limit:
        return REDO
    dead_letters = core.topics.create_on_demand(
        DLQ_PREFIX + name, DLQ_QUEUE_COUNT, request.now_ms
    )
    if dead_letters is None:
        raise SendRefusal(
            ResponseCode.SYSTEM_ERROR, f"topic {DLQ_PREFIX + name} could not be made"
        )
    return Redo(dead_letters.name, 0)


def _check_content(core: Core, request: Request, header: SendHeader) -> bool:
    """Sizes, transactions, delays. True: the message waits for a time of delivery."""
    size_max = core.settings.store.message_size_max_bytes
    if request.body_size > size_max:
        raise SendRefusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the body has {request.body_size} bytes: expected at most {size_max}",
        )
    length = len(header.properties.encode("utf-8", "replace"))
    if length > PROPERTIES_LENGTH_MAX:
        raise SendRefusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the properties have {length} bytes: expected at most {PROPERTIES_LENGTH_MAX}",
        )
    properties = decode_properties(header.properties)
    is_retry = header.topic.startswith(RETRY_PREFIX) and header.reconsume_times > 0
    delayed = delay_level(properties.get(DELAY)) > 0
    waits = not delayed and check_timer(core, request, properties, was_delivered=is_retry) > 0
    if header.batch:
        if waits:
            raise SendRefusal(ResponseCode.MESSAGE_ILLEGAL,
                              "a batch has no time of delivery: send its messages one by one")
        if delayed or header.sys_flag & FLAG_TRANSACTION_MASK:
            raise SendRefusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "a batch can neither be delayed nor belong to a transaction",
            )
        return False
    transactional = properties.get(TRANSACTION_PREPARED, "").lower() == "true"
    if transactional and core.settings.broker.reject_transaction_message:
        raise SendRefusal(ResponseCode.NO_PERMISSION,
                          "the broker is set to refuse transactional messages")
    if waits and core.topics.create_on_demand(TIMER_TOPIC, 1, request.now_ms) is None:
        raise SendRefusal(ResponseCode.SYSTEM_ERROR, f"topic {TIMER_TOPIC} could not be made")
    return waits


def check_timer(core: Core, request: Request, properties: dict[str, str], *,
                was_delivered: bool = False) -> int:
    """
    For how many ms a message waits, as 5.x has it (timer.md 2); 0: it does not.

    was_delivered: it is consumed again, and waited before its first delivery. Raises SendRefusal
    for what is no time, for one further ahead than `broker.timer_max_delay_s`, and, where
    `broker.timer_messages` says so, for any.
    """
    broker = core.settings.broker
    if broker.timer_messages == "at_once" or was_delivered:
        return 0
    for name in TIMER_PROPERTIES:
        value = properties.get(name)
        if value is None:
            continue
        wanted = whole_number(value, I64_MIN, I64_MAX)
        now_ms = core.wall_ms(request.now_ms)
        ahead_ms = None if wanted is None else (
            wanted - now_ms if name == TIMER_DELIVER_MS else wanted * _UNIT_MS[name])
        if ahead_ms is not None and ahead_ms <= 0:
            return 0
        if ahead_ms is None or broker.timer_messages == "refuse":
            raise SendRefusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {name} is {value[:40]!r}: " + (
                    "expected a whole number" if ahead_ms is None else
                    "this broker delivers no message at any time, use a delay level"
                    " (broker.timer_messages)"))
        if ahead_ms > 1000 * broker.timer_max_delay_s:
            raise SendRefusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"timer message illegal, property {name} is {value[:40]!r}: the time of delivery"
                f" may be at most {broker.timer_max_delay_s} s ahead (broker.timer_max_delay_s)")
        return ahead_ms
    return 0


def delay_level(value: str | None) -> int:
    """The DELAY property as Java reads it: no number is an error, not zero (broker.md 4.2)."""
    if value is None:
        return 0
    level = whole_number(value, I32_MIN, I32_MAX)
    if level is None:
        raise SendRefusal(
            ResponseCode.SYSTEM_ERROR,
            f"property {DELAY} is {value[:40]!r}: expected a whole number",
        )
    return level
