"""The settings, the tables, and the ports to the rest of the process: every rule works on them."""
from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mqcore.acl.kept import KeptFiles
from mqcore.broker import registration
from mqcore.broker.access import AccessControl
from mqcore.broker.clock import not_ahead
from mqcore.broker.ports import (
    Appender,
    AtOnce,
    Background,
    Connections,
    Figures,
    Pulls,
    Queues,
    Registrar,
    StoreReader,
    Tables,
)
from mqcore.broker.registration import BrokerRegistration
from mqcore.broker.request import Answer, Outcome, OutcomeJob, Request, answer_frame, refused
from mqcore.broker.saving import Done, Saving
from mqcore.broker.settings.changed import ChangedSettings
from mqcore.broker.settings.model import Settings
from mqcore.broker.tables.client_calls import ClientCalls
from mqcore.broker.tables.clients import ClientTables
from mqcore.broker.tables.config_table import ConfigTable
from mqcore.broker.tables.filters import FilterTable
from mqcore.broker.tables.groups import GroupTable
from mqcore.broker.tables.light_queues import LightGroupTable, LightTopicTable, offset_table
from mqcore.broker.tables.locks import LockTable
from mqcore.broker.tables.offsets import OffsetTable
from mqcore.broker.tables.own_offsets import FILE_NAME as OWN_OFFSETS
from mqcore.broker.tables.own_offsets import OwnOffsets
from mqcore.broker.tables.recall_waits import RecallWaits
from mqcore.broker.tables.request_modes import RequestModes
from mqcore.broker.tables.statistics import Statistics
from mqcore.broker.tables.table_waits import TableWaits, Versions
from mqcore.broker.tables.topics import TopicTable
from mqcore.turns import Job, finished
from mqcore.wire import fastjson
from mqcore.wire.codes import PERM_READ, PERM_WRITE, ResponseCode
from mqcore.wire.topics import DataVersion

SERVING_SHIFT, SERVING_MASK = 48, 0xFF         # of a connection's id: its serving process
HELD_ANSWERS_MAX = 1_000               # a disk may hang; each is sent in one turn
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Ports:
    """The other side of the rules (mqcore.broker.ports)."""

    store: StoreReader
    tables: Tables
    connections: Connections
    appender: Appender
    registrar: Registrar
    figures: Figures
    queues: Queues
    pulls: Pulls
    background: Background = field(default_factory=AtOnce)
    wall_ahead_ms: Callable[[], int] = not_ahead     # of the times that the rules are given
    kept_access: KeptFiles | None = None             # access files for a successor
    passed_ms: Callable[[int], int] | None = None    # since a time of an earlier process, at least


@dataclass(slots=True)
class Core:
    settings: Settings
    started: Settings                # those that the run began with
    ports: Ports
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    filters: FilterTable
    modes: RequestModes
    clients: ClientTables
    locks: LockTable
    calls: ClientCalls
    changes: ChangedSettings           # of the settings, by request
    saving: Saving
    access: AccessControl
    own_offsets: OwnOffsets            # of a slave
    spawn: Callable[[Job], object] = finished        # takes work that has pauses
    statistics: Statistics = field(default_factory=Statistics)
    counts: Counter[str] = field(default_factory=Counter)      # figures of the coordinator, by name
    waits: TableWaits = field(default_factory=TableWaits)      # of slaves
    recalls: RecallWaits = field(default_factory=RecallWaits)
    started_ms: int = 0
    grpc_serving: int = -1            # index of the process of gRPC's clients; -1: there is none
    config_version: DataVersion = field(default_factory=DataVersion)      # of the settings

    @classmethod
    def make(
        cls, settings: Settings, changes: ChangedSettings, ports: Ports, started: Settings,
    ) -> Core:
        """Empty tables over the files of the store's config folder."""
        folder = settings.config_dir
        tables = ports.tables
        light = settings.store.light_queues_enable
        counts: Counter[str] = Counter()
        filters = FilterTable(settings.broker, folder / "consumerFilter.json", tables)
        core = cls(
            settings=settings,
            started=started,
            ports=ports,
            topics=(LightTopicTable if light else TopicTable)(
                settings.broker, folder / "topics.json", tables.publish_topic,
                tables.remove_topic,
            ),
            groups=(LightGroupTable if light else GroupTable)(
                settings.broker, folder / "subscriptionGroup.json", tables.publish_group,
                tables.remove_group,
            ),
            offsets=offset_table(settings),
            filters=filters,
            modes=RequestModes(folder / "messageRequestMode.json"),
            clients=ClientTables(
                tables.publish_subscription, settings.processes.subscription_count_max,
                filters.gone,
            ),
            locks=LockTable(settings.broker.queue_lock_expiry_ms),
            calls=ClientCalls(ports.connections),
            changes=changes,
            saving=Saving(ports.background),
            counts=counts,
            access=AccessControl(settings, tables, ports.store, ports.kept_access, counts),
            own_offsets=OwnOffsets(folder / OWN_OFFSETS),
        )
        core.topics.follows = core.groups.follows = settings.is_slave
        return core

    def wall_ms(self, now_ms: int) -> int:
        """The wall clock at `now_ms`, for times that other machines compare with theirs."""
        return now_ms + self.ports.wall_ahead_ms()

    def answer(self, request: Request, answer: Answer) -> None:
        """Answer a request whose handler returned None, now that the answer is known."""
        frame = answer_frame(request, answer)
        if frame is not None:
            self.ports.connections.send(request.connection, frame)

    def answer_saved(self, request: Request, topic: str, answer: Answer) -> None:
        """
        Answer a request that stored something for a topic when that topic is in its file: a kill
        before would lose the way to it. A waiting answer is out of its connection's share, so only
        its frame is kept, and beyond HELD_ANSWERS_MAX no further answer waits.
        """
        frame = answer_frame(request, answer)
        if frame is None:
            return
        send = partial(self.ports.connections.send, request.connection)
        if not (self.topics.is_unsaved(topic) and self.topics.held_count < HELD_ANSWERS_MAX):
            send(frame)
            return
        lost = Answer(ResponseCode.SYSTEM_ERROR, f"the topic {topic} cannot be saved", answer.ext)
        failure = answer_frame(request, lost)
        assert failure is not None
        self.topics.hold(topic, answer, lost).then = (
            lambda outcome: send(failure if outcome is lost else frame))

    def save(self, table: ConfigTable[Any], done: Done) -> None:
        """Write a table; requests that wait for its file continue before `done` is called."""
        def ended(error: OSError | None) -> None:
            table.saved(error)
            done(error)

        self.saving.save(table.member, table.begin, ended)

    def registration(self) -> Generator[None, None, BrokerRegistration | None]:
        """
        The words for name servers, for the start and for each interval. They hear of a topic, or a
        change, when it is in its file: a route outlives a topic that the disk refuses. With pauses.
        None, and a line in the log, for more than a frame can say.
        """
        version, topics = self.topics.as_saved()
        try:
            return (yield from registration.build(self.settings, version, topics))
        except fastjson.JsonError as error:
            _log.error("%d topics are too many for name servers to hear of: %s",
                       len(topics), error)
            return None

    def once_saved(
        self, request: Request, table: ConfigTable[Any], what: str,
        then: Callable[[], Outcome | OutcomeJob],
    ) -> Outcome | OutcomeJob:
        """
        The outcome of `then`, which is called when the table is in its file; None: that will be
        later. A request whose table cannot be saved is refused; what: of the table, in the remark.
        """
        return self._once(request, partial(self.save, table), what, then)

    def once_offsets_saved(
        self, request: Request, then: Callable[[], Outcome | OutcomeJob]
    ) -> Outcome | OutcomeJob:
        """As `once_saved`, of all offsets."""
        if not self.offsets.dirty:
            return then()

        def save(done: Done) -> None:
            self.saving.save("offsets", lambda: self.offsets.files.begin(request.now_ms), done)

        return self._once(request, save, "the offsets", then)

    def once_modes_saved(
        self, request: Request, then: Callable[[], Outcome | OutcomeJob]
    ) -> Outcome | OutcomeJob:
        """As `once_saved`, of the modes of requests."""
        def save(done: Done) -> None:
            self.saving.save("modes", self.modes.begin, done)

        return self._once(request, save, "the modes of requests", then)

    def _once(
        self, request: Request, save: Callable[[Done], None], what: str,
        then: Callable[[], Outcome | OutcomeJob],
    ) -> Outcome | OutcomeJob:
        known: list[Outcome | OutcomeJob] = []
        later = False

        def done(error: OSError | None) -> None:
            outcome = then() if error is None else refused(
                ResponseCode.SYSTEM_ERROR, f"{what} cannot be saved: {error}")
            if not later:
                known.append(outcome)
            elif isinstance(outcome, Generator):
                self.spawn(self._answered(request, outcome))
            elif isinstance(outcome, Answer):
                self.answer(request, outcome)

        save(done)
        later = True
        return known[0] if known else None

    def _answered(self, request: Request, job: OutcomeJob) -> Job:
        outcome = yield from job
        if isinstance(outcome, Answer):
            self.answer(request, outcome)

    def reconfigure(self, settings: Settings, version: DataVersion) -> None:
        """Other settings from now on, as far as the rules look at them anew."""
        self.settings = settings
        self.config_version = version
        self.topics.reconfigure(settings.broker)
        self.groups.reconfigure(settings.broker)
        self.locks.expiry_ms = settings.broker.queue_lock_expiry_ms
        self.filters.reconfigure(settings.broker)

    def is_grpc(self, connection: int) -> bool:
        """Whether a connection is one of the gRPC front's."""
        return connection >> SERVING_SHIFT & SERVING_MASK == self.grpc_serving

    def versions(self) -> Versions:
        """Of the tables that slaves follow."""
        return Versions(self.topics.version.text, self.groups.version.text, self.offsets.version)

    @property
    def readable(self) -> bool:
        return bool(self.settings.broker.permission & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.settings.broker.permission & PERM_WRITE)
