"""Connected clients: members of groups, producers, what a member says of itself (client.md 6.2)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from msgspec import Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import Fields, document
from mqcore.client.admin.link import SUCCESS, Found, Link, Target, Unreachable, limited
from mqcore.client.admin.offsets import Offsets
from mqcore.client.core.allocate import allocate_averagely
from mqcore.client.core.options import check_group, check_topic
from mqcore.client.errors import ConfigError, NoRouteError
from mqcore.client.message import MessageQueue
from mqcore.client.network.route import subscribe_queues
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.tags import Subscription


class ClientConnection(Struct, frozen=True, order=True):
    """A connected client; `version` is the protocol's number (409 = 4.9.8)."""

    client_id: str
    address: str
    language: str
    version: int


class GroupMembers(Struct, frozen=True):
    """
    The members of a consumer group that are connected; none, and no words, when it is offline.

    consume_type    CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull)
    message_model   CLUSTERING or BROADCASTING
    """

    group: str
    members: tuple[ClientConnection, ...]
    subscriptions: tuple[Subscription, ...]
    consume_type: str
    message_model: str
    consume_from: str
    unreachable: tuple[Unreachable, ...] = ()


class ProducerConnection(Struct, frozen=True):
    """A connected producer of a group, and the time of its last heartbeat."""

    group: str
    client: ClientConnection
    last_heard: datetime | None


class ProcessQueueInfo(Struct, frozen=True):
    """One queue of a member: messages in its memory, offsets, times (307)."""

    queue: MessageQueue
    commit_offset: int
    cached_count: int
    cached_min_offset: int
    cached_max_offset: int
    cached_mib: int
    locked: bool
    dropped: bool
    last_pull: datetime | None
    last_consume: datetime | None
    last_lock: datetime | None
    transaction_count: int
    try_unlock_times: int


class TopicConsumption(Struct, frozen=True):
    """A member's rates for one topic: milliseconds and messages a second."""

    topic: str
    pull_rt: float
    pull_tps: float
    consume_rt: float
    consume_ok_tps: float
    consume_failed_tps: float
    consume_failed_count: int


class RunningInfo(Struct, frozen=True):
    """A member's report on itself; `properties` are its settings, `stack` if it was asked for."""

    client_id: str
    properties: Mapping[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: tuple[ProcessQueueInfo, ...]
    topics: tuple[TopicConsumption, ...]
    stack: str | None


class GroupStatus(Struct, frozen=True):
    """
    The members of a group side by side (consumerStatus).

    problems      sentences: other subscriptions than the others', queues with no member or two,
                  members that do not answer; empty when all is well
    unreachable   members that did not answer (address: the broker's that asked them)
    """

    group: str
    members: tuple[RunningInfo, ...]
    problems: tuple[str, ...]
    unreachable: tuple[Unreachable, ...] = ()

    def owner(self, queue: MessageQueue) -> str | None:
        """The client id of the member that consumes a queue; None: no member does."""
        return next((member.client_id for member in self.members for held in member.queues
                     if held.queue == queue and not held.dropped), None)


class Connections(Offsets, Link):
    """What AsyncAdmin does with connected clients."""

    @limited
    async def members(self, group: str, *, broker: str | None = None) -> GroupMembers:
        """
        The members of a consumer group and what they subscribe to (203).

        broker   ask only this one, `host:port` or a name; else all that may know the group
        A group without members gives none. Raises BrokerError, AdminError when no broker answers.
        """
        check_group(group)
        targets = ([await self._address(broker)] if broker is not None
                   else await self._group_readers(group))

        async def one(target: Target) -> Fields | None:
            answer = await self._ask(
                target.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group},
                accept=(*SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE))
            return document(answer, target.address) if answer.code in SUCCESS else None

        answers, failures = await self._read(f"members of group {group}", targets, one)
        members: dict[str, ClientConnection] = {}
        subscriptions: dict[str, Subscription] = {}
        words = ("", "", "")
        for _, body in answers:
            if body is None:
                continue
            words = (body.text("consumeType"), body.text("messageModel"),
                     body.text("consumeFromWhere"))
            for fields in body.objects("connectionSet"):
                client = _client(fields, fields.text("clientAddr"))
                members.setdefault(client.client_id, client)
            table = body.object("subscriptionTable")
            for name in table.members:
                subscription = read_subscription(table.object(name))
                subscriptions.setdefault(subscription.topic, subscription)
        return GroupMembers(
            group, tuple(sorted(members.values())),
            tuple(subscriptions[name] for name in sorted(subscriptions)), *words, failures)

    @limited
    async def producers(self, group: str, topic: str) -> Found[ClientConnection]:
        """
        The connected producers of a group, at the brokers of a topic (204).

        Raises NoRouteError; BrokerError when no broker knows the group.
        """
        check_group(group)

        async def one(target: Target) -> list[ClientConnection]:
            answer = await self._ask(target.address, RequestCode.GET_PRODUCER_CONNECTION_LIST,
                                     {"producerGroup": group})
            return [_client(fields, fields.text("clientAddr"))
                    for fields in document(answer, target.address).objects("connectionSet")]

        targets = await self._readers(check_topic(topic))
        answers, failures = await self._read(f"producers of group {group}", targets, one)
        by_id = {client.client_id: client for _, clients in answers for client in clients}
        return Found(tuple(sorted(by_id.values())), failures)

    @limited
    async def all_producers(self, broker: str) -> tuple[ProducerConnection, ...]:
        """All producers that are connected to one broker, `host:port` or a name (328)."""
        target = await self._address(broker)
        answer = await self._ask(target.address, RequestCode.GET_ALL_PRODUCER_INFO)
        table = document(answer, target.address).object("data")
        found = [ProducerConnection(str(group), _client(fields, fields.text("remoteIP")),
                                    fields.time("lastUpdateTimestamp"))
                 for group in table.members for fields in table.objects(group)]
        return tuple(sorted(found, key=lambda producer: (producer.group, producer.client)))

    @limited
    async def running_info(
        self, group: str, client_id: str, *, stack: bool = False, broker: str | None = None,
    ) -> RunningInfo:
        """A member's report on itself: settings, subscriptions, queues, rates (307).

        group, client_id   the member
        stack              also the stacks of its threads
        broker             ask through this one, `host:port` or a name
        Raises BrokerError: 1 it is not connected there, 207 it does not answer.
        """
        check_group(group)
        arguments.text(client_id, "client_id")
        arguments.flag(stack, "stack")
        target = (await self._address(broker) if broker is not None
                  else (await self._group_readers(group))[0])
        return await self._running_info(target, group, client_id, stack)

    async def _running_info(
        self, target: Target, group: str, client_id: str, stack: bool
    ) -> RunningInfo:
        answer = await self._ask(target.address, RequestCode.GET_CONSUMER_RUNNING_INFO, {
            "consumerGroup": group, "clientId": client_id,
            "jstackEnable": "true" if stack else "false"}, slow=True)
        return _running_info(client_id, document(answer, target.address))

    @limited
    async def group_status(self, group: str) -> GroupStatus:
        """
        Ask all members of a group what they do, and compare (consumerStatus).

        Raises BrokerError, AdminError when no broker answers.
        """
        connected = await self.members(group)
        target = (await self._group_readers(group))[0]
        places = [Target(member.client_id, target.address) for member in connected.members]
        answers, failures = await self._each(
            places, lambda place: self._running_info(target, group, place.name, False))
        members = tuple(info for _, info in answers)
        problems = [f"{failure.name} does not answer: {failure.error}" for failure in failures]
        problems += _other_subscriptions(members)
        if connected.message_model == "CLUSTERING" and not failures:
            for subscription in connected.subscriptions:
                route = await self._route(subscription.topic)
                queues = [] if route is None else subscribe_queues(subscription.topic, route)
                problems += _owners(queues, members)
        return GroupStatus(group, members, tuple(problems), failures)

    @limited
    async def plan(
        self, topic: str, members: Sequence[str]
    ) -> tuple[tuple[str, tuple[MessageQueue, ...]], ...]:
        """Which queues of a topic these members (client ids) would get, averagely (allocateMQ)."""
        ids = arguments.names(members, "members")
        if not ids or len(set(ids)) != len(ids):
            raise ConfigError(f"members {members!r:.120}: expected different client ids")
        queues = subscribe_queues(topic, await self._known_route(check_topic(topic)))
        if not queues:
            raise NoRouteError(f"topic {topic} has no readable queue", topic=topic)
        return tuple((name, tuple(allocate_averagely(name, queues, ids))) for name in ids)


def read_subscription(fields: Fields) -> Subscription:
    """A SubscriptionData (remoting.md 5.4)."""
    return Subscription(
        fields.text("topic"), fields.text("subString", "*"), frozenset(fields.texts("tagsSet")),
        frozenset(code for code in fields.items("codeSet") if isinstance(code, int)),
        fields.number("subVersion"), fields.text("expressionType", "TAG"))


def _client(fields: Fields, address: str) -> ClientConnection:
    return ClientConnection(fields.text("clientId"), address.removeprefix("/"),
                            fields.text("language"), fields.number("version"))


def _running_info(client_id: str, body: Fields) -> RunningInfo:
    statuses = body.object("statusTable")
    return RunningInfo(
        client_id, MappingProxyType(body.table("properties")),
        tuple(sorted((read_subscription(fields) for fields in body.objects("subscriptionSet")),
                     key=lambda subscription: subscription.topic)),
        tuple(_process_queue(queue, Fields(value, "mqTable"))
              for queue, value in body.by_queue("mqTable")),
        tuple(_consumption(str(topic), statuses.object(topic))
              for topic in sorted(statuses.members, key=str)),
        body.text("jstack") or None)


def _process_queue(queue: MessageQueue, fields: Fields) -> ProcessQueueInfo:
    return ProcessQueueInfo(
        queue, fields.number("commitOffset"), fields.number("cachedMsgCount"),
        fields.number("cachedMsgMinOffset"), fields.number("cachedMsgMaxOffset"),
        fields.number("cachedMsgSizeInMiB"), fields.flag("locked"), fields.flag("droped"),
        fields.time("lastPullTimestamp"), fields.time("lastConsumeTimestamp"),
        fields.time("lastLockTimestamp"), fields.number("transactionMsgCount"),
        fields.number("tryUnlockTimes"))


def _consumption(topic: str, fields: Fields) -> TopicConsumption:
    return TopicConsumption(
        topic, fields.decimal("pullRT"), fields.decimal("pullTPS"), fields.decimal("consumeRT"),
        fields.decimal("consumeOKTPS"), fields.decimal("consumeFailedTPS"),
        fields.number("consumeFailedMsgs"))


def _other_subscriptions(members: Sequence[RunningInfo]) -> list[str]:
    """A sentence for each member whose subscriptions are not those of the first."""
    shown = [tuple((each.topic, each.expression, each.expression_type)
                   for each in member.subscriptions) for member in members]
    return [f"{member.client_id} subscribes to other things than {members[0].client_id}"
            for member, theirs in zip(members, shown, strict=True) if theirs != shown[0]]


def _owners(queues: Sequence[MessageQueue], members: Sequence[RunningInfo]) -> list[str]:
    """A sentence for each queue without an owner, or with several."""
    found = []
    for queue in queues:
        owners = [member.client_id for member in members for held in member.queues
                  if held.queue == queue and not held.dropped]
        where = f"queue {queue.queue_id} of topic {queue.topic} at {queue.broker_name}"
        if not owners:
            found.append(f"no member has {where}")
        elif len(owners) > 1:
            found.append(f"{' and '.join(owners)} both have {where}")
    return found
