"""
Consumer groups by request: created, changed, deleted.

broker.md 9.5, 9.6, remoting.md 4.4, 5.4 (RocketMQ 4.9.8: AdminBrokerProcessor). What changes counts
at once: the serving processes have copies of the groups.
"""
from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from mqcore.broker.core import Core
from mqcore.broker.names import check_group
from mqcore.broker.request import (
    I32_MAX,
    I32_MIN,
    I64_MAX,
    I64_MIN,
    ROWS_A_TURN,
    Answer,
    FieldError,
    Fields,
    OutcomeJob,
    Request,
    answers,
    body_object,
    refused,
)
from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_table import TablesFull
from mqcore.broker.tables.groups import (
    KNOWN_MEMBERS,
    ORDERLY,
    RETRY_POLICY,
    GroupConfig,
    backoff_of,
)
from mqcore.broker.tables.topics import QUEUES_OF_A_TOPIC_MAX
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.numbers import whole_number

MORE_BYTES_MAX = 16 << 10           # of members that only RocketMQ 5 knows

@answers(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
def update_group(core: Core, request: Request) -> OutcomeJob:
    """
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200): the whole config; what is left out is default, but
    for members of RocketMQ 5: a tool of 4.x does not know that they are there.
    """
    group = _group((yield from body_object(request, "SubscriptionGroupConfig")))
    check_group(group.name, core.groups.has(group.name))
    before = core.groups.get(group.name)
    if before is not None:
        group = replace(group, more=before.more | group.more)
    _check_more(group)
    try:
        core.groups.update(group, request.now_ms)
    except TablesFull as error:
        return refused(ResponseCode.SYSTEM_ERROR, str(error))
    return (yield from _saved(core, request, group.name, before, group))


@answers(RequestCode.DELETE_SUBSCRIPTIONGROUP)
def delete_group(core: Core, request: Request) -> OutcomeJob:
    """
    DELETE_SUBSCRIPTIONGROUP (207); a group that still has members comes back by a heartbeat. Its
    offsets, if they go too, are out of their file before the answer: a kill would bring them back.
    """
    fields = Fields.of(request.command)
    name = fields.text("groupName")
    before = core.groups.get(name)
    offsets_too = fields.boolean("removeOffset")
    core.groups.delete(name, request.now_ms)
    return (yield from _saved(core, request, name, before, None, offsets_too=offsets_too))


def _saved(
    core: Core, request: Request, name: str, before: GroupConfig | None,
    after: GroupConfig | None, *, offsets_too: bool = False,
) -> OutcomeJob:
    """
    Success, once the groups are in their file. before, after: of this group, for the audit;
    offsets_too: its offsets go then, and stay where the file is refused.
    """
    def done() -> OutcomeJob:
        if not offsets_too:
            return told()
        while not core.offsets.remove_group(name, ROWS_A_TURN):
            yield
        outcome = core.once_offsets_saved(request, told)
        return (yield from outcome) if isinstance(outcome, Generator) else outcome

    def told() -> Answer:
        core.access.changed(request, before.as_json() if before else {},
                            after.as_json() if after else {}, what=name)
        return Answer(ResponseCode.SUCCESS)

    if not core.groups.dirty:
        return (yield from done())
    outcome = core.once_saved(request, core.groups, "the groups", done)
    return (yield from outcome) if isinstance(outcome, Generator) else outcome


def _group(value: dict[str, Any]) -> GroupConfig:
    """Read SubscriptionGroupConfig. Raises FieldError naming the member that cannot be used."""
    name = value.get("groupName")
    if not isinstance(name, str) or not name.strip():
        raise FieldError("body: groupName is missing: expected text")
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
        more=_more(value),
    )


def _more(value: dict[str, Any]) -> dict[str, Any]:
    try:
        more = config_file.more_of(value, KNOWN_MEMBERS)
    except ValueError as error:
        raise FieldError(f"body: {error}") from error
    if not isinstance(more.get(ORDERLY, False), bool):
        raise FieldError(f"body: {ORDERLY} is {more[ORDERLY]!r:.40}: expected true or false")
    try:
        backoff_of(more.get(RETRY_POLICY))
    except ValueError as error:
        raise FieldError(f"body: {RETRY_POLICY}: {error}") from error
    return more


def _check_more(group: GroupConfig) -> None:
    size = len(fastjson.dumps(group.more))
    if size > MORE_BYTES_MAX:
        raise FieldError(f"body: {size} bytes of members that are not 4.x's: expected at most "
                         f"{MORE_BYTES_MAX}")


def _switch(value: dict[str, Any], name: str) -> bool:
    """On by default; true, 1 and text alike (remoting.md 5.2)."""
    found = value.get(name)
    if found in (None, True) or (isinstance(found, str) and found.lower() in ("true", "1")):
        return True
    if found is False or (isinstance(found, str) and found.lower() in ("false", "0")):
        return False
    raise FieldError(f"body: {name} is {found!r:.40}: expected true or false")


@answers(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
def group_config(core: Core, request: Request) -> Answer:
    """GET_SUBSCRIPTIONGROUP_CONFIG (352) of 5.x: a group's settings, made if that is allowed."""
    name = Fields.of(request.command).text("group")
    group = core.groups.find_or_create(name, request.now_ms)
    if group is None:
        return refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                       f"No group in this broker. group: {name}")
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps(group.as_json()))


def _whole(value: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    found = value.get(name)
    if found is None:
        return default
    number = whole_number(found) if isinstance(found, str) else found
    if not isinstance(number, int) or not low <= number <= high:
        raise FieldError(
            f"body: {name} is {found!r:.40}: expected a whole number from {low} to {high}")
    return number
