"""
The broker: every request that serving processes do not answer by themselves, and what happens by
the clock.

broker.md 1 to 10 (RocketMQ 4.9.8: BrokerController and its processors). One object in one thread;
the coordinator feeds it requests, ticks and ends of connections. `docs/architecture.md` says how
the frames come and go.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import Any, Protocol

from mqcore.acl.unserved import Unserved
from mqcore.broker.core import Core, Ports
from mqcore.broker.names import check_group, groups_of_header
from mqcore.broker.request import (
    Answer,
    FieldError,
    Outcome,
    OutcomeJob,
    PendingOutcome,
    Request,
)
from mqcore.broker.requests import client as client_requests
from mqcore.broker.requests import recall as recall_requests
from mqcore.broker.requests import slave as slave_requests
from mqcore.broker.requests import statistics as statistics_requests
from mqcore.broker.requests.protection import PROTECT_INTERVAL_MS, disable_slow_groups
from mqcore.broker.requests.table import HANDLERS
from mqcore.broker.settings.changed import ChangedSettings
from mqcore.broker.settings.live import live_part
from mqcore.broker.settings.model import Settings
from mqcore.broker.tables import recall_waits
from mqcore.broker.tables.config_table import ConfigTable, TablesFull
from mqcore.broker.tables.shares import PULLS
from mqcore.turns import Job, finished
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command
from mqcore.wire.topics import DataVersion

EXPIRY_INTERVAL_MS = 10_000
FILTERS_PERSIST_MS = 10_000           # also how often old ones are looked for
CHANGE_GAP_MS = 10                    # bursts of new topics are written and registered together
TOPICS_PER_GAP_MS = 8                 # a large table is told less often: its text takes time ...
ENTRIES_PER_GAP_MS = 8                # ... and written less often,
AWAITED_PER_GAP_MS = 100              # unless messages wait for it: half of the time, or less
AWAITED_GAP_MS_MAX = 500
PERSIST_RETRY_MS = 5_000              # after the disk refused a file
TIMER_MS_MAX = 600_000
PULL_CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)

_log = logging.getLogger(__name__)

class _Table(Protocol):
    @property
    def dirty(self) -> bool: ...
    def persist(self) -> None: ...


class Broker:
    """
    All rules together. Call `load` once, then `handle`, `connection_closed` and `tick` (at least
    every 100 ms) as things happen, `close` at the end.

    Long work is a job (mqcore.turns): `begin` may return one, and the broker's own jobs go to
    `spawn`, which finishes them at once unless another function is given.
    """

    def __init__(
        self, settings: Settings, ports: Ports, changes: ChangedSettings | None = None,
        spawn: Callable[[Job], object] = finished, said: bytes = b"",
    ) -> None:
        """
        settings: those that this run was started with. changes: those that requests have changed,
        kept in the store; None: the run begins here, and the settings hold all changes.
        spawn: takes work that has pauses. said: of the settings file, if it was read again.
        """
        self._spawn = spawn
        self._busy: set[str] = set()       # what is being done by the clock
        self._unserved = Unserved(_log)
        if changes is None:
            changes = ChangedSettings(settings)
            started = settings = changes.load()
        else:
            started, settings = settings, live_part(settings, changes.load())
            if said:
                settings = changes.say(said, settings, started) or settings
        self.core = Core.make(settings, changes, ports, started)
        self._next_told_ms = 0             # when new topics may be registered again
        self._begun_ms: dict[str, int] = {}          # when a table's file was written last ...
        self._again_ms: dict[str, int] = {}          # ... and when the disk is asked again
        self._next_persist_ms = 0
        self._next_expiry_ms = 0
        self._next_filters_ms = 0
        self._next_protect_ms = 0
        self.core.spawn = spawn

    # -- life ---------------------------------------------------------------------------------

    def load(self, now_ms: int) -> None:
        """
        Read the store's config folder and publish topics and groups.

        Raises ConfigFileError for a file that is unusable, backup included, and TablesFull.
        """
        core = self.core
        core.started_ms = now_ms
        core.config_version = DataVersion(timestamp=now_ms)
        core.ports.tables.publish_settings(core.settings)
        core.ports.tables.set_permission(readable=core.readable, writable=core.writable)
        core.access.load()
        core.topics.load(now_ms)
        if core.topics.lost:
            found = core.topics.rebuild(core.ports.queues.all(), now_ms)
            if found:
                _log.warning("topics.json was lost: %d topics are made again from their queues: "
                             "%.500s", len(found), ", ".join(found))
        core.groups.load(now_ms)
        core.topics.make_texts()
        core.groups.make_texts()
        core.offsets.load()
        core.modes.load()
        # what a slave has of offsets may be ahead of what it has of the log; one that may be
        # elected does not wait for its master's table, which says the same
        waits = core.settings.is_slave and not core.settings.follows
        beyond = 0 if waits else core.offsets.cut(core.ports.queues.ends())
        if beyond:
            _log.warning("%d consumer offsets lay beyond the data: set to its end", beyond)
        if core.settings.is_slave:
            core.own_offsets.load()
        else:
            core.own_offsets.forget()
        core.filters.load(now_ms, core.ports.passed_ms)
        finished(statistics_requests.take_sample(core, now_ms))
        core.calls.restart(now_ms)
        self._next_persist_ms = now_ms + core.settings.broker.offsets_persist_interval_ms
        self._next_expiry_ms = now_ms + EXPIRY_INTERVAL_MS
        self._next_filters_ms = now_ms + FILTERS_PERSIST_MS
        self._next_protect_ms = now_ms + PROTECT_INTERVAL_MS

    def lead(self, settings: Settings, now_ms: int) -> None:
        """
        This broker was a slave, and is the master from now on: its log has all that it will have of
        the former one.
        """
        core = self.core
        core.reconfigure(settings, core.config_version)
        for table in (core.topics, core.groups):
            table.lead(now_ms)
        beyond = core.offsets.cut(core.ports.queues.ends())
        if beyond:
            _log.warning("%d consumer offsets lay beyond the data: set to its end", beyond)
        try:
            core.own_offsets.forget()
        except OSError as error:         # the next start as a slave finds them once more
            _log.warning("offsets that were committed to this slave cannot be removed: %s", error)

    def take_over_topics(self, known_to: int, now_ms: int) -> None:
        """
        Of the former master: those whose last messages are shown here. known_to: log position up to
        which its topics are here; those of later messages are made again.
        """
        queues = (queue for queue in self.core.ports.queues.all()
                  if self._is_behind(queue, known_to))
        try:
            made = self.core.topics.rebuild(queues, now_ms)
        except TablesFull as error:
            _log.error("topics of the former master's last messages are not known: %s", error)
            return
        if made:
            _log.warning("%d topics that the former master made last are made again from their "
                         "queues: %.500s", len(made), ", ".join(made))

    def _is_behind(self, queue: tuple[str, int, int], position: int) -> bool:
        """Whether a queue of no known topic has a message that lies behind a log position."""
        topic, queue_id, end = queue
        if self.core.topics.get(topic) is not None:
            return False
        entry = self.core.ports.store.entry(topic, queue_id, end - 1)
        return entry is not None and entry.position >= position

    def tick(self, now_ms: int) -> None:
        """Do what is due: changed tables, offsets, clients that fell silent."""
        core = self.core
        core.ports.figures.sample()
        core.calls.expire(now_ms)
        core.waits.answer_due(core.versions, now_ms, core.answer)
        recall_requests.answer_due(core, now_ms)
        core.access.look(now_ms, core.saving)
        self._save_changes(now_ms)
        if core.statistics.is_due(now_ms):
            self._once("sample", statistics_requests.take_sample(core, now_ms))
        if _due(self._next_persist_ms, now_ms):
            self._next_persist_ms = now_ms + core.settings.broker.offsets_persist_interval_ms
            self._save_offsets(now_ms)
        if _due(self._next_filters_ms, now_ms):
            self._next_filters_ms = now_ms + FILTERS_PERSIST_MS
            self._once("filters", self._keep_filters(now_ms))
        if _due(self._next_protect_ms, now_ms):
            self._next_protect_ms = now_ms + PROTECT_INTERVAL_MS
            disable_slow_groups(core, now_ms)
        if _due(self._next_expiry_ms, now_ms):
            self._next_expiry_ms = now_ms + EXPIRY_INTERVAL_MS
            core.locks.expire(now_ms)
            self._once("expiry", self._drop_silent(
                now_ms - core.settings.broker.client_expiry_ms))

    def _once(self, name: str, job: Job) -> None:
        """Do a job of the clock, unless it is still being done since the last time."""
        if name in self._busy:
            return

        def run() -> Job:
            try:
                yield from job
            finally:
                self._busy.discard(name)

        self._busy.add(name)
        self._spawn(run())

    def _keep_filters(self, now_ms: int) -> Job:
        yield from self.core.filters.clean(now_ms)
        if self.core.filters.dirty:
            self.core.saving.save(
                "filters", self.core.filters.begin, partial(self._on_saved, now_ms))

    def _drop_silent(self, oldest_ms: int) -> Job:
        for connection in (yield from self.core.clients.expired(oldest_ms)):
            self.core.ports.connections.close(connection)
            yield from self.leaving(connection)

    def change_due_in_ms(self, now_ms: int) -> int | None:
        """In how many ms `tick` has work: a changed table, or a recall; None: there is none."""
        core = self.core
        told_ms = core.waits.due_in_ms(core.versions, now_ms)
        if len(core.recalls):
            told_ms = min(told_ms or recall_waits.LOOK_MS, recall_waits.LOOK_MS)
        at_ms = [self._save_at_ms(table) for table in (core.topics, core.groups) if table.dirty]
        if core.topics.unregistered:
            at_ms.append(self._next_told_ms)
        if not at_ms:
            return told_ms
        due_ms = max(0, min(min(at_ms) - now_ms, TIMER_MS_MAX))
        return due_ms if told_ms is None else min(due_ms, told_ms)

    def close(self) -> None:
        """
        Write every table that has changed, whatever becomes of the others. Nothing may run in the
        background any more. Raises OSError, the first.
        """
        core = self.core
        core.saving.end()
        errors = self._persist((core.topics, core.groups, core.filters, core.offsets,
                                core.own_offsets))
        if errors:
            raise errors[0]

    def unsaved(self) -> list[str]:
        """
        In words: facts that clients were told and no file has. Filters are not counted: clients
        repeat them with each heartbeat.
        """
        pairs = self.core.offsets.unsaved()
        tables = (("topics", self.core.topics), ("groups", self.core.groups))
        found = [name for name, table in tables if table.dirty]
        return [*found, f"offsets of {pairs} groups and topics"] if pairs else found

    # -- connections --------------------------------------------------------------------------

    def connection_closed(self, connection: int) -> None:
        """A connection ended: its client leaves its groups, the other members are told."""
        self._spawn(self.leaving(connection))

    def leaving(self, connection: int) -> Job:
        """`connection_closed`, as a job."""
        self.core.calls.connection_closed(connection)
        self.core.waits.forget(connection)
        groups = yield from self.core.clients.connection_closed(connection)
        yield from client_requests.notify(self.core, groups, member_lost=True)

    def connections(self) -> set[int]:
        """All that are known: of clients that said who they are or were asked, of slaves."""
        core = self.core
        return {*core.clients.connections(), *core.calls.connections(), *core.waits.connections()}

    def knows(self, connection: int) -> bool:
        """Whether it is one of `connections`."""
        core = self.core
        return (core.clients.knows(connection) or core.calls.knows(connection)
                or core.waits.knows(connection))

    # -- requests -----------------------------------------------------------------------------

    def handle(self, request: Request) -> Outcome:
        """
        Decide about one request, whatever time it takes.

        Returns the answer; Redo for a send or pull that its serving process may run now;
        PendingOutcome for one that it may run when its topic is in the file, which `tick` writes;
        None when there is no answer, or when it goes out through `Connections.send` later.
        """
        outcome = self.begin(request)
        if isinstance(outcome, Generator):
            outcome = finished(outcome)
        self._save_changes(request.now_ms)
        return outcome.outcome if isinstance(outcome, PendingOutcome) and outcome.known else outcome

    def begin(self, request: Request) -> Outcome | OutcomeJob:
        """`handle`, or the job that is left; changed tables wait for `tick`."""
        access = self.core.access
        if access.on and not request.passed:
            return self._guarded(request)
        access.note(request)
        return self._begin(request)

    def _guarded(self, request: Request) -> OutcomeJob:
        refusal = yield from self.core.access.judge(
            request, verified=self.core.is_grpc(request.connection))
        if refusal is not None:
            return refusal
        outcome = self._begin(request)
        return (yield from outcome) if isinstance(outcome, Generator) else outcome

    def _begin(self, request: Request) -> Outcome | OutcomeJob:
        code = request.command.code
        if code in PULL_CODES and request.fast_port:       # broker.md 1.1
            return self._not_supported(request)
        if self.core.settings.is_slave:
            refusal = slave_requests.refusal(self.core, code)
            if refusal is not None:
                return refusal
        try:
            for group in groups_of_header(request.command):
                check_group(group, self.core.groups.has(group))
            handler = HANDLERS.get(code)
            outcome = handler(self.core, request) if handler else self._not_supported(request)
        except FieldError as error:
            return Answer(ResponseCode.SYSTEM_ERROR, str(error))
        return _checked(outcome, request) if isinstance(outcome, Generator) else outcome

    def _not_supported(self, request: Request) -> Answer:
        code = request.command.code
        self._unserved.note(code, request.remote)
        self.core.counts["unserved_requests"] += 1
        return Answer(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")

    def handle_response(self, connection: int, answer: Command) -> None:
        """A client answered one of our requests; an answer that no request waits for is dropped."""
        self.core.calls.answered(connection, answer)

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """A pull that a serving process answered carried this commit (broker.md 6.4)."""
        return self.core.offsets.commit(group, topic, queue_id, offset, PULLS)

    # -- registration -------------------------------------------------------------------------

    def apply_order_table(self, ordered: Collection[str], now_ms: int) -> None:
        """The topics of a registration reply's ORDER_TOPIC_CONFIG table (broker.md 9.4)."""
        self.core.topics.apply_order(ordered, now_ms)
        self._save_changes(now_ms)

    def _save_changes(self, now_ms: int) -> None:
        """Write and register what has changed, at most once in CHANGE_GAP_MS and a bit more."""
        core = self.core
        for table in (core.topics, core.groups):
            if table.dirty and _due(self._save_at_ms(table), now_ms):
                self._begun_ms[table.member] = now_ms
                core.save(table, partial(self._on_table, table.member, now_ms))
        if core.topics.unregistered and _due(self._next_told_ms, now_ms):
            self._next_told_ms = now_ms + CHANGE_GAP_MS + core.topics.count // TOPICS_PER_GAP_MS
            self._once("registration", self._register())

    def _save_at_ms(self, table: ConfigTable[Any]) -> int:
        """From when on a changed table may be written."""
        gap_ms = (min(table.count // AWAITED_PER_GAP_MS, AWAITED_GAP_MS_MAX) if table.awaited
                  else table.count // ENTRIES_PER_GAP_MS)
        return max(self._begun_ms.get(table.member, 0) + CHANGE_GAP_MS + gap_ms,
                   self._again_ms.get(table.member, 0))

    def _register(self) -> Job:
        self.core.topics.unregistered = False
        registration = yield from self.core.registration()
        if registration is not None:
            self.core.ports.registrar.register(registration, one_way=True)

    def _persist(self, tables: tuple[_Table, ...]) -> list[OSError]:
        errors = []
        for table in tables:
            try:
                if table.dirty:
                    table.persist()
            except OSError as error:
                errors.append(error)
        return errors

    def _save_offsets(self, now_ms: int) -> None:
        """Bring changed offsets to the disk, beside the requests."""
        if self.core.offsets.dirty:
            self.core.saving.save("offsets", lambda: self.core.offsets.files.begin(now_ms),
                                  partial(self._on_saved, now_ms))
        if self.core.own_offsets.dirty:
            self.core.saving.save("own offsets", self.core.own_offsets.begin,
                                  partial(self._on_saved, now_ms))

    def _on_table(self, member: str, now_ms: int, error: OSError | None) -> None:
        """A disk that refuses topics or groups is asked again later; nothing is lost."""
        self._again_ms[member] = 0 if error is None else now_ms + PERSIST_RETRY_MS
        if error is not None:
            _not_saved(error)

    def _on_saved(self, now_ms: int, error: OSError | None) -> None:
        """The same of offsets and filters. now_ms: when it was to be done."""
        if error is not None:
            retry_ms = now_ms + PERSIST_RETRY_MS
            self._next_persist_ms = min(self._next_persist_ms, retry_ms)
            self._next_filters_ms = min(self._next_filters_ms, retry_ms)
            _not_saved(error)


def _not_saved(error: OSError) -> None:
    _log.error("a table cannot be saved, next try in %d ms: %s", PERSIST_RETRY_MS, error)


def _due(at_ms: int, now_ms: int) -> bool:
    """True when the time has come, or the clock was set back by more than any timer here waits."""
    return not 0 < at_ms - now_ms <= TIMER_MS_MAX


def _checked(job: OutcomeJob, request: Request) -> OutcomeJob:
    """The job's outcome, or what is wrong with its request or its answer."""
    try:
        outcome = yield from job
    except FieldError as error:
        outcome = Answer(ResponseCode.SYSTEM_ERROR, str(error))
    except fastjson.JsonError as error:
        outcome = Answer(ResponseCode.SYSTEM_ERROR, f"the answer cannot be sent: {error}")
    if request.read is not None:
        yield from fastjson.dismantled(request.read)
    return outcome

