"""What every role of a client shares: id, connections, routes, heartbeats (client.md 1).

A producer or consumer owns one instance; nothing is shared behind the application's back.
"""
from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from mqcore.client.errors import (
    CODE_NO_NAME_SERVER,
    ClosedError,
    NoRouteError,
    RocketMQError,
    broker_error,
)
from mqcore.client.pool import ConnectionPool, client_request
from mqcore.client.route import NameServers, Routes
from mqcore.wire import fastjson, ids
from mqcore.wire.codes import MASTER_ID, RequestCode, ResponseCode
from mqcore.wire.command import Command
from mqcore.wire.topics import BodyError

HEARTBEAT_INTERVAL_S = 30.0
FIRST_HEARTBEAT_S = 1.0
ROUTE_INTERVAL_S = 30.0
CALL_TIMEOUT_S = 3.0
NAME_LENGTH_MAX = 255

log = logging.getLogger("mqcore.client")

Handler = Callable[[Command], Awaitable[Command | None]]


def name_servers_from_environment() -> str:
    """The stock's NAMESRV_ADDR, "" when it is not set."""
    return os.environ.get("NAMESRV_ADDR", "")


def check_group(group: str) -> str:
    """The group itself; raises ValueError when brokers would refuse it (client.md 2.2)."""
    allowed = all(c.isascii() and (c.isalnum() or c in "%|-_") for c in group)
    if not group or len(group) > NAME_LENGTH_MAX or not allowed:
        raise ValueError(f"group {group[:80]!r}: expected 1 to 255 of a-z A-Z 0-9 % | - _")
    return group


class ClientInstance:
    """Connections, routes and background tasks of one producer or consumer."""

    def __init__(
        self, name_servers: str | Sequence[str], *, heartbeat: Callable[[], dict[str, Any]],
        masters_only: bool, instance_name: str | None = None,
    ) -> None:
        """`heartbeat` gives the group sets of the body; `masters_only` without consumers."""
        self._heartbeat = heartbeat
        self._masters_only = masters_only
        self._instance_name = instance_name
        self._handlers: dict[int, Handler] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._heartbeat_lock = asyncio.Lock()
        self.pool = ConnectionPool(self._on_request)
        self.name_servers = NameServers(name_servers, self.pool)
        self.routes = Routes(self.name_servers)
        self.client_id = ""
        self.running = False

    async def start(self) -> None:
        """Make the client id and start the timers. Raises ClientError when not possible."""
        if self.running or self.client_id:
            raise ClosedError("a client can be started once")
        if not self.name_servers.addresses:
            raise NoRouteError(
                "no name server address: give one or set NAMESRV_ADDR", CODE_NO_NAME_SERVER)
        self.client_id = ids.client_id(instance=self._instance_name)
        self.running = True
        self.spawn(self._every(HEARTBEAT_INTERVAL_S, FIRST_HEARTBEAT_S, self.send_heartbeats))
        self.spawn(self._every(ROUTE_INTERVAL_S, ROUTE_INTERVAL_S, self.refresh_routes))

    def on(self, code: RequestCode, handler: Handler) -> None:
        """Answer requests of brokers with this code."""
        self._handlers[code] = handler

    async def _on_request(self, command: Command) -> Command | None:
        handler = self._handlers.get(command.code)
        return None if handler is None else await handler(command)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task until it ends or the instance stops; a failure is logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a background task failed", exc_info=task.exception())

    async def _every(
        self, interval_s: float, first_s: float, work: Callable[[], Awaitable[None]]
    ) -> None:
        await asyncio.sleep(first_s)
        while True:
            await work()
            await asyncio.sleep(interval_s)

    async def refresh_routes(self) -> None:
        """Ask for all known topics again; failures are logged and the old routes stay."""
        for topic in self.routes.topics:
            try:
                await self.routes.refresh(topic)
            except (RocketMQError, BodyError) as error:
                log.warning("refreshing the route of %s failed: %s", topic, error)

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
            body = fastjson.dumps({"clientID": self.client_id, **self._heartbeat()})
            for address in self.broker_addresses():
                try:
                    await self.call(address, client_request(RequestCode.HEART_BEAT, body=body))
                except RocketMQError as error:
                    log.warning("heartbeat to %s failed: %s", address, error)

    async def call(
        self, address: str, command: Command, *, timeout: float = CALL_TIMEOUT_S
    ) -> Command:
        """A call that has to succeed; raises BrokerError for another code."""
        answer = await self.pool.invoke(address, command, timeout=timeout)
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
                log.warning("unregistering from %s failed: %s", address, error)

    async def stop(self) -> None:
        """End background tasks and connections."""
        self.running = False
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.pool.close()
