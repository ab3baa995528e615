"""Topics, groups, subscriptions, filters: shown by the coordinator to serving processes."""
from __future__ import annotations

from collections.abc import Callable, Collection

from mqcore.acl.rules import Rules
from mqcore.broker.request import I32_MAX, I32_MIN
from mqcore.broker.requests.pull_filters import CODES_READ_MAX
from mqcore.broker.requests.pull_rules import pull_asks
from mqcore.broker.requests.send_rules import send_asks
from mqcore.broker.settings.live import lines
from mqcore.broker.settings.model import Settings
from mqcore.broker.tables.config_table import TablesFull
from mqcore.broker.tables.filters import FilterData
from mqcore.broker.tables.groups import GroupConfig
from mqcore.shm.access import AccessBoard, AccessTableFull, build_table
from mqcore.shm.filters import FilterWriter
from mqcore.shm.segment import Segment
from mqcore.shm.tables import TableFullError, TableWriter
from mqcore.shm.text_board import SettingsBoard
from mqcore.wire.grpc import MessageType
from mqcore.wire.tags import EXPRESSION_TAG, Subscription
from mqcore.wire.topics import TopicConfig

FORGOTTEN_AT_ONCE = 512            # filters of groups that are gone, when there is no room


def within_i32(broker_id: int) -> int:
    """The id as shared memory holds it; no broker has a higher one, but a file may name it."""
    return max(I32_MIN, min(broker_id, I32_MAX))


def table_of(rules: Rules) -> bytes:
    """Access rules as the serving processes have them."""
    return build_table(
        [(one.access_key.encode(), one.secret_key.encode(), list(one.white), one.admin,
          one.topic_default, one.group_default,
          {name.encode(): bits for name, bits in one.permissions.items()})
         for one in rules.accounts.values()],
        list(rules.white), stock_permissions=rules.stock_permissions)


class SharedTables:
    """The rules' Tables over shared memory."""

    def __init__(self, segment: Segment, settings: Settings) -> None:
        self._segment = segment
        self._writer = TableWriter(segment)
        self._board = SettingsBoard(segment)
        self._started = settings
        self._filters = FilterWriter(segment)
        self._access = AccessBoard(segment)
        self._writable = bool(settings.broker.permission & 2)
        self._readable = bool(settings.broker.permission & 4)
        self._topics: set[str] = set()
        self._groups: set[str] = set()

    def hide_others(self) -> None:
        """
        After the load: what an earlier coordinator showed and this one did not goes. The rest was
        never hidden: else sends would wait here while later ones pass them, out of order.
        """
        self._writer.clear(topics=self._topics, groups=self._groups)

    def publish_settings(self, settings: Settings) -> None:
        told = lines(settings, self._started)
        if self._board.read() != (self._board.version, told):
            self._board.write(told)

    def publish_access(self, rules: Rules) -> None:
        try:
            self._access.write(table_of(rules))
        except AccessTableFull as error:
            raise TablesFull(str(error)) from error

    def set_permission(self, *, readable: bool, writable: bool) -> None:
        self._readable, self._writable = readable, writable

    def publish_topic(self, topic: TopicConfig, unsaved: bool = False) -> None:
        self._topics.add(topic.name)
        self._full(lambda: self._writer.publish_topic(
            topic.name, read_queues=topic.read_queue_count, write_queues=topic.write_queue_count,
            perm=topic.perm, multi_tag=topic.filter_type == "MULTI_TAG",
            send_asks=unsaved or send_asks(topic, writable=self._writable),
            kind=MessageType[topic.kind] if topic.kind else 0))

    def remove_topic(self, name: str) -> None:
        self._topics.discard(name)
        self._writer.remove_topic(name)

    def publish_group(self, group: GroupConfig) -> None:
        self._groups.add(group.name)
        self._full(lambda: self._writer.publish_group(
            group.name, consume_enabled=group.consume_enable,
            pull_asks=pull_asks(group, readable=self._readable),
            broker_id=within_i32(group.broker_id),
            broker_id_when_slow=within_i32(group.broker_id_when_slow)))

    def remove_group(self, name: str) -> None:
        """A group whose name no table can hold was never shown."""
        if name in self._groups:
            self._groups.discard(name)
            self._writer.remove_group(name)

    def publish_subscription(
        self, group: str, topic: str, subscription: Subscription | None, message_model: str
    ) -> None:
        if subscription is None:
            self._writer.remove_subscription(group, topic)
            self._filters.remove_codes(group, topic)
            return
        if len(subscription.codes) > CODES_READ_MAX:
            self._full(lambda: self._filters.publish_codes(group, topic, subscription.codes))
        self._full(lambda: self._writer.publish_subscription(
            group, topic, version=subscription.version_ms, codes=sorted(subscription.codes) or None,
            other=subscription.expression_type not in ("", EXPRESSION_TAG)))

    def publish_filter(self, data: FilterData, _now_ms: int) -> None:
        self._full(lambda: self._filters.publish_program(
            data.group, data.topic, program=data.program, expression=data.expression,
            client_version=data.version_ms, born_ms=data.born_ms, dead_ms=data.dead_ms,
            now_ms=self._segment.store_time_ms(),     # it is held against records' store times
            positions=data.positions, bit_count=data.bit_count))

    def remove_filter(self, group: str, topic: str) -> None:
        self._filters.remove_program(group, topic)

    def filters(self) -> list[tuple[str, str]]:
        return self._filters.programs()

    def publish_request(
        self, kind: str, expression: str, now_ms: int, *, program: bytes | None,
        codes: Collection[int] | None,
    ) -> None:
        self._full(lambda: self._filters.publish_request(
            kind, expression, now_ms=now_ms, program=program, codes=codes))

    def _full(self, publish: Callable[[], None]) -> None:
        try:
            self._publish(publish)
        except TableFullError as error:
            raise TablesFull(str(error)) from error

    def _publish(self, publish: Callable[[], None]) -> None:
        """Filters kept for groups that are gone make room."""
        try:
            publish()
        except TableFullError:
            if not self._filters.forget_dead(FORGOTTEN_AT_ONCE):
                raise
            publish()
