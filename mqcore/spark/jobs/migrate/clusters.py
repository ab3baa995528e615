"""The two clusters of a migration: what is to be moved, and the settings of topics and groups."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqcore.client.admin import Admin
from mqcore.client.admin.groups import is_system_group
from mqcore.client.errors import RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.options import READ, ROCKETMQ, client_config, read_options
from mqcore.wire.codes import MASTER_ID, PERM_READ, PERM_WRITE, SCHEDULE_TOPIC
from mqcore.wire.topics import MULTI_TAG, SYS_FLAG_UNIT, SYS_FLAG_UNIT_SUB, TopicConfig

LEVELS: Final = 18                  # of delays, that stock has unless it is told otherwise


@dataclass
class Cluster:
    """
    One of the two.

    options  of the source and the sink `rocketmq`: nameServer, rocketmq.*
    """

    word: str                       # "source" or "target", for errors
    options: Mapping[str, str]
    admin: Admin = field(init=False)

    @contextlib.contextmanager
    def running(self) -> Iterator[Cluster]:
        """Ready to be asked. Raises OptionError, SparkSourceError."""
        config = client_config(read_options(self.options, ROCKETMQ, READ, self.word))
        self.admin = Admin(config=config)
        self.admin.start()
        try:
            yield self
        except RocketMQError as error:
            raise SparkSourceError(f"{self.word} {self.options.get('nameServer', '')}: {error}"
                                   ) from None
        finally:
            self.admin.close()

    def masters(self) -> list[str]:
        """The names of brokers that have a master."""
        found = sorted(broker.broker_name for cluster in self.admin.clusters()
                       for broker in cluster.brokers if MASTER_ID in broker.addresses)
        if not found:
            raise SparkSourceError(f"--{self.word}: its name server knows no broker with a master")
        return found


def paired(old: list[str], new: list[str], given: Mapping[str, str]) -> dict[str, str]:
    """
    Which broker of the old cluster goes to which of the new one.

    given  what the user said; others go to one of the same name, or one only to one only
    Raises OptionError.
    """
    for name, target in given.items():
        if name not in old or target not in new:
            raise OptionError(f"--broker {name}={target}: the old cluster has {', '.join(old)}, the"
                              f" new one {', '.join(new)}")
    pairs = dict(given)
    if not pairs and len(old) == len(new) == 1:
        return {old[0]: new[0]}
    for name in old:
        if name not in pairs:
            if name not in new:
                raise OptionError(f"broker {name} has none of its name in the new cluster: say"
                                  f" --broker {name}=NEW with one of {', '.join(new)}")
            pairs[name] = name
    if len(set(pairs.values())) < len(pairs):
        raise OptionError("--broker: two brokers go to one: their queues have the same numbers")
    return pairs


class Settings:
    """Topics and groups of the old cluster, and how the new one gets them."""

    def __init__(self, source: Cluster, target: Cluster, brokers: Mapping[str, str],
                 topics: re.Pattern[str] | None, groups: re.Pattern[str] | None) -> None:
        """topics, groups: those whose whole names match; None: all but the brokers' own."""
        self._source = source
        self._target = target
        self._brokers = brokers
        self._groups = groups
        self._systems: set[str] = set()
        if topics is None:
            self._systems = {*source.admin.system_topics(), *target.admin.system_topics()}
        self._topics = topics
        self.configs: dict[tuple[str, str], TopicConfig] = {}   # by old broker and topic
        self._known: dict[str, dict[str, TopicConfig]] = {}     # by new broker

    def look(self) -> None:
        """What topics there are now. Raises RocketMQError."""
        self.configs = {
            (broker, config.name): config for broker in self._brokers
            for config in self._source.admin.topic_configs(broker) if self.has_topic(config.name)}

    def has_topic(self, name: str) -> bool:
        if self._topics is not None:
            return self._topics.fullmatch(name) is not None
        return name not in self._systems and not name.lower().startswith("rmq_sys_")

    def has_group(self, name: str) -> bool:
        if self._groups is not None:
            return self._groups.fullmatch(name) is not None
        return not is_system_group(name)

    def queues(self) -> tuple[list[MessageQueue], list[str]]:
        """The queues to copy, and the topics that cannot be read."""
        found, closed = [], set()
        for (broker, name), config in self.configs.items():
            if not config.perm & PERM_READ:
                closed.add(name)
                continue
            count = max(config.read_queue_count, config.write_queue_count)
            found += [MessageQueue(name, broker, number) for number in range(count)]
        return sorted(found), sorted(closed)

    def open_dead_letters(self, prefix: str) -> None:
        """Make topics with that prefix readable on the old cluster: brokers make them unreadable.
        """
        for (broker, name), config in list(self.configs.items()):
            if name.startswith(prefix) and not config.perm & PERM_READ:
                self._source.admin.update_topic(name, perm=config.perm | PERM_READ, broker=broker)
        self.look()

    def prepare_topics(self) -> int:
        """Let the new cluster have each topic with all its queues, writable; how many it got."""
        made = 0
        for (broker, name), config in self.configs.items():
            count = max(config.read_queue_count, config.write_queue_count, 1)
            target = self._brokers[broker]
            known = self._on_target(target).get(name)
            if (known is not None and known.read_queue_count >= count
                    and known.write_queue_count >= count
                    and known.perm & (PERM_READ | PERM_WRITE) == PERM_READ | PERM_WRITE):
                continue
            self._put(config, target, count, count, PERM_READ | PERM_WRITE)
            made += 1
        return made

    def settle_topics(self) -> None:
        """Let each topic on the new cluster be as it is on the old one."""
        for (broker, name), config in self.configs.items():
            target = self._brokers[broker]
            known = self._on_target(target).get(name)
            wanted = (config.read_queue_count, config.write_queue_count, config.perm, config.order)
            if known is None or wanted != (known.read_queue_count, known.write_queue_count,
                                           known.perm, known.order):
                self._put(config, target, *wanted[:3])

    def prepare_groups(self) -> int:
        """Let the new cluster have the settings of all groups; how many it got."""
        made = 0
        for broker, target in self._brokers.items():
            known = {one.name: one for one in self._target.admin.group_configs(target)}
            for config in self._source.admin.group_configs(broker):
                if not self.has_group(config.name) or known.get(config.name) == config:
                    continue
                self._target.admin.create_group(
                    config.name, consume_enable=config.consume_enable,
                    consume_from_min_enable=config.consume_from_min_enable,
                    consume_broadcast_enable=config.consume_broadcast_enable,
                    retry_queue_count=config.retry_queue_count,
                    retry_max_times=config.retry_max_times, broker_id=config.broker_id,
                    which_broker_when_consume_slowly=config.which_broker_when_consume_slowly,
                    notify_consumer_ids_changed_enable=config.notify_consumer_ids_changed_enable,
                    broker=target)
                made += 1
        return made

    def _on_target(self, broker: str) -> dict[str, TopicConfig]:
        if broker not in self._known:
            self._known[broker] = {
                config.name: config for config in self._target.admin.topic_configs(broker)}
        return self._known[broker]

    def _put(self, config: TopicConfig, target: str, reads: int, writes: int, perm: int) -> None:
        self._target.admin.create_topic(
            config.name, read_queues=reads, write_queues=writes, perm=perm, order=config.order,
            unit=bool(config.sys_flag & SYS_FLAG_UNIT),
            has_unit_sub=bool(config.sys_flag & SYS_FLAG_UNIT_SUB),
            multi_tag=config.filter_type == MULTI_TAG, broker=target)
        self._known.pop(target, None)

    # -- what cannot be copied ---------------------------------------------------------------------

    def waiting(self) -> dict[str, Any]:
        """Messages of the old cluster that wait for their time, or for the end of a transaction."""
        delayed = half = 0
        for broker in self._brokers:
            done = self._source.admin.delay_offsets(broker)
            for level in range(1, max([LEVELS, *done]) + 1):
                queue = MessageQueue(SCHEDULE_TOPIC, broker, level - 1)
                delayed += max(self._source.admin.max_offset(queue) - done.get(level, 0), 0)
            half += len(self._source.admin.pending_transactions(broker, limit=1_000))
        return {"delayed": delayed, "half": half}
