"""
A broker in the test's own process: no process, nothing on the disk, there in milliseconds.

Its rules are the broker's own (mqcore.broker, mqcore.namesrv); store, sends, pulls, delays and
transactions are simple ones in memory. One thread serves both over one port.
"""
from __future__ import annotations

import asyncio
import itertools
import logging
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mqcore.acl.rules import Rules as AccessRules
from mqcore.broker.core import Ports
from mqcore.broker.handlers import Broker as Rules
from mqcore.broker.ports import LastPull, PullAdvance
from mqcore.broker.registration import BrokerRegistration
from mqcore.broker.request import Answer, PendingOutcome, Redo, Request, answer_frame
from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import Settings
from mqcore.broker.tables.filters import FilterData
from mqcore.broker.tables.groups import GroupConfig
from mqcore.namesrv.handlers import Handlers as NamesrvRules
from mqcore.namesrv.kv import KeyValues
from mqcore.namesrv.routes import RouteTables
from mqcore.namesrv.runtime import RuntimeConfig
from mqcore.namesrv.settings import NamesrvSettings
from mqcore.testing.memory_messages import MemoryMessages
from mqcore.testing.memory_store import MemoryStore, wall_ms
from mqcore.testing.running import TestingError, as_text
from mqcore.turns import finished
from mqcore.wire.codes import (
    FRAME_LENGTH_MAX,
    LENGTH_WORD_SIZE,
    TIMER_TOPIC,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.command import Command, FrameError, decode, encode, request
from mqcore.wire.tags import Subscription
from mqcore.wire.topics import TopicConfig

TICK_S = 0.1
REQUEST_COUNT_MAX = 65_536          # of one connection, held pulls among them
START_TIMEOUT_S = 60.0
OWN_CONNECTION = 0

log = logging.getLogger("mqcore.testing")


class MemoryBroker:
    """
    A broker and name server in a thread of this process: `with MemoryBroker() as b: b.namesrv`.

    The same attributes as `broker()` gives: namesrv and broker (one address), store (an empty
    folder), pid (0). For clients it does: sends of all kinds (batches, one-way, replies), delays,
    retries and dead letters, transactions with check-back, pulls with long polling and tags,
    heartbeats, groups, offsets, queue locks, topics, and what mqadmin asks about these.

    It does not: keep anything, or refuse what a full disk would refuse; filter by SQL92 (such
    subscriptions are refused with code 1); honour the disk, memory and permission settings of
    stores and processes; copy half messages at each check (the question is always about the first
    one; CHECK_IMMUNITY_TIME_IN_SECONDS is ignored); count rates; survive a killed process without
    leaving its (empty) folder. Beyond 256 MiB of messages sends are refused with code 14. It
    is no model for speed.

    Raises TestingError when it cannot start.
    """

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        """`settings`: "section.key" -> value (docs/configuration.md), as for `broker`."""
        self._given = dict(settings or {})
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self.namesrv: str = ""
        self.broker: str = ""
        self.store: Path = Path()
        self.pid = 0

    def start(self) -> None:
        """Serve, until `close`; once."""
        if self._thread is not None:
            raise TestingError("a MemoryBroker can be started once")
        self._folder = tempfile.TemporaryDirectory(prefix="mqcore-memory-")
        self.store = Path(self._folder.name)
        self._thread = threading.Thread(target=self._run, name="mqcore-memory-broker", daemon=True)
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S):
            raise TestingError(f"no broker in memory within {START_TIMEOUT_S} s")
        if self._failure is not None:
            self.close()
            raise TestingError(f"the broker did not start: {self._failure}") from self._failure

    def close(self) -> None:
        """End it, and all connections; again and again without harm."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None or self._folder is None:
            return
        if loop is not None and stopping is not None and thread.is_alive():
            loop.call_soon_threadsafe(stopping.set)
        thread.join()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:          # the boundary of this thread: `start` raises it
            self._failure = error
            log.debug("the broker in memory ended", exc_info=error)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        served = _Served()
        server = await self._loop.create_server(lambda: _Connection(served), "127.0.0.1", 0)
        async with server:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            served.open(self._settings(address))
            self.namesrv = self.broker = address
            self._started.set()
            try:
                while not self._stopping.is_set():
                    served.tick()
                    try:
                        async with asyncio.timeout(TICK_S):
                            await self._stopping.wait()
                    except TimeoutError:
                        continue
            finally:
                served.end()

    def _settings(self, address: str) -> Settings:
        own: dict[str, object] = {
            "broker.name": "mqcore-memory", **self._given,
            "store.path": self.store / "store", "broker.listen_host": "127.0.0.1",
            "broker.advertised_ip": "127.0.0.1", "broker.property_filter_enable": False,
            "broker.listen_port": address.rpartition(":")[2],
        }
        return load(None, {}, [f"{key}={as_text(value)}" for key, value in own.items()])


class _Served:
    """Both sets of rules, and the connections."""

    def __init__(self) -> None:
        self.connections: dict[int, _Connection] = {}
        self.numbers = itertools.count(OWN_CONNECTION + 1)

    def open(self, settings: Settings) -> None:
        """Make the rules and their store, and register the broker."""
        settings.config_dir.mkdir(parents=True, exist_ok=True)
        names = NamesrvSettings(kv_config_path=str(settings.store_root / "kvConfig.json"),
                                runtime_config_path=str(settings.store_root / "runtime.json"))
        self._names = NamesrvRules(
            RouteTables(topic_count_max=names.topic_count_max,
                        broker_count_max=names.broker_count_max,
                        route_count_max=names.route_count_max),
            KeyValues(names.kv_file, entry_count_max=names.kv_entry_count_max,
                      value_bytes_max=names.kv_value_bytes_max, bytes_max=names.kv_bytes_max),
            RuntimeConfig(names))
        self.store = MemoryStore(settings, self._grown, self._halved)
        self._rules = Rules(settings, Ports(
            self.store, _Tables(), self, self.store, self, _Figures(self.store), self.store,
            _Pulls()))
        self.messages = MemoryMessages(self._rules.core, self.store)
        self._rules.load(wall_ms())
        registration = finished(self._rules.core.registration())
        assert registration is not None        # the built-in topics fit into a frame
        self.register(registration, one_way=True)

    def _grown(self, topic: str, queue_id: int) -> None:
        self.messages.grown(topic, queue_id)

    def _halved(self, position: int) -> None:
        self.messages.halved(position)

    def tick(self) -> None:
        """What the rules do by the clock."""
        self._rules.tick(wall_ms())

    def end(self) -> None:
        """End every connection and what waits."""
        for connection in list(self.connections.values()):
            connection.abort()
        self.messages.close()
        self.store.close()

    # -- what the rules ask for (ports.Connections, ports.Registrar) ------------------------------

    def send(self, connection: int, frame: bytes) -> None:
        found = self.connections.get(connection)
        if found is not None:
            found.write(frame)

    def offer(self, connection: int, frame: bytes) -> None:
        self.send(connection, frame)

    def close(self, connection: int) -> None:
        found = self.connections.get(connection)
        if found is not None:
            found.abort()

    def register(
        self, registration: BrokerRegistration, *, one_way: bool,
        done: Callable[[], None] | None = None,
    ) -> None:
        answer = self._names.handle(
            request(RequestCode.REGISTER_BROKER, registration.ext, registration.body),
            OWN_CONNECTION, wall_ms())
        if answer.code != ResponseCode.SUCCESS:
            log.error("the broker's topics are not registered: %s", answer.remark)
        if done is not None:
            done()

    # -- requests ---------------------------------------------------------------------------------

    def closed(self, connection: int) -> None:
        """A connection ended."""
        del self.connections[connection]
        self._rules.connection_closed(connection)

    async def answer(self, command: Command, connection: int, remote: str) -> bytes | None:
        """The frame that answers a request; None for none, or one that comes later."""
        if command.is_response:
            self._rules.handle_response(connection, command)
            return None
        if self._names.knows(command.code):
            answer = self._names.handle(command, connection, wall_ms())
            return None if command.is_oneway else encode(answer)
        asked = Request(connection, remote, command, wall_ms(), body_size=len(command.body))
        outcome = self._rules.handle(asked)
        if isinstance(outcome, PendingOutcome):    # nothing in memory outlives a kill
            outcome = outcome.outcome
        if isinstance(outcome, Redo):
            outcome = await self._redo(asked, outcome)
        return None if outcome is None else answer_frame(asked, outcome)

    async def _redo(self, asked: Request, redo: Redo) -> Answer | None:
        code = asked.command.code
        if code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            return await self.messages.pull(asked)
        if code == RequestCode.END_TRANSACTION:
            return self.messages.end_transaction(asked)
        return self.messages.send(asked, redo)


class _Connection(asyncio.Protocol):
    """One client: its frames are answered as they come, held pulls later."""

    def __init__(self, served: _Served) -> None:
        self._served = served
        self._transport: asyncio.Transport | None = None
        self._input = bytearray()
        self._remote = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self.number = next(served.numbers)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._remote = "{}:{}".format(*transport.get_extra_info("peername"))
        self._served.connections[self.number] = self

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for task in self._tasks:
            task.cancel()
        self._served.closed(self.number)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def write(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def data_received(self, data: bytes) -> None:
        self._input += data
        try:
            while len(self._input) >= LENGTH_WORD_SIZE:
                length = int.from_bytes(self._input[:LENGTH_WORD_SIZE], "big", signed=True)
                if not 0 <= length <= FRAME_LENGTH_MAX:
                    raise FrameError(f"frame length {length}: expected 0 to {FRAME_LENGTH_MAX}")
                end = LENGTH_WORD_SIZE + length
                if len(self._input) < end:
                    return
                frame = bytes(self._input[LENGTH_WORD_SIZE:end])
                del self._input[:end]
                if len(self._tasks) >= REQUEST_COUNT_MAX:
                    raise FrameError(f"{len(self._tasks)} of its requests are not answered")
                task = asyncio.get_running_loop().create_task(self._answer(decode(frame)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except FrameError as error:
            log.warning("connection from %s closed: %s", self._remote, error)
            self.abort()

    async def _answer(self, command: Command) -> None:
        try:
            frame = await self._served.answer(command, self.number, self._remote)
        except Exception as error:          # the connection boundary: one request
            log.exception("request %d from %s failed", command.code, self._remote)
            frame = answer_frame(
                Request(self.number, self._remote, command, wall_ms()),
                Answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))
        if frame is not None:
            self.write(frame)


class _Tables:
    """Nobody reads shared memory: there is none (ports.Tables)."""

    def publish_settings(self, settings: Settings) -> None: ...

    def publish_access(self, rules: AccessRules) -> None: ...
    def set_permission(self, *, readable: bool, writable: bool) -> None: ...

    def publish_topic(self, topic: TopicConfig, unsaved: bool = False) -> None: ...

    def remove_topic(self, name: str) -> None: ...

    def publish_group(self, group: GroupConfig) -> None: ...

    def remove_group(self, name: str) -> None: ...

    def publish_subscription(
        self, group: str, topic: str, subscription: Subscription | None, message_model: str
    ) -> None: ...

    def publish_filter(self, data: FilterData, now_ms: int) -> None: ...

    def remove_filter(self, group: str, topic: str) -> None: ...

    def filters(self) -> list[tuple[str, str]]:
        return []

    def publish_request(
        self, kind: str, expression: str, now_ms: int, *, program: bytes | None,
        codes: Collection[int] | None,
    ) -> None: ...


class _Pulls:
    """What was handed out is not counted (ports.Pulls)."""

    def advances(self) -> list[PullAdvance]:
        return []

    def last(self, behind_more_than_bytes: int = -1) -> list[LastPull]:
        return []


class _Figures:
    """Nothing is measured but what waits (ports.Figures)."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def runtime(self) -> Mapping[str, str]:
        return {}

    def standing(self) -> Mapping[str, Any]:
        return {"processes": [], "log": {}, "latencies": []}

    def sample(self) -> None:
        """No rates are told here."""

    def totals(self) -> tuple[int, int]:
        return 0, 0

    def delay_offsets(self) -> Mapping[int, int] | None:
        return None

    def timed(self, now_ms: int) -> Mapping[str, Any]:
        topics = self._store.timed_count
        return {"pending": sum(topics.values()), "counted": True, "topics": topics}

    def timer_cleared(self) -> tuple[int, int]:
        return self._store.end(TIMER_TOPIC, 0), self._store.log_range()[1]
