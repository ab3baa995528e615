"""
Messages that a consumer could not handle: stored again for a later try, or as dead letters.

broker.md 3, 4.2 (RocketMQ 4.9.8: SendMessageProcessor, CommitLog). The copy goes to the group's own
retry topic, by way of the delay topic; after the last try to the group's dead letter queue.
"""
from __future__ import annotations

import random
from dataclasses import dataclass

from mqcore.acl.rules import SUB
from mqcore.broker.access import topic_of
from mqcore.broker.core import Core
from mqcore.broker.ports import AppendStatus, Put
from mqcore.broker.request import Answer, FieldError, Fields, Request, answers, refused
from mqcore.broker.requests.send_rules import DLQ_QUEUE_COUNT, VERSION_3_4_9
from mqcore.broker.tables.groups import GroupConfig
from mqcore.broker.tables.statistics import SNDBCK_PUT_NUMS
from mqcore.replication.role import Role
from mqcore.store.paths import folder_name_trouble
from mqcore.wire.codes import (
    DLQ_PREFIX,
    PERM_WRITE,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.numbers import I32_MAX, I32_MIN, whole_number
from mqcore.wire.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    WAIT,
)
from mqcore.wire.records import Record, RecordError, decode_record
from mqcore.wire.topics import SYS_FLAG_UNIT_SUB

FIRST_RETRY_LEVEL = 3            # of the delay before the first try; each later one is longer


@dataclass(slots=True, frozen=True)
class SendBackHeader:
    """The header of CONSUMER_SEND_MSG_BACK (remoting.md 4.2.2)."""

    position: int                # of the message in the commit log
    group: str
    delay_level: int
    unit_mode: bool
    retry_times_max: int | None  # None: the group's own limit counts

    @classmethod
    def read(cls, request: Request) -> SendBackHeader:
        """Raises FieldError for a field that is missing or no number."""
        fields = Fields.of(request.command)
        limit = fields.i32_or("maxReconsumeTimes", -1)
        given = fields.ext.get("maxReconsumeTimes") is not None
        return cls(
            position=fields.i64("offset"),
            group=fields.text("group"),
            delay_level=fields.i32("delayLevel"),
            unit_mode=fields.boolean("unitMode"),
            retry_times_max=limit if given and request.command.version >= VERSION_3_4_9 else None,
        )


@dataclass(slots=True)
class Place:
    """Where a message is stored."""

    topic: str
    queue_id: int


@answers(RequestCode.CONSUMER_SEND_MSG_BACK)
def send_back(core: Core, request: Request) -> Answer | None:
    """CONSUMER_SEND_MSG_BACK (36): answered when the copy is stored."""
    header = SendBackHeader.read(request)
    group = core.groups.find_or_create(header.group, request.now_ms)
    if group is None:
        return refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                       f"consumer group {header.group} does not exist")
    if not core.writable:
        return refused(ResponseCode.NO_PERMISSION,
                       f"the broker {core.settings.advertised_addr} is not writable")
    if core.settings.replication.role is Role.SYNC_MASTER and core.ports.queues.alone:
        # stored and answered so it would be stored again, by its consumer: two copies of each try
        return refused(ResponseCode.SYSTEM_ERROR, AppendStatus.SLAVE_NOT_AVAILABLE.name)
    if group.retry_queue_count <= 0:       # such a group does without what it could not consume
        return Answer(ResponseCode.SUCCESS)
    place = _retry_place(core, header, group, request.now_ms)
    if isinstance(place, Answer):
        return place
    record = _message(core, header.position)
    if record is None:
        return refused(ResponseCode.SYSTEM_ERROR,
                       f"there is no message at position {header.position}")
    denied = core.access.may(request, topic_of(record), SUB)
    if denied is not None:
        return denied
    if _is_over(header, group, record):
        return _store_dead_letter(core, request, header, record)
    properties = _copied_properties(record)
    level = header.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
    properties[DELAY] = str(level)
    target = place.topic
    delay(place, properties, len(core.settings.delay_levels_ms))
    _store(core, request, header, target, place, record, properties)
    return None


def delay(place: Place, properties: dict[str, str], level_count: int) -> None:
    """
    Divert a message with a property DELAY above 0 to the delay topic (broker.md 4.2); others stay.

    Changes both: the level is lowered to the highest there is, and the real place noted. Raises
    FieldError when the level is no number.
    """
    text = properties.get(DELAY, "0")
    wanted = whole_number(text, I32_MIN, I32_MAX)
    if wanted is None:
        raise FieldError(f"property {DELAY} is {text[:40]!r}: expected a whole number")
    level = min(wanted, level_count)
    if level <= 0:
        return
    properties[DELAY] = str(level)
    properties[REAL_TOPIC] = place.topic
    properties[REAL_QUEUE_ID] = str(place.queue_id)
    place.topic, place.queue_id = SCHEDULE_TOPIC, level - 1


def _retry_place(
    core: Core, header: SendBackHeader, group: GroupConfig, now_ms: int
) -> Place | Answer:
    """A queue of the group's retry topic, which is made if need be (step 5)."""
    name = RETRY_PREFIX + header.group
    trouble = folder_name_trouble(name)    # of a group from another broker's file
    if trouble is not None:
        return refused(ResponseCode.SYSTEM_ERROR,
                       f"no topic may be called {name[:160]!r}: {trouble}")
    queue_count = group.retry_topic_queue_count
    topic = core.topics.create_on_demand(
        name, queue_count, now_ms, SYS_FLAG_UNIT_SUB if header.unit_mode else 0)
    if topic is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"topic {name} could not be made")
    if not topic.perm & PERM_WRITE:
        return refused(ResponseCode.NO_PERMISSION, f"topic {name} is not writable")
    return Place(name, random.randrange(max(min(queue_count, topic.write_queue_count), 1)))


def _message(core: Core, position: int) -> Record | None:
    raw = core.ports.store.named_record(position)
    if raw is None:
        return None
    try:
        return decode_record(raw)
    except RecordError:
        return None


def _is_over(header: SendBackHeader, group: GroupConfig, record: Record) -> bool:
    """Whether the message has been tried often enough, or is not to be tried again (step 10)."""
    limit = group.retry_times_max if header.retry_times_max is None else header.retry_times_max
    return record.reconsume_times >= limit or header.delay_level < 0


def _store_dead_letter(
    core: Core, request: Request, header: SendBackHeader, record: Record
) -> Answer | None:
    name = DLQ_PREFIX + header.group
    if core.topics.create_on_demand(name, DLQ_QUEUE_COUNT, request.now_ms) is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"topic {name} could not be made")
    properties = _copied_properties(record)
    properties[DELAY] = "0"
    _store(core, request, header, name, Place(name, 0), record, properties)
    return None


def _copied_properties(record: Record) -> dict[str, str]:
    """
    The copy also says where the message first was, and has WAIT=false, as stock's does; the put
    itself waits all the same, since the consumer forgets the message at an answer of 0.
    """
    properties = dict(record.properties)
    properties.setdefault(RETRY_TOPIC, record.topic)
    if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
        properties[ORIGIN_MESSAGE_ID] = record.offset_message_id
    properties[WAIT] = "false"
    return properties


def _store(
    core: Core, request: Request, header: SendBackHeader, target: str, place: Place,
    record: Record, properties: dict[str, str],
) -> None:
    """
    Store the copy (steps 11, 12); hosts and times are those of the original. target: the topic that
    it is for.
    """

    def done(put: Put) -> None:
        if put.status.stored:
            core.statistics.note(SNDBCK_PUT_NUMS, f"{properties[RETRY_TOPIC]}@{header.group}")
        answer = Answer(ResponseCode.SUCCESS) if put.status is AppendStatus.PUT_OK else refused(
            ResponseCode.SYSTEM_ERROR, put.status.name)
        core.answer_saved(request, target, answer)

    core.ports.appender.append(
        place.topic, place.queue_id, record.body, properties,
        born_ms=record.born_timestamp_ms, flag=record.flag, sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times + 1, born_host=record.born_host,
        store_host=record.store_host, waits=True, done=done,
    )
