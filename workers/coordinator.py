"""
The coordinator process: topics, groups, offsets, clients, locks, administration, registration.

Reads     `requests` from every serving process; the store, for look-ups
Owns      topics.json, subscriptionGroup.json, consumerOffset.json, client tables, queue locks; the
          topic, group and subscription tables in shared memory
Wakes     pull-serving (`answers`), writer (its own `appends`)
Restarts  from its files; pull-serving repeats the last heartbeat of each client to it
"""
from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mqcore.broker.core import Ports
from mqcore.broker.handlers import Broker
from mqcore.broker.ports import QueueEntry
from mqcore.broker.registration import Registration, identity
from mqcore.broker.requests import Answer, Redo, Request, answer_frame
from mqcore.broker.settings import Settings
from mqcore.broker.transaction_checks import TransactionChecks
from mqcore.client.pool import ConnectionPool
from mqcore.client.registration import Registration as Registrations
from mqcore.shm.check_ring import Check, CheckRing, Progress
from mqcore.shm.coordinator_rings import (
    Closed,
    Commit,
    CoordinatorRings,
    Forwarded,
    Hello,
    Reading,
)
from mqcore.shm.segment import Segment
from mqcore.store.index.query import IndexReader, KeyMatches
from mqcore.store.log.producer import LogProducer
from mqcore.store.reader import StoreReader
from mqcore.wire import command as wire
from mqcore.wire.codes import ResponseCode
from mqcore.workers.figures import StoreFigures
from mqcore.workers.layout import PRODUCER_COORDINATOR, SLOT_COORDINATOR, StoreFiles, memory_bytes
from mqcore.workers.own_messages import OwnMessages
from mqcore.workers.shared_pulls import SharedPulls
from mqcore.workers.shared_queues import SharedQueues
from mqcore.workers.shared_tables import SharedTables

TICK_S = 0.1
TRIM_BYTES = 8 << 20
ITEMS_AT_ONCE = 256
UNREGISTER_TIMEOUT_MS = 800

malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", int)     # of glibc alone
log = logging.getLogger("mqcore.coordinator")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Reader(StoreReader):
    """The rules' StoreReader: entries by name, and the key index."""

    keys: IndexReader

    def find_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> KeyMatches:
        return self.keys.find(topic, key, count_max, begin_ms, end_ms)

    def entry(self, topic: str, queue_id: int, offset: int) -> QueueEntry | None:
        found = super().entry(topic, queue_id, offset)
        return None if found is None else QueueEntry(*found)


class Registrar:
    """The rules' Registrar: REGISTER_BROKER to every name server, from the event loop."""

    def __init__(self, settings: Settings, on_ordered: Callable[[list[str]], None]) -> None:
        self._settings = settings
        self._registrations = Registrations(ConnectionPool())
        self._on_ordered = on_ordered
        self._tasks: set[asyncio.Task[int]] = set()

    def register(
        self, registration: Registration, *, one_way: bool, done: Callable[[], None] | None = None,
    ) -> None:
        task: asyncio.Task[int] = asyncio.get_running_loop().create_task(
            self.register_now(registration, one_way=one_way, done=done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def register_now(
        self, registration: Registration, *, one_way: bool = False,
        done: Callable[[], None] | None = None,
    ) -> int:
        """Register and wait for the answers; returns how many name servers took it."""
        try:
            results = await self._registrations.register(
                self._settings.broker.namesrv_addrs, registration.ext, registration.body,
                oneway=one_way, timeout_ms=self._settings.broker.register_timeout_ms)
        finally:
            if done is not None:
                done()
        if results and results[0].order_topics is not None:
            self._on_ordered(list(results[0].order_topics))
        return len(results)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await self._registrations.unregister(
            self._settings.broker.namesrv_addrs, identity(self._settings),
            timeout_ms=UNREGISTER_TIMEOUT_MS)
        await self._registrations.close()


class Coordinator:
    """Feeds the rules from the rings, in one asyncio loop."""

    name = "coordinator"
    slot = SLOT_COORDINATOR

    def __init__(self, settings: Settings, segment: Segment) -> None:
        self._settings = settings
        self._segment = segment
        self._settling = False
        self._trimmed_at = 0               # sent_bytes at the last look
        self._failure: BaseException | None = None

    def _start(self) -> None:
        settings, segment = self._settings, self._segment
        files = StoreFiles(settings.store_root)
        self._rings = CoordinatorRings(segment)
        reader = Reader(
            segment, settings.log_folders.text(), os.fsencode(files.queues),
            file_entries=settings.store.queue_file_entry_count,
            memory_bytes=memory_bytes(settings.store.memory_ratio_percent))
        reader.keys = IndexReader(str(files.index), settings.store.index_slot_count,
                                  settings.store.index_entry_count)
        self._reader = reader
        self._queues = SharedQueues(segment, now_ms)
        self._own = OwnMessages(LogProducer(
            segment, PRODUCER_COORDINATOR,
            (settings.broker.advertised_ip, settings.broker.listen_port),
            segment.incarnation(SLOT_COORDINATOR)), settings.broker.cluster)
        self._registrar = Registrar(settings, self._apply_order)
        tables = SharedTables(segment, settings)
        self._broker = Broker(settings, Ports(
            store=reader, tables=tables, connections=self._rings,
            appender=self._own, registrar=self._registrar,
            figures=StoreFigures(segment, files, pooled=settings.store.flush == "transient-pool"),
            queues=self._queues, pulls=SharedPulls(segment)))
        self._checks = CheckRing(segment)
        self._transactions = TransactionChecks(self._broker.core)
        self._broker.load(now_ms())
        tables.hide_others()

    def _apply_order(self, topics: list[str]) -> None:
        self._broker.apply_order_table(topics, now_ms())

    async def run(self, on_ready: Callable[[], None]) -> None:
        """The coordinator's whole life: until its slot says stop."""
        self._start()
        loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        loop.set_exception_handler(self._on_error)
        loop.add_reader(self._segment.bell(SLOT_COORDINATOR), self._on_bell)
        self._segment.arm(SLOT_COORDINATOR)
        ticking = loop.create_task(self._tick_until_stopped())
        ticking.add_done_callback(self._on_last_tick)
        registering = loop.create_task(self._keep_registered())
        self._drain()                    # what came while nobody was here
        await self._registrar.register_now(self._broker.registration())
        on_ready()
        await self._stopping.wait()
        registering.cancel()
        ticking.cancel()
        if self._failure is not None:
            raise self._failure
        self._drain()
        while self._checks.has_work():     # how far transactions are settled: to be kept
            self._take_checks()
        loop.remove_reader(self._segment.bell(SLOT_COORDINATOR))
        await self._registrar.stop()
        self._own.push()
        self._broker.close()

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
        os.eventfd_read(self._segment.bell(SLOT_COORDINATOR))
        self._drain()

    def _drain(self) -> None:
        """Take what the rings have; armed and looked at once more before the loop sleeps."""
        self._segment.disarm(SLOT_COORDINATOR)
        for item in self._rings.receive(ITEMS_AT_ONCE):
            self._take(item)
        self._take_checks()
        self._own.push()
        self._rings.push_waiting()
        if self._segment.stop_requested(SLOT_COORDINATOR):
            self._stopping.set()
        self._settle_soon()
        self._segment.arm(SLOT_COORDINATOR)
        if self._rings.has_work() or self._checks.has_work() or self._own.has_results():
            asyncio.get_running_loop().call_soon(self._drain)

    def _take_checks(self) -> None:
        for item in self._checks.receive(ITEMS_AT_ONCE):
            if isinstance(item, Check):
                self._transactions.ask(item.group, item.frame)
            elif isinstance(item, Progress):
                self._transactions.progress(item.half_offset, item.op_offset, now_ms())
            else:
                self._transactions.need_topic(item.name, now_ms())

    def _settle_soon(self) -> None:
        """New topics reach the name servers within milliseconds, not with the next tick."""
        due_ms = self._broker.change_due_in_ms(now_ms())
        if due_ms is not None and not self._settling:
            self._settling = True
            asyncio.get_running_loop().call_later((due_ms + 1) / 1000, self._settle)

    def _settle(self) -> None:
        self._settling = False
        self._broker.tick(now_ms())

    def _take(self, item: Forwarded | Closed | Reading | Hello | Commit) -> None:
        if isinstance(item, Forwarded):
            self._handle(item)
        elif isinstance(item, Closed):
            self._broker.connection_closed(item.connection)
            self._transactions.reading(item.connection, reads=True)
        elif isinstance(item, Reading):
            self._transactions.reading(item.connection, reads=item.reads)
        elif isinstance(item, Commit):
            self._broker.commit_offset(item.group, item.topic, item.queue_id, item.offset)
        else:
            self._rings.forget(item.serving)
            self._broker.connections_lost(item.serving)
            self._transactions.connections_lost(item.serving)

    def _handle(self, item: Forwarded) -> None:
        try:
            command = wire.decode(item.frame)
        except wire.FrameError as error:
            log.warning("connection from %s closed: %s", item.remote, error)
            self._rings.drop(item.connection, item.parked)
            self._rings.close(item.connection)
            return
        if command.is_response:
            if item.parked:
                self._rings.drop(item.connection, item.parked)
            self._broker.handle_response(item.connection, command)
            return
        request = Request(item.connection, item.remote, command, now_ms(), item.fast_port,
                          item.body_size)
        try:
            outcome = self._broker.handle(request)
        except Exception as error:       # the boundary of this process: one request, not all
            log.exception("request %d from %s failed", command.code, item.remote)
            outcome = Answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if isinstance(outcome, Redo):
            self._rings.redo(item.connection, item.parked, redo_header(command, outcome))
            return
        frame = None if outcome is None or item.repeated else answer_frame(request, outcome)
        if frame is not None:
            self._rings.send(item.connection, frame, item.parked)
        elif item.parked:
            self._rings.drop(item.connection, item.parked)

    async def _tick_until_stopped(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._segment.beat(SLOT_COORDINATOR, now_ms())
            self._broker.tick(now_ms())
            self._queues.tick()
            self._reader.forget_deleted()
            self._own.push()
            self._give_memory_back()
            if self._rings.push_waiting() or self._segment.stop_requested(SLOT_COORDINATOR):
                self._drain()

    def _give_memory_back(self) -> None:
        """After many large answers the C library keeps what they took; others can use it."""
        if self._rings.sent_bytes - self._trimmed_at >= TRIM_BYTES:
            self._trimmed_at = self._rings.sent_bytes
            malloc_trim(0)

    async def _keep_registered(self) -> None:
        while True:
            await asyncio.sleep(self._settings.broker.register_interval_ms / 1000)
            await self._registrar.register_now(self._broker.registration())


def redo_header(command: wire.Command, redo: Redo) -> bytes:
    """The header in plain form, with another topic or queue if the rules say so; without body."""
    ext = dict(command.ext or {})
    short = command.code != 10 and "b" in ext
    if redo.topic is not None:
        ext["b" if short else "topic"] = redo.topic
    if redo.queue_id is not None:
        ext["e" if short else "queueId"] = str(redo.queue_id)
    frame = wire.encode(replace(command, ext=ext, body=b""))
    return frame[8:]
