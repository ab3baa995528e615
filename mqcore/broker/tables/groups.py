"""
Consumer group configs: built-in ones, the auto-create rule, updates.

broker.md 9.5 (RocketMQ 4.9.8: SubscriptionGroupManager, SubscriptionGroupConfig). State in memory,
persisted as config/subscriptionGroup.json.
"""
from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_table import ConfigTable, TablesFull, fits
from mqcore.broker.tables.topics import QUEUES_OF_A_TOPIC_MAX
from mqcore.layout import GROUP_LENGTH_MAX
from mqcore.wire.codes import SYSTEM_GROUP_PREFIX

GROUPS_A_TURN = 200                 # that are published between two pauses
# members of RocketMQ 5 that mqcore follows
ORDERLY = "consumeMessageOrderly"
RETRY_POLICY = "groupRetryPolicy"
BACKOFF_STEPS_MAX = 128
BACKOFF_MS_MAX = 1 << 40
_log = logging.getLogger(__name__)
BUILT_IN = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
)


class Exponential(NamedTuple):
    """Times between the attempts of a message that grow; RocketMQ 5's defaults."""

    initial_ms: int = 5_000
    max_ms: int = 7_200_000
    multiplier: int = 2


Steps = tuple[int, ...]                # milliseconds before each further attempt
DEFAULT_STEPS: Steps = tuple(1000 * seconds for seconds in (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200))


def backoff_of(policy: Any) -> Steps | Exponential:
    """From a group's groupRetryPolicy; None: the default steps. Raises ValueError."""
    if policy is None:
        return DEFAULT_STEPS
    if not isinstance(policy, dict) or policy.get("type", "CUSTOMIZED") not in (
            "CUSTOMIZED", "EXPONENTIAL"):
        raise ValueError("expected an object whose type is CUSTOMIZED or EXPONENTIAL")
    if policy.get("type") == "EXPONENTIAL":
        said = policy.get("exponentialRetryPolicy") or {}
        found = Exponential(*(
            _backoff_number(said.get(name, default)) for name, default in zip(
                ("initial", "max", "multiplier"), Exponential(), strict=True)))
        if found.multiplier > 1000:
            raise ValueError(f"multiplier is {found.multiplier}: expected 1000 at most")
        return found
    said = policy.get("customizedRetryPolicy") or {}
    steps = said.get("next", DEFAULT_STEPS)
    if not isinstance(steps, (list, tuple)) or not 1 <= len(steps) <= BACKOFF_STEPS_MAX:
        raise ValueError(f"next: expected 1 to {BACKOFF_STEPS_MAX} times in milliseconds")
    return tuple(map(_backoff_number, steps))


def _backoff_number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= BACKOFF_MS_MAX:
        raise ValueError(f"{value!r:.40}: expected a whole number from 1 to {BACKOFF_MS_MAX}")
    return value


@dataclass(slots=True, frozen=True)
class GroupConfig:
    """
    One consumer group's rules. more: members that only newer brokers know, as JSON, some of which
    RocketMQ 5's clients see (grpc.md 1.7).
    """

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True       # kept for the file; no rule looks at it
    consume_broadcast_enable: bool = True
    retry_queue_count: int = 1
    retry_times_max: int = 16
    broker_id: int = 0
    broker_id_when_slow: int = 1
    notify_consumers_enable: bool = True
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def orderly(self) -> bool:
        """Whether clients of gRPC get a queue's messages one after another (grpc.md 2.6)."""
        return self.more.get(ORDERLY) is True

    @property
    def backoff(self) -> Steps | Exponential:
        """The policy for gRPC clients; one in the file that cannot be read counts as none."""
        try:
            return backoff_of(self.more.get(RETRY_POLICY))
        except ValueError:
            return DEFAULT_STEPS

    @property
    def retry_topic_queue_count(self) -> int:
        """Queues of a retry topic that is made for the group."""
        return max(0, min(self.retry_queue_count, QUEUES_OF_A_TOPIC_MAX))

    def as_json(self) -> dict[str, Any]:
        return config_file.merged({
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.name,
            "notifyConsumerIdsChangedEnable": self.notify_consumers_enable,
            "retryMaxTimes": self.retry_times_max,
            "retryQueueNums": self.retry_queue_count,
            "whichBrokerWhenConsumeSlowly": self.broker_id_when_slow,
        }, self.more)

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
            more=config_file.more_of(value, KNOWN_MEMBERS),
        )


KNOWN_MEMBERS = frozenset(GroupConfig("").as_json())


class GroupTable(ConfigTable[GroupConfig]):
    """All group configs. A group's offsets are another table's."""

    member = "subscriptionGroupTable"

    def load(self, now_ms: int) -> None:
        """Built-in groups, then those of the file over them; publishes all."""
        built_in = [GroupConfig(name) for name in BUILT_IN]
        stored = self._begin(built_in, GroupConfig.from_json, now_ms)
        self._entries |= stored
        for group in self._entries.values():
            self._show(group)

    def _show(self, entry: GroupConfig) -> None:
        if fits(entry.name, GROUP_LENGTH_MAX):
            self._publish(entry)
        elif entry.name:           # a stock broker keeps a nameless one for clients that send ""
            _log.warning("%s: group %.40r... is too long to be used", self._path, entry.name)

    def publish_again(self) -> Generator[None, None, None]:
        """Every group, to serving processes: the broker's permission changed. With pauses."""
        for number, name in enumerate(list(self._entries), 1):
            group = self._entries.get(name)
            if group is not None and fits(name, GROUP_LENGTH_MAX):
                self._publish(group)
            if number % GROUPS_A_TURN == 0:
                yield

    def find_or_create(self, name: str, now_ms: int) -> GroupConfig | None:
        """The group, made with defaults when that is allowed; None when it is not."""
        found = self._entries.get(name)
        if found is not None:
            return found
        if not (self._settings.auto_create_group or name.startswith(SYSTEM_GROUP_PREFIX)):
            return None
        if not fits(name, GROUP_LENGTH_MAX):
            return None
        try:
            group = GroupConfig(name)
            self._put(group, now_ms, is_kept=True)     # its members make it again after a kill
            return group
        except TablesFull:
            return None

    def update(self, group: GroupConfig, now_ms: int) -> GroupConfig:
        """Create or replace a group. Raises TablesFull."""
        self._put(group, now_ms)
        return group

    def disable_consume(self, name: str, now_ms: int) -> bool:
        """
        Refuse a group's pulls from now on; False when it is not there, or was refused before.

        The file does not hear of it before another change of some group (broker.md 9.5).
        """
        group = self._entries.get(name)
        if group is None or not group.consume_enable:
            return False
        dirty = self.dirty
        self._put(replace(group, consume_enable=False), now_ms, is_kept=True)
        self.dirty = dirty
        return True
