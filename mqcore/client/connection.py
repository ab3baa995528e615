"""One asyncio connection to a broker or name server, over the protocol core."""
from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable

from mqcore.client.core.protocol import ClientProtocol
from mqcore.client.errors import (
    ConnectError,
    QueueFull,
    RequestTimeout,
)
from mqcore.wire.codes import FLAG_ONEWAY, LanguageCode, ResponseCode
from mqcore.wire.command import Command, FrameError, encode, response

CONNECT_TIMEOUT_S = 3.0
SERVER_REQUEST_COUNT_MAX = 64       # requests of the peer that are worked on at a time
_OUTPUT_BYTES_MAX = 4 * 1024 * 1024

RequestHandler = Callable[[Command], Awaitable[Command | None]]

log = logging.getLogger("mqcore.client")


class Connection(asyncio.Protocol):
    """Calls that wait for answers, one-way sends, and requests of the peer."""

    def __init__(self, address: str, on_request: RequestHandler | None = None) -> None:
        """Made by `open`; `on_request` answers the peer's requests (None: code 3)."""
        self.address = address
        self._on_request = on_request
        self._protocol = ClientProtocol()
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._writable = asyncio.Event()
        self._writable.set()
        self.local_host = ""

    @classmethod
    async def open(
        cls, host: str, port: int, *, on_request: RequestHandler | None = None,
        timeout: float = CONNECT_TIMEOUT_S, tls: ssl.SSLContext | None = None,
    ) -> Connection:
        """Connect within `timeout`, by TLS with a context; raises ConnectError."""
        loop = asyncio.get_running_loop()
        address = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: cls(address, on_request), host, port, ssl=tls,
                )
        except (OSError, TimeoutError) as error:
            raise ConnectError(f"cannot connect to {address}: {error!r}",
                               broker=address) from error
        return connection

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def pending_count(self) -> int:
        return self._protocol.pending_count

    async def invoke(self, request: Command, *, timeout: float = 3.0) -> Command:
        """Send a request and wait for its answer.

        Raises RequestTimeout, ConnectError when the connection is or gets
        closed, QueueFull at the limit, FrameError when it does not fit.
        """
        deadline = time.monotonic() + timeout
        await self._wait_until_writable(timeout)
        transport = self._open_transport()
        now = time.monotonic()
        frame = self._protocol.start(request, deadline - now, now)
        answer: asyncio.Future[Command] = self._loop.create_future()
        self._waiting[request.opaque] = answer
        transport.write(frame)
        self._arm_timer()
        try:
            return await answer
        finally:
            self._waiting.pop(request.opaque, None)
            self._protocol.cancel(request.opaque)

    async def send_oneway(self, request: Command, *, timeout: float = 3.0) -> None:
        """Write a request that gets no answer; raises like `invoke`, before the write."""
        request.flag |= FLAG_ONEWAY
        frame = encode(request)
        await self._wait_until_writable(timeout)
        self._open_transport().write(frame)

    async def close(self) -> None:
        """Close; calls that wait fail, handlers of the peer's requests are cancelled."""
        if self._transport is not None:
            self._transport.close()
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- what the transport calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_OUTPUT_BYTES_MAX)
        name = transport.get_extra_info("sockname")
        self.local_host = str(name[0]) if name else ""

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._writable.set()            # whoever waits learns that the connection is closed
        if self._timer is not None:
            self._timer.cancel()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(
                    ConnectError(f"connection to {self.address} closed: {error!r}",
                                 broker=self.address, stored=None)
                )

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            for command in self._protocol.feed(data):
                self._take(command)
        except FrameError as error:
            log.warning("connection to %s closed: %s", self.address, error)
            if self._transport is not None:
                self._transport.abort()

    # -- inside -----------------------------------------------------------------------------------

    def _open_transport(self) -> asyncio.Transport:
        if self._transport is None or self._transport.is_closing():
            raise ConnectError(f"connection to {self.address} is closed", broker=self.address)
        return self._transport

    async def _wait_until_writable(self, timeout: float) -> None:
        if self._writable.is_set():
            return
        try:
            async with asyncio.timeout(timeout):
                await self._writable.wait()
        except TimeoutError as error:
            raise QueueFull(
                f"{self.address} did not take our bytes for {timeout} s"
            ) from error

    def _take(self, command: Command) -> None:
        if not command.is_response:
            self._serve(command)
        elif self._protocol.match(command):
            answer = self._waiting.get(command.opaque)
            if answer is not None and not answer.done():
                answer.set_result(command)
        else:
            log.debug("an answer of %s with opaque %d matches no request", self.address,
                      command.opaque)

    def _serve(self, command: Command) -> None:
        if len(self._tasks) >= SERVER_REQUEST_COUNT_MAX:
            self._reply(command, response(command, ResponseCode.SYSTEM_BUSY, "client is busy"))
            return
        task = self._loop.create_task(self._handle(command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, command: Command) -> None:
        answer = None
        if self._on_request is not None:
            try:
                answer = await self._on_request(command)
            except Exception as error:      # the connection boundary: one request of the peer
                log.exception("request %d of %s failed", command.code, self.address)
                answer = response(command, ResponseCode.SYSTEM_ERROR, repr(error))
        if answer is None:
            answer = response(
                command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {command.code} not supported",
            )
        self._reply(command, answer)

    def _reply(self, command: Command, answer: Command) -> None:
        answer.language = LanguageCode.PYTHON
        if not command.is_oneway and self.is_open and self._transport is not None:
            self._transport.write(encode(answer))

    def _arm_timer(self) -> None:
        """One timer for the earliest deadline, moved only when an earlier one comes."""
        deadline = self._protocol.next_deadline()
        if deadline is None or self._transport is None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(
            max(0.0, deadline - time.monotonic()) + 0.001, self._on_timer
        )

    def _on_timer(self) -> None:
        self._timer = None
        for opaque in self._protocol.expired(time.monotonic()):
            answer = self._waiting.get(opaque)
            if answer is not None and not answer.done():
                answer.set_exception(
                    RequestTimeout(f"no answer from {self.address} in time",
                                   broker=self.address, stored=None)
                )
        self._arm_timer()
