"""
Consumer groups by request: created, changed, deleted.

broker.md 9.5, 9.6, remoting.md 4.4, 5.4 (RocketMQ 4.9.8: AdminBrokerProcessor). What changes counts
at once: the serving processes have copies of the groups.
"""
from __future__ import annotations

from typing import Any

from mqcore.broker.config_table import TablesFull
from mqcore.broker.core import Core
from mqcore.broker.groups import GROUP_LENGTH_MAX, GroupConfig
from mqcore.broker.requests import (
    I32_MAX,
    I32_MIN,
    I64_MAX,
    I64_MIN,
    Answer,
    FieldError,
    Fields,
    Request,
    body_object,
    refused,
)
from mqcore.broker.topics import QUEUES_OF_A_TOPIC_MAX
from mqcore.wire.codes import ResponseCode


def update_group(core: Core, request: Request) -> Answer:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200): the whole config; what is left out is default."""
    group = _group(body_object(request.command, "SubscriptionGroupConfig"))
    try:
        core.groups.update(group, request.now_ms)
        core.groups.persist()
    except TablesFull as error:
        return refused(ResponseCode.SYSTEM_ERROR, str(error))
    except OSError as error:
        return refused(ResponseCode.SYSTEM_ERROR, f"the groups cannot be saved: {error}")
    return Answer(ResponseCode.SUCCESS)


def delete_group(core: Core, request: Request) -> Answer:
    """DELETE_SUBSCRIPTIONGROUP (207); a group that still has members comes back by a heartbeat."""
    fields = Fields.of(request.command)
    name = fields.text("groupName")
    core.groups.delete(name, request.now_ms)
    if fields.boolean("removeOffset"):
        core.offsets.remove_group(name)
    try:
        for table in (core.groups, core.offsets):
            if table.dirty:
                table.persist()
    except OSError as error:
        return refused(ResponseCode.SYSTEM_ERROR, f"the groups cannot be saved: {error}")
    return Answer(ResponseCode.SUCCESS)


def _group(value: dict[str, Any]) -> GroupConfig:
    """Read SubscriptionGroupConfig. Raises FieldError naming the member that cannot be used."""
    name = value.get("groupName")
    if not isinstance(name, str) or not name.strip():
        raise FieldError("body: groupName is missing: expected text")
    if len(name.encode("utf-8", "replace")) > GROUP_LENGTH_MAX:
        raise FieldError(f"body: groupName: expected at most {GROUP_LENGTH_MAX} bytes")
    return GroupConfig(
        name=name,
        consume_enable=_switch(value, "consumeEnable"),
        consume_from_min_enable=_switch(value, "consumeFromMinEnable"),
        consume_broadcast_enable=_switch(value, "consumeBroadcastEnable"),
        retry_queue_count=_whole(value, "retryQueueNums", 1, I32_MIN, QUEUES_OF_A_TOPIC_MAX),
        retry_times_max=_whole(value, "retryMaxTimes", 16, I32_MIN, I32_MAX),
        broker_id=_whole(value, "brokerId", 0, I64_MIN, I64_MAX),
        broker_id_when_slow=_whole(value, "whichBrokerWhenConsumeSlowly", 1, I64_MIN, I64_MAX),
        notify_consumers_enable=_switch(value, "notifyConsumerIdsChangedEnable"),
    )


def _switch(value: dict[str, Any], name: str) -> bool:
    """On by default; true, 1 and text alike (remoting.md 5.2)."""
    found = value.get(name)
    if found in (None, True) or (isinstance(found, str) and found.lower() in ("true", "1")):
        return True
    if found is False or (isinstance(found, str) and found.lower() in ("false", "0")):
        return False
    raise FieldError(f"body: {name} is {found!r:.40}: expected true or false")


def _whole(value: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    found = value.get(name)
    if found is None:
        return default
    try:
        number = int(found) if isinstance(found, int | str) else high + 1
    except ValueError:
        number = high + 1
    if not low <= number <= high:
        raise FieldError(
            f"body: {name} is {found!r:.40}: expected a whole number from {low} to {high}")
    return number
