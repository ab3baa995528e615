"""The shared part of a client's roles: id, connections, routes, heartbeats (client.md 1).

A producer or consumer owns one instance; nothing is shared behind the application's back.
"""
from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from mqcore.client.config import ClientConfig
from mqcore.client.core.namespace import unwrap, wrap
from mqcore.client.core.signature import sign
from mqcore.client.errors import (
    CODE_NO_NAME_SERVER,
    ConnectError,
    NoRouteError,
    RequestTimeout,
    RocketMQError,
    broker_error,
)
from mqcore.client.events import Connected, Disconnected, Event, RouteChanged, tell
from mqcore.client.message import MessageQueue
from mqcore.client.network.name_servers import NameServers, discover
from mqcore.client.network.pool import ConnectionPool, client_request
from mqcore.client.network.route import Routes
from mqcore.wire import fastjson, ids
from mqcore.wire.codes import MASTER_ID, RequestCode, ResponseCode
from mqcore.wire.command import Command

FIRST_HEARTBEAT_S = 1.0
DISCOVERY_INTERVAL_S = 120.0
DOUBT_FIRST_S = 0.5
DOUBT_GROWTH = 1.25              # a failover is seen when it has taken that much longer, at most
OUTAGE_COUNT_MAX = 1_024        # addresses whose outages are told once

T = TypeVar("T")

log: Final = logging.getLogger("mqcore.client")

Handler = Callable[[Command], Awaitable[Command | None]]
HandlerFrom = Callable[[Command, str], Awaitable[Command | None]]


async def steadily(work: Callable[[], Awaitable[None]]) -> None:
    """One round of what is done again and again: a failure is logged, and the next round comes."""
    try:
        await work()
    except Exception:
        log.exception("a round of %s failed; the next one comes", getattr(
            work, "__qualname__", work))


class ClientInstance:
    """Connections, routes and background tasks of one producer or consumer."""

    def __init__(
        self, config: ClientConfig, *, heartbeat: Callable[[], dict[str, Any]],
        masters_only: bool,
    ) -> None:
        """`heartbeat` gives the group sets of the body; `masters_only` without consumers."""
        self.config = config
        self._heartbeat = heartbeat
        self._masters_only = masters_only
        self._handlers: dict[int, HandlerFrom] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._heartbeat_lock = asyncio.Lock()
        self.pool: ConnectionPool = ConnectionPool(
            self._on_request, connect_timeout=config.connect_timeout,
            tls=config.ssl_context if callable(config.tls) else config.ssl_context(),
            prepare=self._prepare, on_open=self._on_open, on_lost=self._on_lost,
            elsewhere=config.addresses,
        )
        self.name_servers: NameServers = NameServers(config.name_servers, self.pool)
        self.routes: Routes = Routes(self.name_servers)
        self.routes.on_change(self._on_route)
        self.client_id: str = ""
        self.running: bool = False
        self._doubt_at = -2 * config.route_interval      # the next look at routes that are doubted
        self._doubt_s = 0.0                              # from the one before
        self._out_since: dict[str, float] = {}           # address -> when its outage was told

    async def start(self) -> None:
        """Make the client id and start the timers.

        Raises NoRouteError 10004 without name servers, ConnectError when discovery fails.
        """
        config = self.config
        if not self.name_servers.addresses and config.namesrv_domain:
            self.name_servers.update(await discover(
                config.namesrv_domain, config.unit_name, timeout=config.call_timeout))
            self.spawn(self._every(DISCOVERY_INTERVAL_S, DISCOVERY_INTERVAL_S, self._discover))
        if not self.name_servers.addresses:
            raise NoRouteError(
                "no name server address: give namesrv or set NAMESRV_ADDR", CODE_NO_NAME_SERVER)
        self.client_id = ids.client_id(config.client_ip, config.instance_name, config.unit_name)
        if config.stream:
            self.client_id += "@STREAM"
        self.running = True
        self.spawn(self._every(config.heartbeat_interval, FIRST_HEARTBEAT_S, self.send_heartbeats))
        self.spawn(self._every(config.route_interval, config.route_interval, self.refresh_routes))

    def wrap(self, name: str) -> str:
        """A topic or group as brokers know it: with this client's namespace (client.md 1.8)."""
        return wrap(self.config.namespace, name)

    def unwrap(self, name: str) -> str:
        """A topic or group as the application knows it."""
        return unwrap(self.config.namespace, name)

    def _prepare(self, command: Command) -> None:
        """Set the common fields of each request: language, stream flag, signature."""
        command.language = self.config.language
        if self.config.stream:
            command.ext = {**(command.ext or {}), "ReqT": "0"}
        if self.config.account is not None:
            sign(command, self.config.account)

    # -- what the application is told --------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Give an event to the application."""
        tell(self.config.on_event, event)

    @property
    def is_watched(self) -> bool:
        """Whether the application wants events."""
        return self.config.on_event is not None

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """A queue as the application knows it."""
        return MessageQueue(self.unwrap(queue.topic), queue.broker_name, queue.queue_id)

    def warn(self, error: RocketMQError, text: str, *what: object) -> None:
        """Log a failure; those of an outage as one line, until the broker is there again."""
        level = logging.WARNING
        if isinstance(error, ConnectError | RequestTimeout | NoRouteError):
            if error.broker in self._out_since or (self._out_since and not error.broker):
                level = logging.DEBUG
            elif len(self._out_since) < OUTAGE_COUNT_MAX:
                self._out_since[error.broker] = time.monotonic()
        log.log(level, text, *what)

    def _on_open(self, address: str) -> None:
        since = self._out_since.pop(address, None)
        if since is not None:
            self._out_since.pop("", None)               # an error that named no address
            log.info("%s is there again, after %.1f s", address, time.monotonic() - since)
        self.tell(Connected(client_id=self.client_id, address=address))

    def _on_lost(self, address: str, error: Exception | None) -> None:
        self.tell(Disconnected(client_id=self.client_id, address=address, error=error))

    def _on_route(self, topic: str) -> None:
        self._doubt_at, self._doubt_s = min(self._doubt_at, time.monotonic() + DOUBT_FIRST_S), 0.0
        if self.is_watched:
            self.tell(RouteChanged(
                client_id=self.client_id, topic=self.unwrap(topic),
                queues=tuple(map(self.shown, self.routes.queues_to_read(topic)))))

    # -- in the background -------------------------------------------------------------------------

    async def _discover(self) -> None:
        """Ask for the name servers again; a failure is logged and the old ones stay."""
        config = self.config
        try:
            self.name_servers.update(await discover(
                config.namesrv_domain, config.unit_name, timeout=config.call_timeout))
        except (RocketMQError, ValueError) as error:
            log.warning("looking for name servers failed: %s", error)

    def on(self, code: RequestCode, handler: Handler) -> None:
        """Answer requests of brokers with this code."""
        self.on_from(code, lambda command, address: handler(command))

    def on_from(self, code: RequestCode, handler: HandlerFrom) -> None:
        """The same for a handler that wants to know which broker asks: its host:port."""
        self._handlers[code] = handler

    async def _on_request(self, command: Command, address: str) -> Command | None:
        handler = self._handlers.get(command.code)
        return None if handler is None else await handler(command, address)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a background task until it ends or the instance stops; a failure is logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a background task failed", exc_info=task.exception())

    async def _every(
        self, interval_s: float, first_s: float, work: Callable[[], Awaitable[None]]
    ) -> None:
        await asyncio.sleep(first_s)
        while True:
            await steadily(work)
            await asyncio.sleep(interval_s)

    async def refresh_routes(self) -> None:
        """Ask for all known topics again; failures are logged and the old routes stay."""
        for topic in self.routes.topics:
            try:
                await self.routes.refresh(topic)
            except RocketMQError as error:
                self.warn(error, "refreshing the route of %s failed: %s", topic, error)

    def doubt_routes(self, error: RocketMQError) -> None:
        """
        After a call that failed: where no broker answers, or it takes no messages, another one
        may lead by now. Routes are asked for at once, then after half a second of doubt, and each
        time a quarter later. Another route ends the doubt: the next failure is another one.
        """
        if not isinstance(error, ConnectError | RequestTimeout) and (
                error.code != ResponseCode.SERVICE_NOT_AVAILABLE):
            return
        now = time.monotonic()
        if now < self._doubt_at or not self.running:
            return
        interval = self.config.route_interval
        if now - self._doubt_at > interval:
            self._doubt_s = 0.0
        self._doubt_s = min(max(DOUBT_GROWTH * self._doubt_s, DOUBT_FIRST_S), interval)
        self._doubt_at = now + self._doubt_s
        self.spawn(self.refresh_routes())

    def broker_addresses(self) -> list[str]:
        """Every broker that this client talks to."""
        found = []
        for by_id in self.routes.addresses().values():
            for broker_id, address in by_id.items():
                if broker_id == MASTER_ID or not self._masters_only:
                    found.append(address)
        return found

    async def send_heartbeats(self) -> None:
        """Heartbeat to every known broker, one after the other; overlapping calls are one."""
        if self._heartbeat_lock.locked():
            return
        async with self._heartbeat_lock:
            for address in self.broker_addresses():
                await self.greet(address)

    async def greet(self, address: str) -> None:
        """One heartbeat to one broker, so that it knows us; a failure is logged."""
        body = fastjson.dumps({"clientID": self.client_id, **self._heartbeat()})
        try:
            await self.call(address, client_request(RequestCode.HEART_BEAT, body=body))
        except RocketMQError as error:
            self.warn(error, "heartbeat to %s failed: %s", address, error)

    async def call(
        self, address: str, command: Command, *, timeout: float | None = None
    ) -> Command:
        """A call that has to succeed; raises BrokerError for another code.

        timeout   seconds; None: the configuration's call_timeout
        """
        answer = await self.pool.invoke(
            address, command, timeout=self.config.call_timeout if timeout is None else timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(answer.code, answer.remark, address)
        return answer

    async def unregister(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Tell all brokers that a group member goes; failures are logged."""
        ext = {"clientID": self.client_id, "producerGroup": producer, "consumerGroup": consumer}
        for address in self.broker_addresses():
            if not self.pool.is_open(address):
                continue                # the broker noticed the closed connection already
            try:
                await self.call(address, client_request(RequestCode.UNREGISTER_CLIENT, dict(ext)))
            except RocketMQError as error:
                self.warn(error, "unregistering from %s failed: %s", address, error)

    async def stop(self) -> None:
        """End background tasks and connections."""
        self.running = False
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.pool.close()
