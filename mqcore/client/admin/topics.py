"""Topics: names, routes, settings, positions, order of their brokers (client.md 6.2)."""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import Fields, document
from mqcore.client.admin.link import Found, Link, Target, Unreachable, limited
from mqcore.client.core.options import check_topic
from mqcore.client.errors import ConfigError, NoRouteError, RequestTimeout, broker_error
from mqcore.client.message import MessageQueue
from mqcore.wire.codes import (
    DLQ_PREFIX,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    QUEUE_COUNT_MAX,
    RETRY_PREFIX,
    TEMPLATE_TOPIC,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.topics import (
    KIND_ATTRIBUTE,
    MESSAGE_TYPES,
    MULTI_TAG,
    SINGLE_TAG,
    SYS_FLAG_UNIT,
    SYS_FLAG_UNIT_SUB,
    TopicConfig,
    TopicRoute,
)

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
ROUTE_LOOK_S: Final = 0.02
UNIT_CODES: Final = {
    "unit": RequestCode.GET_UNIT_TOPIC_LIST,
    "unit-sub": RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    "unit-sub-only": RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
}


class QueuePositions(Struct, frozen=True):
    """Where a queue begins and ends; `last_update` is None for one that is empty."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update: datetime | None


class TopicStats(Struct, frozen=True):
    """The queues of a topic on all brokers that answered."""

    topic: str
    queues: tuple[QueuePositions, ...]
    unreachable: tuple[Unreachable, ...] = ()

    @property
    def message_count(self) -> int:
        """How many messages the queues hold."""
        return sum(queue.max_offset - queue.min_offset for queue in self.queues)


class Topics(Link):
    """What AsyncAdmin does with topics."""

    @limited
    async def topics(
        self, cluster: str | None = None, *, user_only: bool = False
    ) -> tuple[str, ...]:
        """
        The names of all topics, or those of one cluster; sorted.

        user_only   leave out the brokers' own topics, and those of retries and dead letters
        """
        arguments.flag(user_only, "user_only")
        if cluster is None:
            answer = await self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            answer = await self._ask_name_server(
                RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": arguments.text(cluster, "cluster")})
        names = set(document(answer, "name server").texts("topicList"))
        if user_only:
            names -= set(await self.system_topics())
            names = {name for name in names if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))}
        return tuple(sorted(names))

    @limited
    async def system_topics(self) -> tuple[str, ...]:
        """The topics that brokers made for themselves, and the names of clusters and brokers."""
        answer = document(
            await self._ask_name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS), "name server")
        names = set(answer.texts("topicList"))
        broker = answer.text("brokerAddr")
        if broker:
            of_broker = await self._ask(broker, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            names.update(document(of_broker, broker).texts("topicList"))
        return tuple(sorted(names))

    @limited
    async def unit_topics(self, kind: str = "unit") -> tuple[str, ...]:
        """Topics by the bits of units: kind "unit", "unit-sub" or "unit-sub-only" (311 to 313)."""
        arguments.one_of(kind, "kind", tuple(UNIT_CODES))
        answer = await self._ask_name_server(UNIT_CODES[kind])
        return tuple(sorted(document(answer, "name server").texts("topicList")))

    @limited
    async def topic_route(self, topic: str) -> TopicRoute:
        """Where a topic is: its queues by broker, and the brokers' addresses. NoRouteError."""
        return await self._known_route(check_topic(topic))

    @limited
    async def topic_clusters(self, topic: str) -> tuple[str, ...]:
        """The clusters that have a topic. Raises NoRouteError."""
        route = await self._known_route(check_topic(topic))
        return tuple(sorted({broker.cluster for broker in route.brokers}))

    @limited
    async def topic_groups(self, topic: str) -> Found[str]:
        """The groups that consume a topic now, or have offsets in it; sorted."""
        async def one(target: Target) -> tuple[str, ...]:
            answer = await self._ask(
                target.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
            return document(answer, target.address).texts("groupList")

        targets = await self._readers(check_topic(topic))
        answers, failures = await self._read(f"groups of topic {topic}", targets, one)
        return Found(tuple(sorted({name for _, names in answers for name in names})), failures)

    @limited
    async def topic_stats(self, topic: str) -> TopicStats:
        """First and next offset of each queue of `topic`, and when it got its newest message
        (202).
        """
        async def one(target: Target) -> list[QueuePositions]:
            answer = await self._ask(target.address, RequestCode.GET_TOPIC_STATS_INFO,
                                     {"topic": topic}, slow=True, topic=topic)
            table = document(answer, target.address)
            found = []
            for queue, value in table.by_queue("offsetTable"):
                fields = Fields(value, f"{table.where}.offsetTable")
                found.append(QueuePositions(queue, fields.number("minOffset"),
                                            fields.number("maxOffset"),
                                            fields.time("lastUpdateTimestamp")))
            return found

        targets = await self._readers(check_topic(topic))
        answers, failures = await self._read(f"positions of topic {topic}", targets, one)
        queues = sorted((queue for _, found in answers for queue in found),
                        key=lambda positions: positions.queue)
        return TopicStats(topic, tuple(queues), failures)

    @limited
    async def topic_configs(self, broker: str) -> tuple[TopicConfig, ...]:
        """All topics of one broker (`host:port`, or a name), the brokers' own ones included."""
        return await self._topic_configs(await self._address(broker))

    async def _topic_configs(self, target: Target) -> tuple[TopicConfig, ...]:
        answer = await self._ask(target.address, RequestCode.GET_ALL_TOPIC_CONFIG, slow=True)
        table = document(answer, target.address).object("topicConfigTable").members
        return tuple(sorted((_topic_config(str(name), value) for name, value in table.items()),
                            key=lambda topic: topic.name))

    # -- changes ----------------------------------------------------------------------------------

    @limited
    async def create_topic(
        self, topic: str, *, queues: int = 8, read_queues: int | None = None,
        write_queues: int | None = None, perm: int = PERM_READ | PERM_WRITE, order: bool = False,
        unit: bool = False, has_unit_sub: bool = False, multi_tag: bool = False,
        message_type: str | None = None, broker: str | None = None, cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Make a topic, or replace its settings; returns when name servers know it.

        queues             of each broker; read_queues and write_queues are `queues` if not given
        perm               4 readable, 2 writable, 1 inherited
        order              also tell name servers that its queues are ordered (set_order)
        unit, has_unit_sub, multi_tag   marks that brokers keep and name servers tell
        message_type       the only kind that RocketMQ 5's clients (gRPC) may send: NORMAL, FIFO,
                           DELAY or TRANSACTION; MIXED: all; a broker of 4.x does not hear it
        broker, cluster    where: one broker (`host:port` or a name), the masters of a cluster, or
                           (neither) all masters
        Returns the names of the brokers. Raises ConfigError; BrokerError, or AdminError with who
        failed and who did it; RequestTimeout when it is made and no name server shows it.
        """
        check_topic(topic)
        arguments.number(queues, "queues", 1, QUEUE_COUNT_MAX)
        _check_counts(read_queues, write_queues, perm)
        for parameter, value in (("order", order), ("unit", unit), ("has_unit_sub", has_unit_sub),
                                 ("multi_tag", multi_tag)):
            arguments.flag(value, parameter)
        if message_type is not None and message_type not in MESSAGE_TYPES:
            raise ConfigError(f"message_type is {message_type!r:.40}: expected one of "
                              f"{', '.join(MESSAGE_TYPES)}")
        config = TopicConfig(
            topic, queues if read_queues is None else read_queues,
            queues if write_queues is None else write_queues, perm,
            MULTI_TAG if multi_tag else SINGLE_TAG,
            SYS_FLAG_UNIT * unit | SYS_FLAG_UNIT_SUB * has_unit_sub, order)
        targets = await self._masters(broker, cluster)
        await self._write(f"creating topic {topic}", targets,
                          lambda target: self._put_topic(target, config, message_type))
        names = await self._wait_for_route(config, targets)
        if order:
            await self._add_order(topic, dict.fromkeys(names, config.write_queue_count))
        return tuple(names)

    @limited
    async def update_topic(
        self, topic: str, *, read_queues: int | None = None, write_queues: int | None = None,
        perm: int | None = None, broker: str | None = None, cluster: str | None = None,
    ) -> tuple[TopicConfig, ...]:
        """Change what is given of a topic that exists; all else stays as each broker has it.

        The parameters are those of `create_topic`. Returns the new settings, a broker each. Raises
        like it; BrokerError with code 17 of a named broker without that topic (others without it
        are passed over).
        """
        check_topic(topic)
        _check_counts(read_queues, write_queues, perm)

        async def one(target: Target) -> TopicConfig | None:
            known = {config.name: config for config in await self._topic_configs(target)}
            if topic not in known:
                if broker is None:
                    return None
                raise broker_error(ResponseCode.TOPIC_NOT_EXIST, "the broker has no such topic",
                                   target.address, topic=topic)
            old = known[topic]
            changed = replace(
                old,
                read_queue_count=old.read_queue_count if read_queues is None else read_queues,
                write_queue_count=old.write_queue_count if write_queues is None else write_queues,
                perm=old.perm if perm is None else perm)
            await self._put_topic(target, changed)
            return changed

        answers = await self._write(
            f"changing topic {topic}", await self._masters(broker, cluster), one)
        changed = [(target, config) for target, config in answers if config is not None]
        if not changed:
            raise NoRouteError(f"no broker has topic {topic}", int(ResponseCode.TOPIC_NOT_EXIST),
                               topic=topic)
        await self._wait_for_route(changed[0][1], [target for target, _ in changed])
        return tuple(config for _, config in changed)

    @limited
    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> tuple[str, ...]:
        """
        Delete a topic with its messages from all masters (of a cluster), then from name servers.

        Returns the names of the brokers; raises BrokerError (the brokers' own topics), AdminError.
        """
        check_topic(topic)
        targets = await self._masters(None, cluster)
        await self._delete_topic(topic, targets, cluster)
        return tuple(target.name for target in targets)

    async def _delete_topic(
        self, topic: str, targets: list[Target], cluster: str | None
    ) -> None:
        await self._write(f"deleting topic {topic}", targets, lambda target: self._ask(
            target.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}, topic=topic))
        await self._write(
            f"deleting topic {topic}", self._all_name_servers(), lambda target: self._ask(
                target.address, RequestCode.DELETE_TOPIC_IN_NAMESRV,
                {"topic": topic, "clusterName": cluster}, topic=topic))

    async def _put_topic(
        self, target: Target, config: TopicConfig, message_type: str | None = None
    ) -> None:
        await self._ask(target.address, RequestCode.UPDATE_AND_CREATE_TOPIC, {
            "topic": config.name, "defaultTopic": TEMPLATE_TOPIC,
            "readQueueNums": str(config.read_queue_count),
            "writeQueueNums": str(config.write_queue_count), "perm": str(config.perm),
            "topicFilterType": config.filter_type, "topicSysFlag": str(config.sys_flag),
            "order": "true" if config.order else "false",
            "attributes": f"+{KIND_ATTRIBUTE}={message_type}" if message_type else None,
        }, topic=config.name)

    async def _wait_for_route(self, config: TopicConfig, targets: list[Target]) -> list[str]:
        """
        Until the route shows the topic's counts on those brokers, whose names it returns.

        A target may be a bare address; its name is then the one that the route has for it.
        """
        addresses = {target.address for target in targets}
        if not self._instance.name_servers.addresses:
            return sorted(target.name for target in targets)
        deadline = asyncio.get_running_loop().time() + self.timeout
        while True:
            route = await self._route(config.name)
            if route is not None:
                at = [data.broker_name for data in route.brokers
                      if addresses & set(data.addresses.values())]
                shown = {queue.broker_name for queue in route.queues
                         if queue.read_queue_count == config.read_queue_count
                         and queue.write_queue_count == config.write_queue_count}
                if len(at) == len(addresses) and shown.issuperset(at):
                    return sorted(at)
            if asyncio.get_running_loop().time() > deadline:
                raise RequestTimeout(
                    f"topic {config.name} is made at {', '.join(map(str, targets))}, but no name"
                    f" server shows it within {self.timeout} s", topic=config.name)
            await asyncio.sleep(ROUTE_LOOK_S)

    # -- order configuration ----------------------------------------------------------------------

    @limited
    async def order(self, topic: str) -> str | None:
        """The order configuration of a topic, `broker:queues;broker:queues`; None: it has none."""
        return await self._order(check_topic(topic))

    async def _order(self, topic: str) -> str | None:
        answer = await self._ask_name_server(
            RequestCode.GET_KV_CONFIG, {"namespace": ORDER_NAMESPACE, "key": topic},
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND))
        return (answer.ext or {}).get("value") if answer.code == ResponseCode.SUCCESS else None

    @limited
    async def set_order(self, topic: str, value: str) -> None:
        """Set the order configuration of a topic at each name server.

        value   `broker:queues;...`
        """
        check_topic(topic)
        for part in arguments.text(value, "value").split(";"):
            name, found, count = part.rpartition(":")
            if not (found and name and count.isascii() and count.isdigit()):
                arguments.one_of(value, "value", ("broker:queues;broker:queues",))
        await self._put_order(topic, value)

    @limited
    async def delete_order(self, topic: str) -> None:
        """Delete the order configuration of a topic at each name server."""
        check_topic(topic)
        await self._to_name_servers(
            f"deleting the order of topic {topic}",
            lambda target: self._ask(target.address, RequestCode.DELETE_KV_CONFIG,
                                     {"namespace": ORDER_NAMESPACE, "key": topic}))

    async def _put_order(self, topic: str, value: str) -> None:
        await self._to_name_servers(
            f"setting the order of topic {topic}",
            lambda target: self._ask(
                target.address, RequestCode.PUT_KV_CONFIG,
                {"namespace": ORDER_NAMESPACE, "key": topic, "value": value}))

    async def _add_order(self, topic: str, counts: dict[str, int]) -> None:
        """Put brokers into the order configuration; those of others stay."""
        known = {}
        for part in filter(None, (await self._order(topic) or "").split(";")):
            name, _, count = part.rpartition(":")
            known[name] = count
        known.update((name, str(count)) for name, count in counts.items())
        await self._put_order(topic, ";".join(f"{name}:{count}" for name, count in known.items()))

    async def _to_name_servers(
        self, what: str, work: Callable[[Target], Awaitable[object]]
    ) -> None:
        await self._write(what, self._all_name_servers(), work)


def _check_counts(read_queues: int | None, write_queues: int | None, perm: int | None) -> None:
    if read_queues is not None:
        arguments.number(read_queues, "read_queues", 0, QUEUE_COUNT_MAX)
    if write_queues is not None:
        arguments.number(write_queues, "write_queues", 0, QUEUE_COUNT_MAX)
    if perm is not None:
        arguments.number(perm, "perm", 0, PERM_READ | PERM_WRITE | PERM_INHERIT)


def _topic_config(name: str, value: object) -> TopicConfig:
    """With its attributes, which say its kind."""
    config = TopicConfig.from_json(name, value)
    attributes = value.get("attributes") if isinstance(value, dict) else None
    return replace(config, more={"attributes": attributes}) if attributes else config
