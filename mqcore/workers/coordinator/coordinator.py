"""Work of the coordinator: rings, tables and timers for the rules of mqcore/broker."""
from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from mqcore.acl.followed import NotTaken
from mqcore.acl.nodes import AclFileError
from mqcore.broker.clock import RunningClock
from mqcore.broker.core import Ports
from mqcore.broker.handlers import Broker
from mqcore.broker.ports import ConsumeQueueEntry
from mqcore.broker.registration import BrokerRegistration
from mqcore.broker.requests.check_sender import CheckSender
from mqcore.broker.requests.config import take_said
from mqcore.broker.tables.config_file import ConfigFileError
from mqcore.broker.tables.config_table import TablesFull
from mqcore.participants import COORDINATOR
from mqcore.shm.check_ring import CheckRequest, CheckRing, Progress
from mqcore.shm.coordinator_rings import (
    Closed,
    CommittedOffset,
    CoordinatorRings,
    Forwarded,
    ReadState,
)
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.run_clock import RunClock
from mqcore.shm.text_board import MasterSign
from mqcore.store.index.query import IndexReader, KeyMatches
from mqcore.store.log.producer import LogProducer
from mqcore.store.reader import StoreReader
from mqcore.tls.contexts import TlsFileError
from mqcore.turns import Job, Memory, Turns
from mqcore.workers.coordinator.background import Background
from mqcore.workers.coordinator.collector import Collector
from mqcore.workers.coordinator.figures import StoreFigures
from mqcore.workers.coordinator.forwarded import ForwardedRequests
from mqcore.workers.coordinator.in_use import in_use
from mqcore.workers.coordinator.own_messages import OwnMessages
from mqcore.workers.coordinator.registrar import Registrar
from mqcore.workers.coordinator.request_times import RequestTimes
from mqcore.workers.coordinator.shared_pulls import SharedPulls
from mqcore.workers.coordinator.shared_queues import SharedQueues
from mqcore.workers.coordinator.shared_tables import SharedTables
from mqcore.workers.process import descriptors
from mqcore.workers.process.inherited import Inherited
from mqcore.workers.process.layout import StoreFiles, memory_bytes
from mqcore.workers.process.live import SaidNow, as_elected, set_log_level, turn_if_lost
from mqcore.workers.process.output import complain
from mqcore.workers.process.stopping import StopWait, UnfinishedStop
from mqcore.workers.replication.following import Following, is_address

TICK_S = 0.1
LAST_STRETCH_S = 0.3             # of work at a stop, for what has come by then
STRETCH_S = 0.01                 # of work, before the loop looks at its sockets and timers again
GATHER_S = 0.0005                # that answers wait for others, while there is more to do
TRIM_BYTES = 8 << 20
ITEMS_AT_ONCE = 256
SAVE_TRY_S, SAVE_RETRY_S = 2.0, 0.2

OWN = -1                         # as whom the broker's own work waits for its turn
HELD_BYTES_MAX = 256 << 20        # by answers that are built, and those that wait (Memory of turns)
GONE_MAX = 10_000                 # connections that have ended, of which that is remembered
REGISTER_LOOK_S = 1.0             # whether it is time to register again
MASTER_LOOK_S = 2.0               # a slave whose master is not there asks name servers ...
MASTER_LOOK_GROWTH = 1.2          # ... less and less often

malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", int)     # only of glibc
log = logging.getLogger("mqcore.coordinator")


class Reader(StoreReader):
    """The rules' StoreReader: entries by name, and the key index."""

    keys: IndexReader

    def find_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, KeyMatches]:
        look_up = self.keys.look_up(topic, key, count_max, begin_ms, end_ms)
        while not look_up.step():
            yield
        return look_up.matches()

    def entry(self, topic: str, queue_id: int, offset: int) -> ConsumeQueueEntry | None:
        found = super().entry(topic, queue_id, offset)
        return None if found is None else ConsumeQueueEntry(*found)


class Coordinator:
    """Feeds the rules from the rings, in one asyncio loop."""

    name = "coordinator"
    slot = COORDINATOR.slot

    def __init__(self, inherited: Inherited) -> None:
        self._inherited = inherited
        self._segment = inherited.segment
        self._pen = LeadershipPen(inherited.segment)
        self._settings = as_elected(inherited.settings, self._pen)
        self._leader_version = -1
        self._known_to = -1              # what is known of a former master's topics; -1: all
        self._unheard = False            # by name servers: that this broker leads
        self._turns = Turns(memory=Memory(
            HELD_BYTES_MAX, in_use, lambda: self._rings.bytes_that_wait()))
        self._working = False
        self._changes = inherited.changes
        self._changes.turn(partial(as_elected, pen=self._pen))
        self._said = SaidNow(inherited.segment)
        self._settling: asyncio.TimerHandle | None = None
        self._trimmed_at = 0               # sent_bytes at the last look
        self._gone: dict[int, None] = {}   # connections, those that ended first before the others
        self._failure: BaseException | None = None
        self._clock = RunningClock()
        self._now_ms = self._clock.now_ms

    def _start(self) -> None:
        settings, segment = self._settings, self._segment
        files = StoreFiles(settings.store_root)
        self._figures = FigureSlots(segment)
        self._figures.begin(COORDINATOR)
        self._rings = CoordinatorRings(segment)
        reader = Reader(
            segment, settings.log_folders.text(), os.fsencode(files.queues),
            file_entries=settings.store.queue_file_entry_count,
            memory_bytes=memory_bytes(settings.store.memory_ratio_percent),
            open_files_max=descriptors.looked_at(settings, segment.serving_count))
        own, store = settings.broker, settings.store
        reader.keys = IndexReader(str(files.index), store.index_slot_count, store.index_entry_count)
        self._reader = reader
        self._own = OwnMessages(LogProducer(
            segment, COORDINATOR.producer, (own.advertised_ip, own.listen_port),
            segment.incarnation(COORDINATOR.slot)), own.cluster)
        given = self._inherited
        self._queues = SharedQueues(segment, self._now_ms, self._own, lambda: self._following)
        self._registrar = Registrar(
            settings, self._apply_order, self._adopt, self._pen, account=given.namesrv_account,
            embedded_namesrv=given.embedded_namesrv, kept_tls=given.kept_tls.settings,
            figures=self._figures)
        tables = SharedTables(segment, settings)
        self._broker = Broker(settings, Ports(
            store=reader, tables=tables, connections=self._rings, appender=self._own,
            registrar=self._registrar, passed_ms=RunClock(segment).passed_ms,
            figures=StoreFigures(segment, files, pooled=settings.store.flush == "transient-pool"),
            queues=self._queues, pulls=SharedPulls(segment), background=self._background,
            wall_ahead_ms=self._clock.wall_ahead_ms, kept_access=given.kept_access,
        ), self._changes, self._spawn, self._said.look() or b"")
        if settings.serves_pop:
            self._broker.core.grpc_serving = segment.serving_count - 1
        self._times = RequestTimes(segment)
        self._requests = ForwardedRequests(
            self._broker, self._rings, self._gone, self._now_ms, self._times)
        self._checks, self._transactions = CheckRing(segment), CheckSender(self._broker.core)
        shown = segment.log_state()["dispatched"]
        self._load()
        self._following = self._follower() if settings.has_master else None
        if self._queues.taking_over:          # a predecessor has taken over those of what was shown
            self._known_to = shown
        self._sign = MasterSign(segment)
        tables.hide_others()
        self._reconfigure()

    def _reconfigure(self) -> None:
        """The settings that this process looks at outside of the rules."""
        settings = self._broker.core.settings
        if settings is not self._registrar.settings:
            self._registrar.settings = settings
            self._reader.memory_bytes = memory_bytes(settings.store.memory_ratio_percent)
            set_log_level(settings)

    def _load(self) -> None:
        """Read the tables; one that cannot be used ends this process with a line that says why."""
        try:
            self._broker.load(self._now_ms())
        except (AclFileError, NotTaken, ConfigFileError, TablesFull, OSError) as error:
            complain(str(error))
            raise SystemExit(1) from error
        self._collector = Collector()

    def _follower(self) -> Following:
        self._figures.put("tables_age_ms", -1)        # a predecessor's is no word of this one
        try:
            return Following(self._broker.core, self._spawn,
                             lambda: self._segment.log_state()["flushed"],
                             self._inherited.kept_tls.settings)
        except TlsFileError as error:
            complain(str(error))
            raise SystemExit(1) from error

    def _look_at_election(self) -> None:
        """By the words of failover (elected.py): which broker leads, and whether it is this one."""
        if self._following is None:
            turn_if_lost(self._broker.core, self._changes, self._pen)
        if not self._settings.failover.enable or self._following is None:
            return
        if self._pen.leads:
            self._lead(self._following)
        elif self._pen.leader_version != self._leader_version:
            leader = self._pen.leader()
            if leader is not None:
                self._leader_version = leader[0]
                if is_address(leader[2]):
                    self._following.adopt(leader[2])

    def _lead(self, following: Following) -> None:
        """From now on this is the master; clients are to find it at once."""
        self._following = None
        self._follows_on.cancel()
        self._changes.turn(partial(as_elected, pen=self._pen))
        self._broker.lead(as_elected(self._broker.core.settings, self._pen), self._now_ms())
        self._known_to = following.topics_to
        self._take_over_topics()
        self._reconfigure()
        self._figures.put("tables_age_ms", -1)
        loop = asyncio.get_running_loop()
        self._at_change = [loop.create_task(following.close()), loop.create_task(self._register())]

    def _take_over_topics(self) -> None:
        """
        Topics of messages that consumers see by now; again, when they see all messages
        (leadership FO10).
        """
        taking_over = self._queues.taking_over
        self._broker.take_over_topics(self._known_to, self._now_ms())
        if not taking_over:
            self._known_to = -1

    def _adopt(self, address: str, ha_address: str) -> None:
        """A name server names this slave's master; its log may be elsewhere."""
        if self._settings.failover.enable:       # etcd says it
            return
        if self._following is not None:
            self._following.adopt(address)
        told = self._sign.address()
        if ha_address and (told is None or told[1] != ha_address):
            self._sign.show(ha_address)

    def _apply_order(self, topics: list[str]) -> None:
        self._broker.apply_order_table(topics, self._now_ms())

    async def run(self, on_ready: Callable[[], None]) -> None:
        """The coordinator's whole life: until its slot says stop."""
        loop = asyncio.get_running_loop()
        self._background = Background(loop)
        self._start()
        self._stopping = asyncio.Event()
        loop.set_exception_handler(self._on_error)
        loop.add_reader(self._segment.bell(COORDINATOR.slot), self._on_bell)
        self._segment.arm(COORDINATOR.slot)
        ticking = loop.create_task(self._tick_until_stopped())
        ticking.add_done_callback(self._on_last_tick)
        beside = [loop.create_task(self._keep_registered())]
        if self._following is not None:
            self._follows_on = loop.create_task(self._following.run())
            self._follows_on.add_done_callback(self._on_last_tick)
            beside.append(self._follows_on)
        self._drain()                    # input of the time without a coordinator
        await self._register()
        on_ready()
        await self._stopping.wait()
        for task in (*beside, ticking):
            task.cancel()
        if self._failure is not None:
            raise self._failure
        self._drain()
        until_s = time.perf_counter() + LAST_STRETCH_S
        while self._turns.waits() and time.perf_counter() < until_s:
            self._turns.step()
        while self._checks.has_work():     # how far transactions are settled: to be kept
            self._take_checks()
        loop.remove_reader(self._segment.bell(COORDINATOR.slot))
        await self._registrar.stop()
        if self._following is not None:
            await self._following.close()
        self._own.push()
        self._background.finish()
        await self._save_tables()

    async def _save_tables(self) -> None:
        """Save all that clients were told: a disk that refuses is asked again for a while."""
        wait = StopWait(self._segment, self.slot, min(
            SAVE_TRY_S, self._settings.processes.stop_timeout_ms / 1000), log)
        while True:
            try:
                self._broker.close()
                return
            except OSError as error:
                lost = self._broker.unsaved()
                if not lost:
                    log.warning("tables cannot be saved (%s): nothing that a client was told is "
                                "lost", error)
                    return
                if wait.over:
                    log.error("changes since they were saved last are lost of %s: %s",
                              ", ".join(lost), error)
                    raise UnfinishedStop from error
                wait.say(f"tables cannot be saved ({error})")
            await asyncio.sleep(SAVE_RETRY_S)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error outside of any request: this process ends, the next begins from the files."""
        loop.default_exception_handler(context)
        if "handle" in context:            # a callback of ours, not a task of the registrar
            self._failure = context.get("exception")
            self._stopping.set()

    def _on_last_tick(self, ticking: asyncio.Task[None]) -> None:
        if not ticking.cancelled() and ticking.exception() is not None:
            self._failure = ticking.exception()
            self._stopping.set()

    def _on_bell(self) -> None:
        os.eventfd_read(self._segment.bell(COORDINATOR.slot))
        self._drain()

    def _drain(self) -> None:
        """
        Take what the rings have, and work at it for a while; armed and looked at once more before
        the loop sleeps.
        """
        self._working = False
        self._segment.disarm(COORDINATOR.slot)
        self._look_at_election()
        began_s = now_s = time.perf_counter()
        said_s = began_s
        self._rings.gather(True)
        while True:
            self._receive()
            if not self._turns.waits() or now_s >= began_s + STRETCH_S:
                break
            self._turns.step()
            self._collector.look()
            now_s = time.perf_counter()
            self._times.count(now_s)
            if self._requests.urgent_said or now_s >= said_s + GATHER_S:
                said_s, self._requests.urgent_said = now_s, False
                self._rings.push_waiting()
        self._take_checks()
        self._own.push()
        self._times.count(now_s)           # what a message or a client's answer has ended
        self._rings.gather(False)
        self._rings.say_done()
        self._rings.push_waiting()
        if self._segment.stop_requested(COORDINATOR.slot):
            self._stopping.set()
        self._settle_soon()
        self._segment.arm(COORDINATOR.slot)
        if (self._turns.waits() or self._rings.has_work() or self._checks.has_work()
                or self._own.has_results()):
            self._work_soon()

    def _work_soon(self) -> None:
        if not self._working:
            self._working = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _receive(self) -> None:
        """Items of the rings go where they wait for their turn."""
        if self._rings.lost():
            for connection in self._broker.connections():
                if self._rings.is_stale(connection):
                    self._leave(connection)
            self._transactions.forget(self._rings.is_stale)
        for item in self._rings.receive(ITEMS_AT_ONCE):
            self._take(item)

    def _leave(self, connection: int) -> None:
        """
        Its end comes after its earlier frames; its look-ups end. An unknown connection without
        waiting requests needs nothing.
        """
        self._transactions.reading(connection, reads=True)
        waits = self._turns.waits_for(connection)
        if waits:
            self._gone[connection] = None
            self._turns.let_end(connection)
            if len(self._gone) > GONE_MAX:
                del self._gone[next(iter(self._gone))]
        if waits or self._broker.knows(connection):
            self._turns.add(connection, lambda: self._broker.leaving(connection), express=True)

    def _spawn(self, job: Job) -> None:
        self._turns.add(OWN, lambda: job, express=True)
        self._work_soon()

    def _take_checks(self) -> None:
        for item in self._checks.receive(ITEMS_AT_ONCE):
            if isinstance(item, CheckRequest):
                self._transactions.ask(item.group, item.frame)
            elif isinstance(item, Progress):
                self._transactions.progress(item.half_offset, item.op_offset, self._now_ms())
            else:
                self._transactions.need_topic(item.name, self._now_ms())

    def _settle_soon(self) -> None:
        """New topics reach name servers and slaves within milliseconds, not with the next tick."""
        due_ms = self._broker.change_due_in_ms(self._now_ms())
        if due_ms is None:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + (due_ms + 1) / 1000
        if self._settling is not None and self._settling.when() <= at:
            return
        if self._settling is not None:
            self._settling.cancel()
        self._settling = loop.call_at(at, self._settle)

    def _settle(self) -> None:
        self._settling = None
        self._broker.tick(self._now_ms())
        if len(self._broker.core.recalls):
            self._settle_soon()

    def _take(self, item: Forwarded | Closed | ReadState | CommittedOffset) -> None:
        if isinstance(item, Forwarded):
            self._turns.add(item.connection, partial(self._requests.begin, item),
                            express=item.urgent, size=item.size)
        elif isinstance(item, Closed):
            self._leave(item.connection)
        elif isinstance(item, ReadState):
            self._transactions.reading(item.connection, reads=item.reads)
        else:
            self._broker.commit_offset(item.group, item.topic, item.queue_id, item.offset)

    async def _tick_until_stopped(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._segment.beat(COORDINATOR.slot, self._now_ms())
            self._figures.put("longest_turn_us", int(1e6 * self._turns.longest_s))
            self._broker.tick(self._now_ms())
            if self._known_to >= 0 and not self._queues.taking_over:
                self._take_over_topics()
            for name, count in self._broker.core.counts.items():
                self._figures.put(name, count)
            if self._following is not None:
                self._figures.put("tables_age_ms", self._following.age_ms)
                self._figures.put("offsets_given_back", self._following.given_back)
            if said := self._said.look():
                self._spawn(take_said(self._broker.core, said, self._now_ms()))
            self._reconfigure()
            self._registrar.look(self._now_ms())
            self._queues.tick()
            self._reader.forget_deleted()
            self._own.push()
            self._give_memory_back()
            self._work_soon()              # what the bell did not tell: lives, answers, the stop

    def _give_memory_back(self) -> None:
        """After many large answers the C library keeps what they took; others can use it."""
        if self._rings.sent_bytes - self._trimmed_at >= TRIM_BYTES:
            self._trimmed_at = self._rings.sent_bytes
            malloc_trim(0)

    async def _keep_registered(self) -> None:
        last = time.monotonic()
        look_s = MASTER_LOOK_S
        while True:
            await asyncio.sleep(REGISTER_LOOK_S)
            interval_s = self._registrar.settings.broker.register_interval_ms / 1000
            if self._unheard:
                interval_s = REGISTER_LOOK_S
            elif self._following is not None and self._following.looks:
                interval_s = min(look_s, interval_s)
            else:
                look_s = MASTER_LOOK_S
            if time.monotonic() - last >= interval_s:
                last = time.monotonic()
                look_s *= MASTER_LOOK_GROWTH
                if await self._registrar.is_newest():
                    await self._register()

    async def _register(self) -> None:
        """Tell the name servers everything; an elected master does so until one has heard."""
        made: asyncio.Future[BrokerRegistration | None] = asyncio.get_running_loop().create_future()

        def make() -> Job:
            registration = yield from self._broker.core.registration()
            if not made.cancelled():       # by a stop
                made.set_result(registration)

        self._spawn(make())
        registration = await made
        if registration is not None:
            heard = await self._registrar.register_now(registration)
            self._unheard = not heard and self._registrar.leads_elected
