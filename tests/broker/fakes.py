"""In-memory stand-ins for the ports, and short ways to make a broker and its requests."""
from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqcore.acl.rules import Rules
from mqcore.broker.core import Ports
from mqcore.broker.handlers import Broker
from mqcore.broker.ports import (
    AppendStatus,
    ConsumeQueueEntry,
    LastPull,
    PullAdvance,
    Put,
    QueueGrowth,
)
from mqcore.broker.registration import BrokerRegistration
from mqcore.broker.request import Answer, Request
from mqcore.broker.settings.changed import ChangedSettings
from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import Settings
from mqcore.broker.tables.config_table import TablesFull
from mqcore.broker.tables.filters import FilterData
from mqcore.broker.tables.groups import GroupConfig
from mqcore.store.index.query import KeyMatches
from mqcore.wire import fastjson
from mqcore.wire.command import Command, decode
from mqcore.wire.tags import Subscription
from mqcore.wire.topics import TopicConfig

NOW_MS = 1_795_000_000_000


@dataclass
class FakeStore:
    """Queues as (first, next) offsets; entry n of a queue lies at position n * 100."""

    queues: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    records: dict[int, bytes] = field(default_factory=dict)
    store_times: dict[tuple[str, int, int], int] = field(default_factory=dict)
    by_time: dict[tuple[str, int, int], int] = field(default_factory=dict)
    in_memory_from: int = 0
    # (topic, key) -> newest time and position of the index, [(index time, position)] oldest first
    index: dict[tuple[str, str], tuple[int, int, list[tuple[int, int]]]] = field(
        default_factory=dict)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        return self.queues.get((topic, queue_id))

    def log_range(self) -> tuple[int, int]:
        return (min(self.records, default=0), max(self.records, default=0))

    def entry(self, topic: str, queue_id: int, offset: int) -> ConsumeQueueEntry | None:
        low, high = self.queues.get((topic, queue_id), (0, 0))
        return ConsumeQueueEntry(offset * 100, 100, 0) if low <= offset < high else None

    def record(self, position: int) -> bytes | None:
        return self.records.get(position)

    def named_record(self, position: int) -> bytes | None:
        return self.records.get(position)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        return self.store_times.get((topic, queue_id, offset), -1)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        return self.by_time.get((topic, queue_id, timestamp_ms), 0)

    def in_memory(self, position: int) -> bool:
        return position >= self.in_memory_from

    def find_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, KeyMatches]:
        yield
        last_ms, last_position, entries = self.index.get((topic, key), (0, 0, []))
        found = [(time_ms, position) for time_ms, position in reversed(entries)
                 if begin_ms <= time_ms <= end_ms][:max(count_max, 0)]
        return KeyMatches(tuple(position for _, position in found),
                          found[-1][0] if found else 0, last_ms, last_position)


@dataclass
class FakeQueues:
    """Queues with their next offsets; `finish` answers for the writer and the dispatcher."""

    queues: dict[tuple[str, int], int] = field(default_factory=dict)
    removed: list[tuple[str, int]] = field(default_factory=list)
    waiting: list[Callable[[str], None]] = field(default_factory=list)
    deletions: int = 0
    grown: list[QueueGrowth] = field(default_factory=list)
    taking_over: bool = False
    alone: bool = False

    def growth(self) -> list[QueueGrowth]:
        grown, self.grown = self.grown, []
        return grown

    def all(self) -> list[tuple[str, int, int]]:
        return [(topic, queue_id, end) for (topic, queue_id), end in self.queues.items()]

    def ends(self) -> list[tuple[str, int, int]]:
        return self.all()

    def end(self, topic: str, queue_id: int) -> int:
        return self.queues.get((topic, queue_id), 0)

    def some(self) -> Iterator[list[tuple[str, int, int]]]:
        yield self.all()

    def remove(
        self, queues: Sequence[tuple[str, int]], done: Callable[[str], None],
        unless: Callable[[str], bool] | None = None,
    ) -> Generator[None, None, None]:
        yield
        self.removed += sorted(
            queue for queue in queues if unless is None or not unless(queue[0]))
        self.waiting.append(done)

    def delete_expired_files(self) -> None:
        self.deletions += 1

    def finish(self, trouble: str = "") -> None:
        for done in self.waiting:
            done(trouble)
        self.waiting.clear()


@dataclass
class FakePulls:
    pulled: list[PullAdvance] = field(default_factory=list)
    newest: list[LastPull] = field(default_factory=list)

    def advances(self) -> list[PullAdvance]:
        pulled, self.pulled = self.pulled, []
        return pulled

    def last(self, behind_more_than_bytes: int = -1) -> list[LastPull]:
        return [pull for pull in self.newest if pull.behind_bytes > behind_more_than_bytes]


@dataclass
class FakeTables:
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    unsaved: set[str] = field(default_factory=set)
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    subscriptions: dict[tuple[str, str], tuple[Subscription, str]] = field(default_factory=dict)
    shown: dict[tuple[str, str], FilterData] = field(default_factory=dict)
    requests: dict[tuple[str, str], tuple[bytes | None, Collection[int] | None]] = field(
        default_factory=dict)
    topic_count_max: int = 1_000_000
    filter_count_max: int = 1_000_000
    permission: tuple[bool, bool] | None = None
    settings: Settings | None = None
    access: Rules | None = None

    def publish_settings(self, settings: Settings) -> None:
        self.settings = settings

    def publish_access(self, rules: Rules) -> None:
        self.access = rules

    def set_permission(self, *, readable: bool, writable: bool) -> None:
        self.permission = readable, writable

    def publish_topic(self, topic: TopicConfig, unsaved: bool = False) -> None:
        if topic.name not in self.topics and len(self.topics) >= self.topic_count_max:
            raise TablesFull("no room for another topic: raise processes.topic_count_max")
        self.topics[topic.name] = topic
        (self.unsaved.add if unsaved else self.unsaved.discard)(topic.name)

    def remove_topic(self, name: str) -> None:
        self.topics.pop(name, None)
        self.unsaved.discard(name)

    def publish_group(self, group: GroupConfig) -> None:
        self.groups[group.name] = group

    def remove_group(self, name: str) -> None:
        self.groups.pop(name, None)

    def publish_subscription(
        self, group: str, topic: str, subscription: Subscription | None, message_model: str
    ) -> None:
        if subscription is None:
            self.subscriptions.pop((group, topic), None)
        else:
            self.subscriptions[group, topic] = (subscription, message_model)

    def publish_filter(self, data: FilterData, now_ms: int) -> None:
        if len(self.shown) >= self.filter_count_max:
            raise TablesFull("no room for another filter")
        self.shown[data.group, data.topic] = data

    def remove_filter(self, group: str, topic: str) -> None:
        self.shown.pop((group, topic), None)

    def filters(self) -> list[tuple[str, str]]:
        return list(self.shown)

    def publish_request(
        self, kind: str, expression: str, now_ms: int, *, program: bytes | None,
        codes: Collection[int] | None,
    ) -> None:
        if len(self.requests) >= self.filter_count_max:
            raise TablesFull("too many different filter expressions came with pulls")
        self.requests[kind, expression] = (program, codes)


@dataclass
class FakeConnections:
    sent: list[tuple[int, Command]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    def send(self, connection: int, frame: bytes) -> None:
        self.sent.append((connection, decode(frame[4:])))

    def offer(self, connection: int, frame: bytes) -> None:
        self.send(connection, frame)

    def close(self, connection: int) -> None:
        self.closed.append(connection)

    def told(self) -> list[tuple[int, str | None]]:
        """(connection, group) of each notice that members changed; forgets them."""
        notices = [
            (connection, (command.ext or {}).get("consumerGroup"))
            for connection, command in self.sent if command.code == 40
        ]
        self.sent.clear()
        return notices


@dataclass
class FakeAppender:
    """Keeps what is appended; `finish` answers for the writer."""

    appended: list[tuple[str, int, bytes, dict[str, str]]] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)
    waiting: list[Callable[[Put], None]] = field(default_factory=list)

    def append(
        self, topic: str, queue_id: int, body: bytes, properties: Mapping[str, str], *,
        born_ms: int, flag: int = 0, sys_flag: int = 0, reconsume_times: int = 0,
        born_host: tuple[str, int] | None = None, store_host: tuple[str, int] | None = None,
        waits: bool = False, done: Callable[[Put], None] | None = None,
    ) -> None:
        self.appended.append((topic, queue_id, body, dict(properties)))
        self.details.append({
            "born_ms": born_ms, "flag": flag, "sys_flag": sys_flag,
            "reconsume_times": reconsume_times, "born_host": born_host, "store_host": store_host,
            "waits": waits})
        if done is not None:
            self.waiting.append(done)

    def finish(
        self, status: AppendStatus = AppendStatus.PUT_OK, queue_offset: int = 0, position: int = 0
    ) -> None:
        for done in self.waiting:
            done(Put(status, queue_offset, position))
        self.waiting.clear()


@dataclass
class FakeRegistrar:
    """Keeps what was registered; `finish` answers for the name servers."""

    registered: list[tuple[BrokerRegistration, bool]] = field(default_factory=list)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def register(
        self, registration: BrokerRegistration, *, one_way: bool,
        done: Callable[[], None] | None = None,
    ) -> None:
        self.registered.append((registration, one_way))
        if done is not None:
            self.waiting.append(done)

    def finish(self) -> None:
        for done in self.waiting:
            done()
        self.waiting.clear()

    def topics(self) -> list[list[str]]:
        """The topic names of each registration so far."""
        tables = [fastjson.loads(item.body) for item, _ in self.registered]
        return [
            sorted(table["topicConfigSerializeWrapper"]["topicConfigTable"]) for table in tables
        ]


@dataclass
class FakeFigures:
    figures: dict[str, str] = field(default_factory=dict)
    stored: int = 0
    handed_out: int = 0
    delays: dict[int, int] | None = None
    waiting: dict[str, Any] = field(default_factory=lambda: {"pending": 0, "topics": {}})
    cleared: tuple[int, int] = (0, 0)

    def runtime(self) -> Mapping[str, str]:
        return self.figures

    def standing(self) -> Mapping[str, Any]:
        return {"processes": [], "log": {}, "latencies": []}

    def sample(self) -> None:
        """No rates are told here."""

    def totals(self) -> tuple[int, int]:
        return self.stored, self.handed_out

    def delay_offsets(self) -> Mapping[int, int] | None:
        return self.delays

    def timed(self, now_ms: int) -> Mapping[str, Any]:
        return self.waiting

    def timer_cleared(self) -> tuple[int, int]:
        return self.cleared


@dataclass
class Bench:
    """A loaded broker with its fakes."""

    broker: Broker
    store: FakeStore
    tables: FakeTables
    connections: FakeConnections
    appender: FakeAppender
    registrar: FakeRegistrar
    figures: FakeFigures
    queues: FakeQueues
    pulls: FakePulls
    now_ms: int = NOW_MS

    def ask(
        self, code: int, ext: Mapping[str, object] | None = None, body: object = b"", *,
        connection: int = 1, version: int = 409, fast_port: bool = False, body_size: int = 0,
    ) -> Any:
        """The outcome of one request; a body that is not bytes is sent as JSON."""
        raw = body if isinstance(body, bytes) else fastjson.dumps(body)
        fields: dict[str, str | None] | None = (
            None if ext is None else {key: str(value) for key, value in ext.items()})
        command = Command(code, version=version, opaque=7, ext=fields, body=raw)
        return self.broker.handle(Request(
            connection, f"10.0.0.{connection & 0xFF}:4000", command, self.now_ms,
            fast_port=fast_port, body_size=body_size,
        ))

    def heartbeat(
        self, group: str, topics: Mapping[str, int] | None = None, *, connection: int = 1,
        client_id: str | None = None, model: object = "CLUSTERING", expression: str = "*",
    ) -> Any:
        """A consumer's heartbeat; topics = topic -> subVersion."""
        return self.ask(34, None, {
            "clientID": client_id or f"client-{connection}",
            "consumerDataSet": [{
                "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
                "subscriptionDataSet": [
                    {"topic": topic, "subString": expression, "subVersion": version}
                    for topic, version in (topics or {}).items()
                ],
            }],
        }, connection=connection)


def text_of(answer: Answer) -> bytes:
    """The body of an answer, be it long or not."""
    return answer.body or b"".join(answer.parts)


def settings_in(folder: Path, *overrides: str) -> Settings:
    """Settings of broker-a at 127.0.0.2:40911 with its store in `folder`."""
    return load(None, {}, [
        f"store.path={folder}", "broker.name=broker-a", "broker.advertised_ip=127.0.0.2",
        "broker.listen_port=40911", *overrides,
    ])


def make_bench(
    settings: Settings, queues: dict[tuple[str, int], int] | None = None,
    changes: ChangedSettings | None = None,
) -> Bench:
    """
    A broker that has loaded what lies in its store folder; queues: those that it has. changes: of
    a run that began with `settings`.
    """
    Path(settings.store.path).mkdir(parents=True, exist_ok=True)
    store, tables, connections = FakeStore(), FakeTables(), FakeConnections()
    appender, registrar, figures = FakeAppender(), FakeRegistrar(), FakeFigures()
    fake_queues, pulls = FakeQueues(queues or {}), FakePulls()
    broker = Broker(settings, Ports(
        store, tables, connections, appender, registrar, figures, fake_queues, pulls), changes)
    broker.load(NOW_MS)
    return Bench(
        broker, store, tables, connections, appender, registrar, figures, fake_queues, pulls)
