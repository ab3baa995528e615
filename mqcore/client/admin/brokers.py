"""Brokers and clusters: who there is, how they are, settings, cleaning (client.md 6.2)."""
from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.backlogs import quick_backlogs
from mqcore.client.admin.bodies import (
    document,
    properties_text,
    settings_of,
    when,
)
from mqcore.client.admin.groups import (
    GroupConfig,
    Groups,
    QueueLag,
    is_system_group,
    read_stats,
)
from mqcore.client.admin.link import SUCCESS, Found, Link, Target, limited
from mqcore.wire.codes import DLQ_PREFIX, MASTER_ID, RETRY_PREFIX, RequestCode, ResponseCode
from mqcore.wire.numbers import whole_number
from mqcore.wire.topics import BodyError, BrokerData, TopicConfig


class Cluster(Struct, frozen=True):
    """A cluster and its brokers, each with its addresses by broker id."""

    name: str
    brokers: tuple[BrokerData, ...]


Whole = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]


class ProcessStanding(Struct, frozen=True, rename="camel", kw_only=True):
    """One process of a broker of mqcore; trouble: why it does not do its work, None: it does."""

    name: str
    pid: Whole
    state: str
    starts: Whole
    beat_seconds: Seconds
    up_seconds: Whole | None = None
    cpu_seconds: Seconds
    resident_bytes: Whole
    trouble: str | None = None


class LatencyBucket(Struct, frozen=True, rename="camel", kw_only=True):
    """How many took from so long on, up to the next bucket."""

    from_seconds: Seconds
    count: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class LatencyStanding(Struct, frozen=True, rename="camel", kw_only=True):
    """A histogram since the start of a broker."""

    name: str
    help: str
    count: Whole
    mean_seconds: Seconds | None = None
    p50_seconds: Seconds | None = None
    p99_seconds: Seconds | None = None
    p999_seconds: Seconds | None = None
    buckets: Annotated[tuple[LatencyBucket, ...], Meta(max_length=10_000)]


class Standing(Struct, frozen=True):
    """The processes of a broker of mqcore, as it tells them (32005); log: positions by name."""

    processes: Annotated[tuple[ProcessStanding, ...], Meta(max_length=10_000)]
    log: dict[str, Whole]
    latencies: Annotated[tuple[LatencyStanding, ...], Meta(max_length=1_000)]


class BrokerStatus(Struct, frozen=True):
    """
    How a broker is (28).

    version                    as V4_9_8
    put_tps, get_tps           messages a second stored and handed out, of the last 10 s
    put_today, get_today       messages since midnight
    put_yesterday, ...         of the day before
    disk_ratio                 how full the commit log's disk is, 0 to 1; negative: unknown
    values                     all that the broker told, in its own words (remoting.md 5.5)
    """

    broker_name: str
    broker_id: int
    address: str
    version: str
    started: datetime | None
    put_tps: float
    get_tps: float
    put_today: int
    get_today: int
    put_yesterday: int
    get_yesterday: int
    earliest_message: datetime | None
    disk_ratio: float
    values: Mapping[str, str]


class GroupBacklog(Struct, frozen=True):
    """How far one group is with one topic at one broker (317)."""

    group: str
    queues: tuple[QueueLag, ...]

    @property
    def total(self) -> int:
        """How many messages are not consumed yet."""
        return sum(queue.lag for queue in self.queues)


class Metadata(Struct, frozen=True):
    """Topics and groups of users (exportMetadata); of several brokers the largest counts."""

    topics: tuple[TopicConfig, ...]
    groups: tuple[GroupConfig, ...]


class Brokers(Groups, Link):
    """What AsyncAdmin does with brokers."""

    @limited
    async def clusters(self) -> tuple[Cluster, ...]:
        """All clusters with their brokers, as a name server knows them (106)."""
        brokers = await self._brokers()
        names = sorted({broker.cluster for broker in brokers})
        return tuple(Cluster(name, tuple(broker for broker in brokers if broker.cluster == name))
                     for name in names)

    @limited
    async def broker_status(self, broker: str) -> BrokerStatus:
        """How one broker is, `host:port` or a name (brokerStatus)."""
        target = await self._address(broker)
        return await self._status(target, MASTER_ID)

    @limited
    async def cluster_status(self, cluster: str | None = None) -> Found[BrokerStatus]:
        """How all brokers are, slaves included; of one cluster, or all (clusterList)."""
        if cluster is not None:
            arguments.text(cluster, "cluster")
        ids = {Target(data.broker_name, address): broker_id
               for data in await self._brokers() if cluster in (None, data.cluster)
               for broker_id, address in sorted(data.addresses.items())}
        answers, failures = await self._read(
            "status of brokers", list(ids), lambda target: self._status(target, ids[target]))
        return Found(tuple(status for _, status in answers), failures)

    @limited
    async def broker_standing(self, broker: str) -> Standing | None:
        """
        Processes, positions of the log and latencies of one broker, `host:port` or a name, as
        `mqcore status` on its machine says them; None of a stock broker, which cannot say them.
        """
        target = await self._address(broker)
        answer = await self._ask(target.address, RequestCode.GET_STANDING, accept=(
            *SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        if answer.code not in SUCCESS:
            return None
        try:
            return msgspec.json.decode(answer.body, type=Standing)
        except msgspec.MsgspecError as error:
            raise BodyError(f"answer of {target.address}: {error}") from error

    async def _status(self, target: Target, broker_id: int) -> BrokerStatus:
        answer = await self._ask(target.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        values = document(answer, target.address).table("table")
        put, got = (_first(values.get(name, "")) for name in ("putTps", "getTransferedTps"))
        put_now, put_today, put_before, got_now, got_today, got_before = (
            whole_number(values.get(f"msg{what}Total{at}", "")) or 0 for what in ("Put", "Get")
            for at in ("TodayNow", "TodayMorning", "YesterdayMorning"))
        return BrokerStatus(
            target.name, broker_id, target.address, values.get("brokerVersionDesc", ""),
            when(whole_number(values.get("bootTimestamp", "")) or 0), put, got,
            put_now - put_today, got_now - got_today, put_today - put_before,
            got_today - got_before,
            when(whole_number(values.get("earliestMessageTimeStamp", "")) or 0),
            _first(values.get("commitLogDiskRatio", ""), -1.0), MappingProxyType(values))

    # -- settings ---------------------------------------------------------------------------------

    @limited
    async def broker_config(self, broker: str) -> Mapping[str, str]:
        """All settings of one broker, `host:port` or a name, in its own words (26)."""
        target = await self._address(broker)
        answer = await self._ask(target.address, RequestCode.GET_BROKER_CONFIG)
        return settings_of(answer.body)

    @limited
    async def update_broker_config(
        self, settings: Mapping[str, object], *, broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """
        Change settings while brokers run (25); broker, cluster as of `create_topic`.

        Returns the names of the brokers. Raises ConfigError; BrokerError, AdminError: 16 for a
        setting that may not be changed (a stock broker ignores names that it does not know).
        """
        body = properties_text(arguments.pairs(settings, "settings"))
        targets = await self._masters(broker, cluster)
        await self._write("changing settings of brokers", targets, lambda target: self._ask(
            target.address, RequestCode.UPDATE_BROKER_CONFIG, body=body))
        return tuple(target.name for target in targets)

    # -- cleaning ---------------------------------------------------------------------------------

    @limited
    async def clean_expired_queues(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Delete queues all of whose messages have expired (306).

        broker, cluster   as of `create_topic`
        Returns the names of the brokers.
        """
        return await self._clean(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)

    @limited
    async def clean_unused_topics(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Delete queues of topics that are no more (316).

        broker, cluster   as of `create_topic`
        Returns the names of the brokers.
        """
        return await self._clean(RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster)

    @limited
    async def delete_expired_log(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Delete expired files of the commit log now (329).

        broker, cluster   as of `create_topic`
        Returns the names of the brokers.
        """
        return await self._clean(RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)

    async def _clean(
        self, code: RequestCode, broker: str | None, cluster: str | None
    ) -> tuple[str, ...]:
        targets = await self._masters(broker, cluster)
        await self._write(code.name.lower().replace("_", " "), targets,
                          lambda target: self._ask(target.address, code, slow=True))
        return tuple(target.name for target in targets)

    # -- all groups of one, all metadata ----------------------------------------------------------

    @limited
    async def broker_lags(
        self, broker: str, *, ordered_only: bool = False
    ) -> tuple[GroupBacklog, ...]:
        """How far all groups of one broker are, a topic each (brokerConsumeStats, 317).

        ordered_only   only of topics whose queues are ordered
        """
        arguments.flag(ordered_only, "ordered_only")
        return await self._backlogs(await self._address(broker), ordered_only)

    async def _backlogs(
        self, target: Target, ordered_only: bool = False,
    ) -> tuple[GroupBacklog, ...]:
        answer = await self._ask(target.address, RequestCode.GET_BROKER_CONSUME_STATS,
                                 {"isOrder": "true" if ordered_only else "false"}, slow=True)
        found = quick_backlogs(answer.body or b"")
        if found is None:
            found = [(str(group), tuple(read_stats(stats)[0]))
                     for by_group in document(answer, target.address).objects("consumeStatsList")
                     for group in by_group.members for stats in by_group.objects(group)]
        return tuple(GroupBacklog(group, queues) for group, queues in sorted(
            (one for one in found if one[1]), key=lambda one: (one[0], one[1][0].queue.topic)))

    @limited
    async def metadata(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> Metadata:
        """The users' topics and groups of one broker, a cluster, or all (exportMetadata)."""
        targets = await self._masters(broker, cluster)
        named = bool(self._instance.name_servers.addresses)
        systems = set(await self.system_topics() if named else ())
        topics: dict[str, TopicConfig] = {}
        groups: dict[str, GroupConfig] = {}

        async def one(
            target: Target
        ) -> tuple[tuple[TopicConfig, ...], tuple[GroupConfig, ...]]:
            return await self._topic_configs(target), await self._group_configs(target)

        for _, (of_topics, of_groups) in await self._write("reading metadata", targets, one):
            for topic in of_topics:
                known = topics.get(topic.name)
                if topic.name in systems or topic.name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                    continue
                if known is None or topic.write_queue_count > known.write_queue_count:
                    topics[topic.name] = topic
            for group in of_groups:
                if not is_system_group(group.name):
                    groups.setdefault(group.name, group)
        return Metadata(tuple(topics[name] for name in sorted(topics)),
                        tuple(groups[name] for name in sorted(groups)))


def _first(text: str, missing: float = 0.0) -> float:
    """The first of some decimals in a text."""
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return missing
