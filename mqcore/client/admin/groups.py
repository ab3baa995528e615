"""Consumer groups: settings, how far they are, what they lag behind (client.md 6.2)."""
from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import Fields, document
from mqcore.client.admin.link import (
    Found,
    Link,
    Target,
    Unreachable,
    limited,
    some_at_once,
)
from mqcore.client.admin.topics import Topics
from mqcore.client.core.options import check_consumer_group, check_group, check_topic
from mqcore.client.errors import RocketMQError, broker_error
from mqcore.client.message import MessageQueue
from mqcore.wire import fastjson
from mqcore.wire.codes import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    RequestCode,
    ResponseCode,
)

# Groups of tools and brokers (remoting.md 6.8), as mqadmin hides them.
SYSTEM_GROUPS = frozenset({
    "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER",
    "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
    "CID_SYS_RMQ_TRANS",
})


class GroupConfig(Struct, frozen=True):
    """The settings of a consumer group on a broker (SubscriptionGroupConfig, broker.md 9.5)."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_count: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = None      # None: the broker is of 4.x, or has no word

    def encode(self) -> bytes:
        """The body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        orderly = {} if self.consume_message_orderly is None else {
            "consumeMessageOrderly": self.consume_message_orderly}
        return fastjson.dumps(orderly | {
            "brokerId": self.broker_id, "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable, "groupName": self.name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times, "retryQueueNums": self.retry_queue_count,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        })


class GroupOnBroker(Struct, frozen=True):
    """The settings of a group, and the broker that has them."""

    broker_name: str
    address: str
    config: GroupConfig


class QueueLag(Struct, frozen=True):
    """
    How far a group is with one queue.

    broker_offset     the offset that the next message of the queue gets
    consumer_offset   the committed offset: the next one to consume
    last_consumed     when the message before that was stored; None: nothing consumed, or expired
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_consumed: datetime | None

    @property
    def lag(self) -> int:
        """How many messages are not consumed yet."""
        return self.broker_offset - self.consumer_offset


class GroupLag(Struct, frozen=True):
    """How far a group is with all its queues; `tps` is messages a second, of the last minute."""

    group: str
    queues: tuple[QueueLag, ...]
    tps: float
    unreachable: tuple[Unreachable, ...] = ()

    @property
    def total(self) -> int:
        """How many messages are not consumed yet, retries included."""
        return sum(queue.lag for queue in self.queues)


class QueueTimeSpan(Struct, frozen=True):
    """
    The times of a queue, and where a group is between them; None: no such message.

    first, last   when its first and its newest message were stored
    consumed      when the last one that the group consumed was stored
    behind        seconds since the next one to consume was stored, 0 if there is none
    """

    queue: MessageQueue
    first: datetime | None
    last: datetime | None
    consumed: datetime | None
    behind: float


class Groups(Topics, Link):
    """What AsyncAdmin does with consumer groups."""

    @limited
    async def groups(self, *, user_only: bool = True) -> Found[str]:
        """
        The names of all groups that masters have settings of; sorted.

        user_only   leave out the groups of tools and brokers
        """
        arguments.flag(user_only, "user_only")
        answers, failures = await self._read(
            "groups", await self._masters(None, None), self._group_configs)
        names = {config.name for _, configs in answers for config in configs}
        if user_only:
            names = {name for name in names if not is_system_group(name)}
        return Found(tuple(sorted(names)), failures)

    @limited
    async def group_configs(self, broker: str) -> tuple[GroupConfig, ...]:
        """The settings of all groups of one broker (`host:port`, or a name)."""
        return await self._group_configs(await self._address(broker))

    @limited
    async def group_config(self, group: str) -> Found[GroupOnBroker]:
        """The settings of one group on each master that has it; nothing found: empty."""
        check_group(group)
        answers, failures = await self._read(
            f"settings of group {group}", await self._masters(None, None), self._group_configs)
        return Found(tuple(
            GroupOnBroker(target.name, target.address, config)
            for target, configs in answers for config in configs if config.name == group), failures)

    async def _group_configs(self, target: Target) -> tuple[GroupConfig, ...]:
        answer = await self._ask(
            target.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, slow=True)
        table = document(answer, target.address).object("subscriptionGroupTable")
        configs = (_group_config(str(name), table.object(name)) for name in table.members)
        return tuple(sorted(configs, key=lambda config: config.name))

    @limited
    async def create_group(
        self, group: str, *, consume_enable: bool = True, consume_from_min_enable: bool = True,
        consume_broadcast_enable: bool = True, retry_queue_count: int = 1,
        retry_max_times: int = 16, broker_id: int = 0, which_broker_when_consume_slowly: int = 1,
        notify_consumer_ids_changed_enable: bool = True,
        consume_message_orderly: bool | None = None, broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Make a group, or replace its settings (broker.md 9.5).

        consume_enable                       False: brokers refuse its pulls
        consume_from_min_enable              brokers keep it; nothing follows from it
        consume_broadcast_enable             False: brokers refuse its pulls of broadcasting members
        retry_queue_count                    queues of its retry topic, on each broker
        retry_max_times                      tries of a message before it goes to the dead letters
        broker_id                            where its members pull: 0 = the master
        which_broker_when_consume_slowly     where members pull that are far behind, a broker id
        notify_consumer_ids_changed_enable   members hear when others join or leave
        consume_message_orderly              a FIFO group of RocketMQ 5's clients (gRPC): it gets a
                                             queue's messages one after another; None: unchanged
        broker, cluster                      as of `create_topic`
        Returns the names of the brokers. Raises ConfigError, BrokerError, AdminError.
        """
        config = GroupConfig(
            check_consumer_group(check_group(group)), consume_enable, consume_from_min_enable,
            consume_broadcast_enable, retry_queue_count, retry_max_times, broker_id,
            which_broker_when_consume_slowly, notify_consumer_ids_changed_enable,
            consume_message_orderly)
        _check(config)
        targets = await self._masters(broker, cluster)
        await self._write(f"creating group {group}", targets, lambda target: self._ask(
            target.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=config.encode()))
        return tuple(target.name for target in targets)

    @limited
    async def update_group(
        self, group: str, *, consume_enable: bool | None = None,
        consume_from_min_enable: bool | None = None, consume_broadcast_enable: bool | None = None,
        retry_queue_count: int | None = None, retry_max_times: int | None = None,
        broker_id: int | None = None, which_broker_when_consume_slowly: int | None = None,
        notify_consumer_ids_changed_enable: bool | None = None,
        consume_message_orderly: bool | None = None, broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[GroupOnBroker, ...]:
        """Change what is given of a group that exists; all else stays as each broker has it.

        The parameters are those of `create_group`. Returns the new settings, a broker each. Raises
        ConfigError, BrokerError, AdminError; BrokerError with code 26 when no broker asked has the
        group.
        """
        check_group(group)
        given = {name: value for name, value in (
            ("consume_enable", consume_enable),
            ("consume_from_min_enable", consume_from_min_enable),
            ("consume_broadcast_enable", consume_broadcast_enable),
            ("retry_queue_count", retry_queue_count), ("retry_max_times", retry_max_times),
            ("broker_id", broker_id),
            ("which_broker_when_consume_slowly", which_broker_when_consume_slowly),
            ("notify_consumer_ids_changed_enable", notify_consumer_ids_changed_enable),
            ("consume_message_orderly", consume_message_orderly),
        ) if value is not None}
        _check(replace(GroupConfig(group), **given))

        async def one(target: Target) -> GroupConfig | None:
            for config in await self._group_configs(target):
                if config.name == group:
                    changed = replace(config, **given)
                    await self._ask(
                        target.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                        body=changed.encode())
                    return changed
            return None

        targets = await self._masters(broker, cluster)
        answers = await self._write(f"changing group {group}", targets, one)
        changed = tuple(GroupOnBroker(target.name, target.address, config)
                        for target, config in answers if config is not None)
        if not changed:
            raise broker_error(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                               f"no broker has group {group}", targets[0].address)
        return changed

    @limited
    async def delete_group(
        self, group: str, *, remove_offsets: bool = False, broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Delete a group's settings; without `broker` also its topics of retries and dead letters.

        remove_offsets    delete what it committed as well; without that, a new group of the same
                          name continues there
        broker, cluster   as of `create_topic`
        Returns the names of the brokers. Raises ConfigError, BrokerError, AdminError.
        """
        check_group(group)
        arguments.flag(remove_offsets, "remove_offsets")
        targets = await self._masters(broker, cluster)
        await self._write(f"deleting group {group}", targets, lambda target: self._ask(
            target.address, RequestCode.DELETE_SUBSCRIPTIONGROUP,
            {"groupName": group, "removeOffset": "true" if remove_offsets else "false"}))
        if broker is None:
            for prefix in (RETRY_PREFIX, DLQ_PREFIX):
                await self._delete_topic(prefix + group, targets, cluster)
        return tuple(target.name for target in targets)

    # -- how far they are -------------------------------------------------------------------------

    @limited
    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far a group is with each queue of its topics, or of one `topic` (208).

        A group that committed nothing has no queues here. Works for groups that were never
        online as well. Raises RemotingError, BrokerError when no broker answers, AdminError.
        """
        check_group(group)
        if topic is not None:
            check_topic(topic)
        return await self._lag(group, topic)

    async def _lag(self, group: str, topic: str | None) -> GroupLag:
        async def one(target: Target) -> tuple[list[QueueLag], float]:
            answer = await self._ask(target.address, RequestCode.GET_CONSUME_STATS,
                                     {"consumerGroup": group, "topic": topic or ""}, slow=True)
            return read_stats(document(answer, target.address))

        answers, failures = await self._read(
            f"lag of group {group}", await self._group_readers(group), one)
        queues = sorted((queue for _, (found, _) in answers for queue in found),
                        key=lambda lag: lag.queue)
        return GroupLag(group, tuple(queues), sum(tps for _, (_, tps) in answers), failures)

    @limited
    async def lags(self) -> Found[GroupLag]:
        """
        `lag` of every group that has a retry topic: all that were ever online (consumerProgress).

        A group without an answer is left out; brokers that failed are in `unreachable`.
        """
        topics = await self.topics()
        groups = [name.removeprefix(RETRY_PREFIX) for name in topics
                  if name.startswith(RETRY_PREFIX)]

        async def one(group: str) -> GroupLag | Unreachable:
            try:
                return await self._lag(group, None)
            except RocketMQError as error:
                return Unreachable(group, error.broker, error)

        answers = await some_at_once(groups, one)
        found = tuple(answer for answer in answers if isinstance(answer, GroupLag))
        return Found(found, tuple(answer for answer in answers if isinstance(answer, Unreachable))
                     + tuple(failure for lag in found for failure in lag.unreachable))

    @limited
    async def consume_time_spans(self, group: str, topic: str) -> Found[QueueTimeSpan]:
        """How far a group is with a topic, in times (303). Raises NoRouteError, BrokerError."""
        check_group(group)

        async def one(target: Target) -> list[QueueTimeSpan]:
            answer = await self._ask(target.address, RequestCode.QUERY_CONSUME_TIME_SPAN,
                                     {"topic": topic, "group": group}, slow=True, topic=topic)
            return [_time_span(fields) for fields in
                    document(answer, target.address).objects("consumeTimeSpanSet")]

        targets = await self._readers(check_topic(topic))
        answers, failures = await self._read(f"times of group {group}", targets, one)
        return Found(tuple(sorted((span for _, spans in answers for span in spans),
                                  key=lambda span: span.queue)), failures)


def is_system_group(group: str) -> bool:
    """Whether it belongs to tools or brokers."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def read_stats(stats: Fields) -> tuple[list[QueueLag], float]:
    """The queues of one ConsumeStats, and its messages a second."""
    found = []
    for queue, value in stats.by_queue("offsetTable"):
        fields = Fields(value, f"{stats.where}.offsetTable")
        found.append(QueueLag(queue, fields.number("brokerOffset"),
                              fields.number("consumerOffset"), fields.time("lastTimestamp")))
    return found, stats.decimal("consumeTps")


def _time_span(fields: Fields) -> QueueTimeSpan:
    last = fields.time("maxTimeStamp")
    behind = max(0, fields.number("delayTime")) / 1000
    return QueueTimeSpan(                   # a stock broker counts from 1970 for an empty queue
        fields.queue("messageQueue"), fields.time("minTimeStamp"), last,
        fields.time("consumeTimeStamp"), 0.0 if last is None else behind)


def _group_config(name: str, fields: Fields) -> GroupConfig:
    return GroupConfig(
        name, fields.flag("consumeEnable", True), fields.flag("consumeFromMinEnable", True),
        fields.flag("consumeBroadcastEnable", True), fields.number("retryQueueNums", 1),
        fields.number("retryMaxTimes", 16), fields.number("brokerId"),
        fields.number("whichBrokerWhenConsumeSlowly", 1),
        fields.flag("notifyConsumerIdsChangedEnable", True),
        fields.flag("consumeMessageOrderly") if "consumeMessageOrderly" in fields.members else None)


def _check(config: GroupConfig) -> None:
    for name in ("consume_enable", "consume_from_min_enable", "consume_broadcast_enable",
                 "notify_consumer_ids_changed_enable"):
        arguments.flag(getattr(config, name), name)
    if config.consume_message_orderly is not None:
        arguments.flag(config.consume_message_orderly, "consume_message_orderly")
    arguments.number(config.retry_queue_count, "retry_queue_count", 0, 1_024)
    arguments.number(config.retry_max_times, "retry_max_times", -1, arguments.I32_MAX)
    arguments.number(config.broker_id, "broker_id")
    arguments.number(config.which_broker_when_consume_slowly, "which_broker_when_consume_slowly")
