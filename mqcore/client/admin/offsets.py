"""Offsets: of queues by time, of groups as committed, set, copied and reset (broker.md 10.3)."""
from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import document, header_number, settings_of, when
from mqcore.client.admin.groups import Groups
from mqcore.client.admin.link import (
    SUCCESS,
    Found,
    Link,
    Target,
    Unreachable,
    limited,
    now,
    some_at_once,
)
from mqcore.client.core.options import check_group, check_topic
from mqcore.client.errors import ClientError, broker_error
from mqcore.client.message import MessageQueue
from mqcore.client.network.route import subscribe_queues
from mqcore.wire.codes import MASTER_ID, RequestCode, ResponseCode
from mqcore.wire.command import Ext

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
ResetTo = datetime | str | int
"""`Moment`, "earliest", "latest", or an offset."""


class QueueReset(Struct, frozen=True):
    """A queue of a reset: the committed offset before (None: there was none) and after it."""

    queue: MessageQueue
    before: int | None
    after: int


class OffsetReset(Struct, frozen=True):
    """
    The effect of a reset, or (dry_run) the effect that it would have.

    online        whether the group has members: these change their offsets themselves, and commit
                  them some seconds later
    unreachable   of a dry run: brokers whose queues are missing
    """

    group: str
    topic: str
    queues: tuple[QueueReset, ...]
    online: bool
    dry_run: bool
    unreachable: tuple[Unreachable, ...] = ()


class ClientOffsets(Struct, frozen=True):
    """How far one member says that it is with the queues of a topic (223)."""

    client_id: str
    offsets: tuple[tuple[MessageQueue, int], ...]


class GroupOffset(Struct, frozen=True):
    """The committed offset of a group in one queue."""

    group: str
    queue: MessageQueue
    offset: int


class _Aim(Struct, frozen=True):
    """Where a reset goes: a time (0 the earliest, None the latest), or one offset for all."""

    timestamp_ms: int | None = None
    offset: int | None = None


class Offsets(Groups, Link):
    """What AsyncAdmin does with offsets."""

    # -- of queues --------------------------------------------------------------------------------

    @limited
    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue gets; 0 for a queue that is unknown."""
        return await self._queue_number(queue, RequestCode.GET_MAX_OFFSET)

    @limited
    async def min_offset(self, queue: MessageQueue) -> int:
        """The smallest offset of a queue that still can be read."""
        return await self._queue_number(queue, RequestCode.GET_MIN_OFFSET)

    @limited
    async def offset_at(self, queue: MessageQueue, at: arguments.Moment) -> int:
        """The offset of the message of a queue that was stored nearest to a time.

        at   a datetime with a zone, "now", "1h ago", or ISO 8601
        """
        at_ms = arguments.moment_ms(at, "at", now())
        return await self._queue_number(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, at_ms)

    @limited
    async def earliest_store_time(self, queue: MessageQueue) -> datetime | None:
        """When the first message of a queue was stored; None: it has none."""
        arguments.message_queue(queue)
        target = await self._address(queue.broker_name, "queue.broker_name")
        answer = await self._ask(target.address, RequestCode.GET_EARLIEST_MSG_STORETIME,
                                 {"topic": queue.topic, "queueId": str(queue.queue_id)})
        return when(header_number(answer, "timestamp", target.address))

    async def _queue_number(
        self, queue: MessageQueue, code: RequestCode, at_ms: int | None = None
    ) -> int:
        arguments.message_queue(queue)
        target = await self._address(queue.broker_name, "queue.broker_name")
        return await self._offset(target, queue, code, at_ms)

    async def _offset(
        self, target: Target, queue: MessageQueue, code: RequestCode, at_ms: int | None = None
    ) -> int:
        answer = await self._ask(target.address, code, {
            "topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name,
            "timestamp": None if at_ms is None else str(at_ms)})
        return max(0, header_number(answer, "offset", target.address))

    # -- of groups --------------------------------------------------------------------------------

    @limited
    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """The committed offset of a group in a queue; None: there is none."""
        check_group(group)
        arguments.message_queue(queue)
        target = await self._address(queue.broker_name, "queue.broker_name")
        return await self._committed(target, group, queue)

    async def _committed(self, target: Target, group: str, queue: MessageQueue) -> int | None:
        answer = await self._ask(target.address, RequestCode.QUERY_CONSUMER_OFFSET, {
            "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
        }, accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return header_number(answer, "offset", target.address)

    @limited
    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of a queue for a group, forwards or backwards; while its members are
        offline.

        Members that are online commit their own over it: `reset_offsets` tells them.
        """
        check_group(group)
        arguments.number(offset, "offset")
        arguments.message_queue(queue)
        target = await self._address(queue.broker_name, "queue.broker_name")
        await self._commit(target, group, queue, offset)

    async def _commit(self, target: Target, group: str, queue: MessageQueue, offset: int) -> None:
        await self._ask(target.address, RequestCode.UPDATE_CONSUMER_OFFSET, {
            "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
            "commitOffset": str(offset), "bname": queue.broker_name})

    @limited
    async def all_offsets(self, broker: str) -> tuple[GroupOffset, ...]:
        """All that groups committed at one broker (43)."""
        return await self._all_offsets(await self._address(broker))

    async def _all_offsets(self, target: Target) -> tuple[GroupOffset, ...]:
        answer = await self._ask(
            target.address, RequestCode.GET_ALL_CONSUMER_OFFSET, slow=True)
        table = document(answer, target.address).object("offsetTable")
        found = []
        for key in table.members:
            topic, _, group = str(key).partition("@")
            found += [GroupOffset(group, MessageQueue(topic, target.name, queue_id), offset)
                      for queue_id, offset in table.by_number(key).items()]
        return tuple(sorted(found, key=lambda entry: (entry.group, entry.queue)))

    @limited
    async def delay_offsets(self, broker: str) -> dict[int, int]:
        """How far each delay level of one broker is delivered, by level (45)."""
        target = await self._address(broker)
        answer = await self._ask(target.address, RequestCode.GET_ALL_DELAY_OFFSET)
        return document(answer, target.address).by_number("offsetTable")

    @limited
    async def clone_offsets(self, source: str, target: str, topic: str) -> tuple[QueueReset, ...]:
        """Give the group `target` the offsets that `source` committed for a topic
        (cloneGroupOffset).

        `target` should be offline: members commit their own over it. Raises AdminError with the
        brokers that failed.
        """
        check_group(source, "source")
        check_group(target, "target")
        check_topic(topic)

        async def one(at: Target, queue: MessageQueue) -> QueueReset | None:
            offset = await self._committed(at, source, queue)
            if offset is None:
                return None
            before = await self._committed(at, target, queue)
            await self._commit(at, target, queue, offset)
            return QueueReset(queue, before, offset)

        async def of_broker(at: Target) -> list[QueueReset]:
            done = await some_at_once(queues[at], functools.partial(one, at))
            return [reset for reset in done if reset is not None]

        queues = await self._queues_by_master(topic)
        answers = await self._write(
            f"copying offsets of {source} to {target}", list(queues), of_broker)
        return tuple(reset for _, done in answers for reset in done)

    @limited
    async def correction_offsets(
        self, topic: str, compare_group: str, filter_groups: Sequence[str] = (), *, broker: str,
    ) -> dict[int, int]:
        """The smallest committed offset of each queue id of a topic over all groups of one broker
        (308).

        compare_group   goes with the request; brokers compare with no group (remoting.md 10)
        filter_groups   a stock broker deletes what these committed (remoting.md 10)
        """
        ext: Ext = {
            "topic": check_topic(topic),
            "compareGroup": check_group(compare_group, "compare_group"),
            "filterGroups": ",".join(arguments.names(filter_groups, "filter_groups")),
        }
        target = await self._address(broker)
        answer = await self._ask(target.address, RequestCode.QUERY_CORRECTION_OFFSET, ext)
        return document(answer, target.address).by_number("correctionOffsets")

    @limited
    async def client_offsets(
        self, group: str, topic: str, client_id: str | None = None
    ) -> Found[ClientOffsets]:
        """How far members of a group say that they are with a topic's queues (223).

        client_id   this member; None: all
        Raises BrokerError when no member is online.
        """
        check_group(group)
        if client_id is not None:
            arguments.text(client_id, "client_id")

        async def one(target: Target) -> list[ClientOffsets]:
            answer = await self._ask(
                target.address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                {"topic": topic, "group": group, "clientAddr": client_id}, slow=True)
            table = document(answer, target.address).object("consumerTable")
            return [ClientOffsets(str(member), table.offsets(member)) for member in table.members]

        targets = await self._readers(check_topic(topic))
        answers, failures = await self._read(f"offsets of members of {group}", targets, one)
        by_client = {member.client_id: member for _, found in answers for member in found}
        return Found(tuple(by_client[name] for name in sorted(by_client)), failures)

    # -- resetting --------------------------------------------------------------------------------

    @limited
    async def reset_offsets(
        self, group: str, topic: str, *, to: ResetTo, force: bool = True, dry_run: bool = False,
    ) -> OffsetReset:
        """
        Let a group continue somewhere else in a topic (resetOffsetByTime, skipAccumulatedMessage).

        to        "earliest", "latest", a time ("1h ago", an aware datetime): the message that was
                  stored nearest to it; or an offset, cut to what each queue has
        force     False: only backwards, offsets never move forward
        dry_run   change nothing, say what would be

        Members that are online are told and change their offsets themselves; they cannot be told
        an offset, so that needs a group that is offline (ClientError). Raises ConfigError;
        NoRouteError; BrokerError, or AdminError: then some brokers have been reset, `done` names
        them.
        """
        check_group(group)
        check_topic(topic)
        arguments.flag(force, "force")
        arguments.flag(dry_run, "dry_run")
        aim = _aim(to)
        by_master = await self._queues_by_master(topic)
        what = f"resetting {group} on topic {topic}"

        async def planned(target: Target) -> tuple[list[QueueReset], bool]:
            online = await self._is_online(target, group)
            resets = await some_at_once(
                by_master[target],
                lambda queue: self._plan(target, group, queue, aim, force))
            return resets, online

        plans, failures = await self._read(what, list(by_master), planned)
        plan = dict(plans)
        online = any(is_online for _, is_online in plan.values())
        if dry_run:
            return OffsetReset(group, topic, _joined([resets for resets, _ in plan.values()]),
                               online, True, failures)
        if online and aim.offset is not None:
            raise ClientError(f"group {group} is online: its members cannot be told an offset;"
                              " stop them, or give a time", topic=topic)

        async def one(target: Target) -> list[QueueReset]:
            # one that failed before says how, the second time
            resets, is_online = plan.get(target) or await planned(target)
            moved = [reset for reset in resets if reset.before != reset.after]
            if is_online and not force and await self._moves_offsets_itself(target):
                for reset in moved:
                    await self._move_members(target, group, reset)
                return resets
            if aim.offset is None and (force or is_online):
                told = await self._tell_members(target, group, topic, aim, force)
                if told is not None:
                    before = {reset.queue: reset.before for reset in resets}
                    return [QueueReset(queue, before.get(queue), offset)
                            for queue, offset in told.items()]
            for reset in moved:
                await self._commit(target, group, reset.queue, reset.after)
            return resets

        done = await self._write(what, list(by_master), one)
        return OffsetReset(group, topic, _joined([resets for _, resets in done]), online, False)

    async def _plan(
        self, target: Target, group: str, queue: MessageQueue, aim: _Aim, force: bool
    ) -> QueueReset:
        before = await self._committed(target, group, queue)
        after = await self._aimed(target, queue, aim)
        if not force and before is not None:
            after = min(after, before)
        return QueueReset(queue, before, after)

    async def _aimed(self, target: Target, queue: MessageQueue, aim: _Aim) -> int:
        if aim.offset is not None:
            first = await self._offset(target, queue, RequestCode.GET_MIN_OFFSET)
            end = await self._offset(target, queue, RequestCode.GET_MAX_OFFSET)
            return min(max(aim.offset, first), end)
        if aim.timestamp_ms is None:
            return await self._offset(target, queue, RequestCode.GET_MAX_OFFSET)
        if aim.timestamp_ms == 0:
            return await self._offset(target, queue, RequestCode.GET_MIN_OFFSET)
        return await self._offset(
            target, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, aim.timestamp_ms)

    async def _tell_members(
        self, target: Target, group: str, topic: str, aim: _Aim, force: bool
    ) -> dict[MessageQueue, int] | None:
        """Let the broker tell the group's members (222); None: it has none."""
        timestamp = -1 if aim.timestamp_ms is None else aim.timestamp_ms
        answer = await self._ask(target.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {
            "topic": topic, "group": group, "timestamp": str(timestamp),
            "isForce": "true" if force else "false",
        }, accept=(ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE,
                   ResponseCode.SYSTEM_ERROR), slow=True, topic=topic)
        if answer.code == ResponseCode.SYSTEM_ERROR:
            # A queue without a committed offset comes before "not online" there: ask if it is.
            if await self._is_online(target, group):
                raise broker_error(answer.code, answer.remark, target.address, topic=topic)
            return None
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        return dict(document(answer, target.address).offsets("offsetTable"))

    async def _moves_offsets_itself(self, target: Target) -> bool:
        """Whether it moves offsets on 222 (RocketMQ 5), forward as well: it ignores `isForce`."""
        answer = await self._ask(target.address, RequestCode.GET_BROKER_CONFIG)
        return settings_of(answer.body).get("useServerSideResetOffset") == "true"

    async def _move_members(self, target: Target, group: str, reset: QueueReset) -> None:
        """Let such a broker move one queue; members learn it with their next pull."""
        await self._ask(target.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {
            "topic": reset.queue.topic, "group": group, "timestamp": "0", "isForce": "false",
            "queueId": str(reset.queue.queue_id), "offset": str(reset.after)})

    async def _is_online(self, target: Target, group: str) -> bool:
        answer = await self._ask(
            target.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group},
            accept=(*SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE))
        return answer.code in SUCCESS

    # -- inside -----------------------------------------------------------------------------------

    async def _queues_by_master(self, topic: str) -> dict[Target, list[MessageQueue]]:
        """The readable queues of a topic by the master that keeps their offsets."""
        route = await self._known_route(topic)
        masters = {data.broker_name: Target(data.broker_name, data.addresses[MASTER_ID])
                   for data in route.brokers if MASTER_ID in data.addresses}
        found: dict[Target, list[MessageQueue]] = {}
        for queue in subscribe_queues(topic, route):
            if queue.broker_name not in masters:
                raise ClientError(f"broker {queue.broker_name} of topic {topic} has no master now",
                                  topic=topic)
            found.setdefault(masters[queue.broker_name], []).append(queue)
        return found


def _joined(parts: Iterable[Sequence[QueueReset]]) -> tuple[QueueReset, ...]:
    return tuple(sorted((reset for part in parts for reset in part),
                        key=lambda reset: reset.queue))


def _aim(to: ResetTo) -> _Aim:
    if isinstance(to, int):
        return _Aim(offset=arguments.number(to, "to"))
    if to == EARLIEST:
        return _Aim(timestamp_ms=0)
    if to == LATEST:
        return _Aim()
    return _Aim(timestamp_ms=arguments.moment_ms(to, "to", now()))
