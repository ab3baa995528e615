"""
Consumer group configs: built-in ones, the auto-create rule, updates.

broker.md 9.5 (RocketMQ 4.9.8: SubscriptionGroupManager, SubscriptionGroupConfig). State in memory,
persisted as config/subscriptionGroup.json.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mqcore.broker import config_file
from mqcore.broker.settings import BrokerSettings
from mqcore.broker.topics import QUEUES_OF_A_TOPIC_MAX, TablesFull, next_version
from mqcore.wire.topics import DataVersion

GROUP_LENGTH_MAX = 255             # bytes; what clients allow (remoting.md 6.8)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_log = logging.getLogger(__name__)
BUILT_IN = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
)


@dataclass(slots=True, frozen=True)
class GroupConfig:
    """One consumer group's rules."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True       # kept for the file; no rule looks at it
    consume_broadcast_enable: bool = True
    retry_queue_count: int = 1
    retry_times_max: int = 16
    broker_id: int = 0
    broker_id_when_slow: int = 1
    notify_consumers_enable: bool = True

    @property
    def retry_topic_queue_count(self) -> int:
        """Queues of a retry topic that is made for the group."""
        return max(0, min(self.retry_queue_count, QUEUES_OF_A_TOPIC_MAX))

    def as_json(self) -> dict[str, Any]:
        return {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.name,
            "notifyConsumerIdsChangedEnable": self.notify_consumers_enable,
            "retryMaxTimes": self.retry_times_max,
            "retryQueueNums": self.retry_queue_count,
            "whichBrokerWhenConsumeSlowly": self.broker_id_when_slow,
        }

    @classmethod
    def from_json(cls, name: str, value: dict[str, Any]) -> GroupConfig:
        """Read one; missing fields keep their defaults."""
        return cls(
            name=name,
            consume_enable=value.get("consumeEnable", True) is True,
            consume_from_min_enable=value.get("consumeFromMinEnable", True) is True,
            consume_broadcast_enable=value.get("consumeBroadcastEnable", True) is True,
            retry_queue_count=int(value.get("retryQueueNums", 1)),
            retry_times_max=int(value.get("retryMaxTimes", 16)),
            broker_id=int(value.get("brokerId", 0)),
            broker_id_when_slow=int(value.get("whichBrokerWhenConsumeSlowly", 1)),
            notify_consumers_enable=value.get("notifyConsumerIdsChangedEnable", True) is True,
        )


class GroupTable:
    """All group configs. `publish` may raise TablesFull, then nothing has changed."""

    def __init__(
        self,
        settings: BrokerSettings,
        path: Path,
        publish: Callable[[GroupConfig], None],
        withdraw: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._path = path
        self._publish = publish
        self._withdraw = withdraw
        self._groups: dict[str, GroupConfig] = {}
        self.version = DataVersion()
        self.dirty = False

    def load(self, now_ms: int) -> None:
        """Built-in groups, then those of the file over them; publishes all."""
        self.version = DataVersion(timestamp=now_ms)
        self._groups = {name: GroupConfig(name) for name in BUILT_IN}
        stored = config_file.load(self._path)
        if stored is not None:
            self.version = config_file.parsed(
                self._path, stored.get("dataVersion"), DataVersion.from_json
            )
            self._groups |= config_file.entries(
                self._path, stored.get("subscriptionGroupTable"), GroupConfig.from_json
            )
        for group in self._groups.values():
            if _fits(group.name):
                self._publish(group)
            elif group.name:       # a stock broker keeps a nameless one for clients that send ""
                _log.warning("%s: group %.40s... is too long to be used", self._path, group.name)

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Other rules from now on; the groups there are stay."""
        self._settings = settings

    def publish_again(self) -> None:
        """Every group, to serving processes: the broker's permission changed."""
        for group in self._groups.values():
            if _fits(group.name):
                self._publish(group)

    def persist(self) -> None:
        """Write config/subscriptionGroup.json. Raises OSError."""
        config_file.save(self._path, self.as_json())
        self.dirty = False

    def as_json(self) -> dict[str, Any]:
        """SubscriptionGroupWrapper (remoting.md 5.4)."""
        return {
            "dataVersion": self.version.as_json(),
            "subscriptionGroupTable": {
                name: group.as_json() for name, group in self._groups.items()
            },
        }

    def get(self, name: str) -> GroupConfig | None:
        return self._groups.get(name)

    def all(self) -> list[GroupConfig]:
        return list(self._groups.values())

    def find_or_create(self, name: str, now_ms: int) -> GroupConfig | None:
        """The group, made with defaults when that is allowed; None when it is not."""
        found = self._groups.get(name)
        if found is not None:
            return found
        if not (self._settings.auto_create_group or name.startswith(SYSTEM_GROUP_PREFIX)):
            return None
        if not _fits(name):
            return None
        try:
            return self.update(GroupConfig(name), now_ms)
        except TablesFull:
            return None

    def update(self, group: GroupConfig, now_ms: int) -> GroupConfig:
        """Create or replace a group. Raises TablesFull."""
        self._publish(group)
        self._groups[group.name] = group
        self.version = next_version(self.version, now_ms)
        self.dirty = True
        return group

    def disable_consume(self, name: str, now_ms: int) -> bool:
        """
        Refuse a group's pulls from now on; False when it is not there, or was refused before.

        The file does not hear of it before another change of some group (9.5).
        """
        group = self._groups.get(name)
        if group is None or not group.consume_enable:
            return False
        dirty = self.dirty
        self.update(replace(group, consume_enable=False), now_ms)
        self.dirty = dirty
        return True

    def delete(self, name: str, now_ms: int) -> bool:
        """Forget a group's config; its offsets are another table's."""
        if self._groups.pop(name, None) is None:
            return False
        self._withdraw(name)
        self.version = next_version(self.version, now_ms)
        self.dirty = True
        return True


def _fits(name: str) -> bool:
    return 0 < len(name.encode("utf-8", "replace")) <= GROUP_LENGTH_MAX
