"""All topics, groups and backlogs of a cluster, by one request to each master."""
from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from mqcore.client.admin.brokers import Brokers, GroupBacklog
from mqcore.client.admin.groups import GroupOnBroker
from mqcore.client.admin.link import Found, Link, Target, limited
from mqcore.client.admin.offsets import GroupOffset, Offsets
from mqcore.client.core.options import check_topic
from mqcore.wire.topics import TopicConfig


class TopicOnBroker(Struct, frozen=True):
    """The settings of a topic, and the master that has them."""

    broker_name: str
    address: str
    config: TopicConfig


class Overview(Brokers, Offsets, Link):
    """What AsyncAdmin asks of all masters at a time."""

    @limited
    async def topics_on_brokers(
        self, *, name: str | None = None, cluster: str | None = None,
    ) -> Found[TopicOnBroker]:
        """
        The settings of all topics, or of one, on each master (21).

        name      only this topic; empty when no master has it
        cluster   only the masters of this cluster
        Sorted by topic, then broker.
        """
        if name is not None:
            check_topic(name)
        answers, failures = await self._read(
            "settings of topics", await self._masters(None, cluster), self._topic_configs)
        found = [TopicOnBroker(target.name, target.address, config)
                 for target, configs in answers for config in configs
                 if name in (None, config.name)]
        return Found(tuple(sorted(found, key=lambda one: (one.config.name, one.broker_name))),
                     failures)

    @limited
    async def groups_on_brokers(self, *, cluster: str | None = None) -> Found[GroupOnBroker]:
        """
        The settings of all groups on each master (201); sorted by group, then broker.

        cluster   only the masters of this cluster; None = all
        """
        answers, failures = await self._read(
            "settings of groups", await self._masters(None, cluster), self._group_configs)
        found = [GroupOnBroker(target.name, target.address, config)
                 for target, configs in answers for config in configs]
        return Found(tuple(sorted(found, key=lambda one: (one.config.name, one.broker_name))),
                     failures)

    @limited
    async def backlogs(self, *, cluster: str | None = None) -> Found[GroupBacklog]:
        """
        How far each group is with each topic, on each master (317).

        cluster   only the masters of this cluster; None = all
        """
        answers, failures = await self._read(
            "backlogs of groups", await self._masters(None, cluster), self._backlogs)
        found = [backlog for _, backlogs in answers for backlog in backlogs]
        return Found(tuple(sorted(found, key=lambda one: (one.group, one.queues[0].queue))),
                     failures)

    @limited
    async def offsets_on_brokers(self, *, cluster: str | None = None) -> Found[GroupOffset]:
        """
        All offsets that groups committed, on each master (43).

        cluster   only the masters of this cluster; None = all
        """
        async def one(target: Target) -> tuple[GroupOffset, ...]:
            return await self._all_offsets(target)

        answers, failures = await self._read(
            "offsets of groups", await self._masters(None, cluster), one)
        return Found(tuple(offset for _, offsets in answers for offset in offsets), failures)

    @limited
    async def groups_by_topic(
        self, *, cluster: str | None = None,
    ) -> dict[str, frozenset[str]]:
        """
        The groups that have offsets of each topic. Raises AdminError without an answer.

        cluster   only the masters of this cluster; None = all
        """
        groups: defaultdict[str, set[str]] = defaultdict(set)
        for offset in await self.offsets_on_brokers(cluster=cluster):
            groups[offset.queue.topic].add(offset.group)
        return {topic: frozenset(names) for topic, names in groups.items()}
