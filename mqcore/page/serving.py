"""Connections of browsers: uvicorn's protocol, with limits that it does not have."""
from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable

import h11
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mqcore.http.server import PageProtocol
from mqcore.page.app import application
from mqcore.page.context import Site

CONNECTIONS_MAX = 64
IDLE_S = 60.0                          # between two requests, and for one to come whole
SEND_S = 30.0                          # without a byte of an answer that its browser takes
SWEEP_S = 5.0
HEAD_BYTES_MAX = 16_384


class Connection(H11Protocol, PageProtocol):
    """
    One browser's.

    heard   when it last sent something
    ended   it sends nothing more
    moved   when it last took bytes of an answer, of which `waiting` were not taken then
    """

    heard = 0.0
    ended = False
    moved = 0.0
    waiting = 0

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        self.heard = time.monotonic()
        super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]
        """It stays open for what is not answered yet; `Connections.sweep` ends it."""
        self.ended = True
        return True

    def is_stuck(self, now: float) -> bool:
        """Whether its browser has taken nothing of an answer for SEND_S."""
        size = self.transport.get_write_buffer_size()
        if size == 0 or size < self.waiting or not self.moved:
            self.moved = now
        self.waiting = size
        return now - self.moved > SEND_S

    @property
    def is_answered(self) -> bool:
        """Whether nothing is under way: an answer that lasts, such as of events, is."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or (
            self.conn.their_state is h11.SEND_BODY)


class Connections:
    """All connections of a page, in the running event loop."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = Config(app, http=Connection, ws="none", lifespan="off", log_config=None,
                              access_log=False, server_header=False, date_header=False,
                              proxy_headers=False, h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                              timeout_keep_alive=int(IDLE_S))
        self._config.load()
        self._state = ServerState()
        self._clock = clock

    def new(self) -> PageProtocol:
        """A protocol for a connection. Beyond CONNECTIONS_MAX the most idle one is ended."""
        known = self._all()
        if len(known) >= CONNECTIONS_MAX:
            idle = [one for one in known if one.is_answered] or known
            min(idle, key=lambda one: one.heard).transport.abort()
        return Connection(self._config, self._state, {})

    def _all(self) -> list[Connection]:
        return [one for one in self._state.connections if isinstance(one, Connection)]

    def sweep(self) -> None:
        """End what has been idle for IDLE_S, has its last answer, or takes none."""
        now = self._clock()
        oldest = now - IDLE_S
        for one in self._all():
            if one.is_stuck(now):
                one.transport.abort()
            elif one.is_answered and (one.ended or one.heard < oldest):
                one.transport.close() if one.ended else one.transport.abort()

    async def close(self) -> None:
        """End all connections."""
        for one in self._all():
            one.transport.abort()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def serve(site: Site, listener: socket.socket) -> None:
    """The page of a site by itself, until SIGINT or SIGTERM."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    connections = Connections(application(site))
    server = await loop.create_server(connections.new, sock=listener)
    try:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_S):
                    await stop.wait()
            connections.sweep()
    finally:
        server.close()
        await connections.close()
        await site.close()
