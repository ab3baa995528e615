"""
Light queues: topics and groups called %LMQ%... that are there without any configuration.

store.md 2.11, 12.4, broker.md 15 (RocketMQ 4.9.8: LmqTopicConfigManager,
LmqSubscriptionGroupConfigManager, LmqConsumerOffsetManager). With store.light_queues_enable these
tables stand in place of the plain ones: a light topic has one queue, for reading and writing; a
light group has every default; its offsets are one number a topic, in config/lmqConsumerOffset.json.
Plain groups stand in that file, too; of the two offset files the one written last counts for them.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mqcore.broker.settings.model import Settings
from mqcore.broker.tables.groups import GroupConfig, GroupTable
from mqcore.broker.tables.offset_files import LIGHT_MEMBER, Sections
from mqcore.broker.tables.offsets import BYTES_MAX, MEMBER, OffsetTable, is_light
from mqcore.broker.tables.topics import TopicTable
from mqcore.wire import fastjson
from mqcore.wire.topics import TopicConfig

PLAIN_FILE = "consumerOffset.json"
LIGHT_FILE = "lmqConsumerOffset.json"
_QUEUE_ID = 0
_SEPARATOR = "@"


class LightTopicTable(TopicTable):
    """The topics there are, and each light one as if it were there."""

    def get(self, name: str) -> TopicConfig | None:
        found = super().get(name)
        return TopicConfig(name, 1, 1) if found is None and is_light(name) else found


class LightGroupTable(GroupTable):
    """The groups there are, and each light one as if it were there."""

    def get(self, name: str) -> GroupConfig | None:
        found = super().get(name)
        return GroupConfig(name) if found is None and is_light(name) else found

    def find_or_create(self, name: str, now_ms: int) -> GroupConfig | None:
        return self.get(name) if is_light(name) else super().find_or_create(name, now_ms)


class LightOffsetTable(OffsetTable):
    """
    Offsets with those of light groups: theirs have no queue id, whichever the request names.

    Without a file of its own it begins with the offsets of consumerOffset.json.
    """

    has_light = True

    def __init__(self, path: Path, bytes_max: int = BYTES_MAX) -> None:
        super().__init__(path, bytes_max, path.with_name(PLAIN_FILE))

    def sections(self) -> Sections:
        return {LIGHT_MEMBER: self._light_texts(),
                MEMBER: self.texts(lambda group: not is_light(group))}

    def _light_texts(self) -> Iterator[str]:
        for group in filter(is_light, list(self._groups)):
            for topic in self.topics_of(group):
                offset = self.committed(group, topic, _QUEUE_ID)
                if offset is not None:
                    yield f"{fastjson.quote(f'{topic}{_SEPARATOR}{group}')}:{offset}"

    def as_json(self) -> dict[str, Any]:
        plain: dict[str, dict[int, int]] = {}
        light: dict[str, int] = {}
        for key, queues in super().as_json()[MEMBER].items():
            if not is_light(key.partition(_SEPARATOR)[2]):
                plain[key] = queues
            elif _QUEUE_ID in queues:
                light[key] = queues[_QUEUE_ID]
        return {LIGHT_MEMBER: light, MEMBER: plain}

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, source: str = ""
    ) -> bool:
        queue_id = _QUEUE_ID if is_light(group) else queue_id
        return super().commit(group, topic, queue_id, offset, source)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        return super().committed(group, topic, _QUEUE_ID if is_light(group) else queue_id)


def offset_table(settings: Settings) -> OffsetTable:
    """The offsets of a broker with these settings, not loaded yet."""
    bytes_max = settings.broker.consumer_offsets_bytes_max
    if settings.store.light_queues_enable:
        return LightOffsetTable(settings.config_dir / LIGHT_FILE, bytes_max)
    return OffsetTable(settings.config_dir / PLAIN_FILE, bytes_max,
                       settings.config_dir / LIGHT_FILE)
