"""
The topics of this broker: built-in ones, creation by sends and by hand, deletion, order flags.

broker.md 9.1 to 9.4, 9.6, remoting.md 6.8 (RocketMQ 4.9.8: TopicConfigManager, TopicValidator).
State in memory, persisted as config/topics.json.
"""
from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mqcore.broker.request import Answer, PendingOutcome, Redo
from mqcore.broker.settings.model import BrokerSettings
from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_table import ConfigTable, TablesFull
from mqcore.layout import QUEUE_ID_END, TOPIC_LENGTH_MAX
from mqcore.store.paths import folder_name_trouble
from mqcore.wire.codes import (
    BENCHMARK_TOPIC,
    DLQ_PREFIX,
    LIVES_TOPIC,
    OFFSET_MOVED_TOPIC,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPICS,
    TEMPLATE_TOPIC,
)
from mqcore.wire.topics import (
    MULTI_TAG,
    SINGLE_TAG,
    SYS_FLAG_UNIT,
    SYS_FLAG_UNIT_SUB,
    TopicConfig,
)

TOPICS_A_TURN = 200                 # that are published between two pauses
PERM_READ_WRITE = PERM_READ | PERM_WRITE
QUEUES_OF_A_TOPIC_MAX = QUEUE_ID_END
SCHEDULE_QUEUE_COUNT = 18
LMQ_PREFIX = "%LMQ%"                # light queues are no topics of the table
SYSTEM_PREFIX = "rmq_sys_"
_log = logging.getLogger(__name__)
_KNOWN_MEMBERS = frozenset(TopicConfig("").as_json())
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_readable(topic: TopicConfig) -> bool:
    return bool(topic.perm & PERM_READ)


def filter_type(value: Any) -> str | None:
    """SINGLE_TAG or MULTI_TAG from a name or an ordinal; None for anything else."""
    if value in (0, "0"):
        return SINGLE_TAG
    if value in (1, "1"):
        return MULTI_TAG
    return value if value in (SINGLE_TAG, MULTI_TAG) else None


def name_trouble(name: str) -> str | None:
    """Why a topic may not have this name (TopicValidator); None when it may."""
    if not name.strip():
        return "the topic is blank: expected a name"
    if _LEGAL.fullmatch(name) is None:
        return f"the topic {name[:160]!r} has a character outside %|a-zA-Z0-9_-"
    if len(name) > TOPIC_LENGTH_MAX:
        return f"the topic has {len(name)} characters: expected at most {TOPIC_LENGTH_MAX}"
    return None


class TopicTable(ConfigTable[TopicConfig]):
    """All topics. `dirty` and `unregistered` say what is left to do."""

    member = "topicConfigTable"
    def __init__(
        self,
        settings: BrokerSettings,
        path: Path,
        publish: Callable[[TopicConfig, bool], None],
        withdraw: Callable[[str], None],
    ) -> None:
        """publish: of a topic, and whether sends to it have to ask, as no file has it yet."""
        self._unsaved: dict[str, list[PendingOutcome]] = {}   # new or changed: what waits for them
        self._ended: deque[tuple[str, list[PendingOutcome]]] = deque()   # ... written since
        self.held_count = 0                # of all that wait
        self._made: set[str] = set()       # unsaved topics that no request asked for by name
        self.refused = ""                  # why the disk did not take the last file
        super().__init__(
            settings, path, lambda topic: publish(topic, topic.name in self._unsaved), withdraw)
        self._own_system_topics = frozenset((
            settings.cluster, settings.name, f"{settings.cluster}_REPLY_TOPIC",
            *((settings.trace_topic_name,) if settings.trace_topic_enable else ()),
        ))
        self.unregistered = False          # name servers do not know the table yet

    def load(self, now_ms: int) -> None:
        """Built-in topics, then those of the file over them; publishes all."""
        stored = self._begin(self._built_in(), stored_topic, now_ms)
        for topic in stored.values():
            trouble = folder_name_trouble(topic.name)
            if trouble is None:
                self._entries[topic.name] = topic
            else:                      # it stays in the file
                self._set_aside[topic.name] = topic.as_json()
                _log.warning("%s: topic %.160r is ignored: %s", self._path, topic.name, trouble)
        for topic in self._entries.values():
            self._publish(topic)

    def publish_again(self, now_ms: int) -> Generator[None, None, None]:
        """
        Every topic, to serving processes and name servers: the broker's permission changed. With
        pauses.
        """
        self._changed(now_ms)
        self.unregistered = True
        for number, name in enumerate(list(self._entries), 1):
            topic = self._entries.get(name)
            if topic is not None:
                self._publish(topic)
            if number % TOPICS_A_TURN == 0:
                yield

    def rebuild(self, queues: Iterable[tuple[str, int, int]], now_ms: int) -> list[str]:
        """
        After config/topics.json was lost: a topic for each name that has queues and is not known,
        readable and writable, with as many queues as there are. A backup may be older than they.

        queues  (topic, queue id, next offset) of all queues with messages
        Returns the names. Raises TablesFull.
        """
        counts: dict[str, int] = {}
        for name, queue_id, _ in queues:
            if (name not in self._entries and name != LIVES_TOPIC
                    and not name.startswith(LMQ_PREFIX)
                    and _may_be_made_again(name)):
                counts[name] = max(counts.get(name, 0), queue_id + 1)
        for name, count in sorted(counts.items()):
            self._put(TopicConfig(name, count, count), now_ms, is_kept=True)
        return sorted(counts)

    @property
    def lost(self) -> bool:
        """Whether config/topics.json itself is missing or cannot be read."""
        return not config_file.is_sound(self._path)

    def is_system(self, name: str) -> bool:
        """True for a name that admin requests may not create or delete (broker.md 9.3)."""
        return name in self.system_names() or name.startswith(SYSTEM_PREFIX)

    def system_names(self) -> frozenset[str]:
        """The names of broker.md 9.3; those that start with SYSTEM_PREFIX are system topics too."""
        return SYSTEM_TOPICS | self._own_system_topics

    def create_from_template(
        self, name: str, template: str, queue_count: int, unit_mode: bool, now_ms: int
    ) -> TopicConfig | None:
        """
        The topic made because a message for it arrived (broker.md 9.2); None when it may not be.

        queue_count is the sender's wish; the template's write queues bound it.
        """
        pattern = self._entries.get(template)
        if pattern is None or not pattern.perm & PERM_INHERIT:
            return None
        if template == TEMPLATE_TOPIC and not self._settings.auto_create_topic:
            return None
        queues = max(min(queue_count, pattern.write_queue_count), 0)
        return self._add(
            TopicConfig(
                name, queues, queues, pattern.perm & ~PERM_INHERIT, pattern.filter_type,
                _unit_flags(name, unit_mode),
            ),
            now_ms,
        )

    def create_on_demand(
        self, name: str, queue_count: int, now_ms: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """
        A retry, dead letter or transaction topic: the one there is, else a new one, RW. None when
        none can be made: a slave has its master's topics.
        """
        found = self._entries.get(name)
        if found is not None:
            return found
        return self._add(TopicConfig(name, queue_count, queue_count, sys_flag=sys_flag), now_ms)

    def update(self, topic: TopicConfig, now_ms: int) -> None:
        """Create or replace a topic by request (17). Raises TablesFull."""
        self._put_unsaved(topic, now_ms)
        self._made.discard(topic.name)

    def begin(self) -> Iterator[None]:
        return self._to_the_end(super().begin(), list(self._unsaved.items()))

    def _to_the_end(
        self, steps: Iterator[None], unsaved: list[tuple[str, list[PendingOutcome]]]
    ) -> Iterator[None]:
        yield from steps
        self._ended.extend(unsaved)

    def is_unsaved(self, name: str) -> bool:
        """Whether the file lacks a topic or its change: a kill of this process would lose that."""
        return name in self._unsaved

    def hold(self, name: str, outcome: Answer | Redo, otherwise: Answer) -> PendingOutcome:
        """
        That of a request for an unsaved topic, once its file was written; otherwise: when the topic
        has gone, as the disk refused the file.
        """
        held = PendingOutcome(outcome, otherwise)
        self._unsaved[name].append(held)
        self.held_count += 1
        return held

    @property
    def awaited(self) -> bool:
        return self.held_count > 0

    def saved(self, error: OSError | None) -> None:
        """
        A file was written: the requests that waited for it are decided. When the disk refuses the
        file, its topics are as before, and so are topics that were made for messages since: their
        requests do not wait for the next try. No more are made until the disk takes a file.
        """
        self.refused = "" if error is None else str(error)
        undone = set(self._in_writing)
        super().saved(error)
        if error is not None:
            for name in self._made & self._changed_since.keys():
                self._undo(name, self._changed_since.pop(name))
                undone.add(name)
            undone -= self._changed_since.keys()
            self._ended.extend(
                (name, self._unsaved[name]) for name in undone & self._unsaved.keys())
            self.unregistered = self.unregistered or bool(undone)
        while self._ended:
            name, waiting = self._ended.popleft()
            topic = self._entries.get(name)
            if self._unsaved.get(name) is waiting:
                del self._unsaved[name]
                self.unregistered = self.unregistered or (error is None and name in self._made)
                self._made.discard(name)
                if topic is not None:
                    self._publish(topic)
            self.held_count -= len(waiting)
            for held in waiting:
                held.resolve(there=topic is not None)

    def apply_order(self, ordered: Collection[str], now_ms: int) -> None:
        """order = true for the topics of a registration reply, false for others (broker.md 9.4)."""
        if self.follows:               # the master's say so
            return
        changed = [
            replace(topic, order=topic.name in ordered)
            for topic in self._entries.values() if topic.order != (topic.name in ordered)
        ]
        for topic in changed:
            self._entries[topic.name] = topic
            self._publish(topic)
        if changed:
            self._changed(now_ms)

    def _add(self, topic: TopicConfig, now_ms: int) -> TopicConfig | None:
        if self.follows or self.refused or folder_name_trouble(topic.name) is not None:
            return None
        try:
            self._put_unsaved(topic, now_ms)
        except TablesFull:
            return None
        self._made.add(topic.name)
        return topic

    def _put_unsaved(self, topic: TopicConfig, now_ms: int) -> None:
        """`_put`; sends to the topic wait for the file. Raises TablesFull."""
        earlier = self._unsaved.pop(topic.name, None)  # of one that was changed or deleted since
        self._unsaved[topic.name] = waiting = []       # published so
        try:
            self._put(topic, now_ms)
        except TablesFull:
            del self._unsaved[topic.name]
            if earlier is not None:
                self._unsaved[topic.name] = earlier
            raise
        if earlier:                        # the file that is being written may lack the change
            waiting += earlier
            earlier.clear()

    def _built_in(self) -> list[TopicConfig]:
        """The table of broker.md 9.2."""
        settings = self._settings
        inherit = PERM_READ_WRITE | PERM_INHERIT
        topics = [_fixed(SELF_TEST_TOPIC, 1)]
        if settings.auto_create_topic:
            topics.append(_fixed(TEMPLATE_TOPIC, settings.default_topic_queue_count, inherit))
        topics += [
            _fixed(BENCHMARK_TOPIC, 1024),
            _fixed(
                settings.cluster, 16, inherit if settings.cluster_topic_enable else PERM_INHERIT
            ),
            _fixed(settings.name, 1, inherit if settings.broker_topic_enable else PERM_INHERIT),
            _fixed(OFFSET_MOVED_TOPIC, 1),
            _fixed(SCHEDULE_TOPIC, SCHEDULE_QUEUE_COUNT),
        ]
        if settings.trace_topic_enable:
            topics.append(_fixed(settings.trace_topic_name, 1))
        topics.append(_fixed(f"{settings.cluster}_REPLY_TOPIC", 1))
        return topics


def stored_topic(name: str, value: Any) -> TopicConfig:
    """An entry of the file, or of a master's table. Raises ValueError."""
    topic = TopicConfig.from_json(name, value)
    numbers = (topic.read_queue_count, topic.write_queue_count, topic.perm, topic.sys_flag)
    if not all(-(1 << 31) <= number < 1 << 31 for number in numbers):
        raise ValueError(f"queues, perm and flag are {numbers}: expected 32-bit numbers")
    more = config_file.more_of(value, _KNOWN_MEMBERS)
    return replace(topic, more=more) if more else topic


def _may_be_made_again(name: str) -> bool:
    """Names of groups are free, and their retry topics and dead letter queues bear them."""
    return name.startswith((RETRY_PREFIX, DLQ_PREFIX)) or name_trouble(name) is None


def _fixed(name: str, queues: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm)


def _unit_flags(name: str, unit_mode: bool) -> int:
    if not unit_mode:
        return 0
    return SYS_FLAG_UNIT_SUB if name.startswith(RETRY_PREFIX) else SYS_FLAG_UNIT
