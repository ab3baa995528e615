"""One asyncio connection to a broker or name server.

Requests of one turn of the loop leave in one write; nothing is delayed by it. Waiters for
answers stand in a table by opaque; one timer serves all deadlines.

It belongs to the loop's thread. Another thread that waits for one answer may write its one frame by
itself (`write_here`): a writer to the socket holds the gate. It may read the answer, too
(`read_here`), when it has the turn (`mqcore.client.network.reading`).
"""
from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from mqcore.client.errors import ConnectError, QueueFull, RequestTimeout, RocketMQError
from mqcore.client.native.answers import FrameReader, Waiter, take_expired, write_now
from mqcore.client.network.reading import ReadingTurn, Stored
from mqcore.wire.codes import FLAG_ONEWAY, LanguageCode, ResponseCode
from mqcore.wire.command import Command, FrameError, encode, response

CONNECT_TIMEOUT_S = 3.0
SERVER_REQUEST_COUNT_MAX = 64       # requests of the peer that are worked on at a time
PENDING_COUNT_MAX = 65_535          # as the Java client's permits (remoting.md 2.5)
_OUTPUT_BYTES_MAX = 4 * 1024 * 1024
_CORK_BYTES_MAX = 256 * 1024        # more than this does not wait for the end of the turn
_TIMER_STEP_S = 0.01

# Called with a request of the peer and the peer's address, host:port
RequestHandler = Callable[[Command, str], Awaitable[Command | None]]
# Called with the peer's address and the error that ended the connection, if one did
LostHandler = Callable[[str, Exception | None], None]

log: Final = logging.getLogger("mqcore.client")


def cannot_connect(address: str, error: Exception) -> ConnectError:
    """The error of a connection that could not be made."""
    why = repr(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"its certificate is not believed: {error.verify_message}"
    return ConnectError(f"cannot connect to {address}: {why}", broker=address)


class Call(Waiter):
    """One request whose answer is awaited."""

    def __init__(self, answer: asyncio.Future[Command], deadline: float) -> None:
        self.answer = answer
        self.deadline = deadline

    def answered(self, command: Command) -> None:
        if not self.answer.done():
            self.answer.set_result(command)

    def failed(self, error: RocketMQError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Connection(asyncio.BufferedProtocol):
    """Calls that wait for answers, one-way sends, and requests of the peer."""

    def __init__(
        self, address: str, on_request: RequestHandler | None = None,
        on_lost: LostHandler | None = None,
    ) -> None:
        """Made by `open`; `on_request` answers the peer's requests (None: code 3), `on_lost` hears
        of the end."""
        self.address = address
        self._on_lost = on_lost
        self._on_request = on_request
        self._waiting: dict[int, Waiter] = {}
        self._reader = FrameReader(self._waiting, self._serve, self._stray)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.out: bytearray = bytearray()       # frames that leave at the end of this turn
        self._flush_planned = False
        self._gate = threading.Lock()
        self._descriptor = -1                   # of the socket, if other threads may write to it
        self._turn = ReadingTurn(self._loop, self._gate, self._waiting, self._reader, self._take)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._writable = asyncio.Event()
        self._writable.set()
        self._heard_at = self._loop.time()
        self.local_host: str = ""

    @classmethod
    async def open(
        cls, host: str, port: int, *, on_request: RequestHandler | None = None,
        timeout: float = CONNECT_TIMEOUT_S, tls: ssl.SSLContext | None = None,
        on_lost: LostHandler | None = None,
    ) -> Connection:
        """Connect within `timeout`, by TLS with a context; raises ConnectError."""
        loop = asyncio.get_running_loop()
        address = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: cls(address, on_request, on_lost), host, port, ssl=tls,
                )
        except (OSError, TimeoutError, ValueError) as error:    # the last: no name of a host
            raise cannot_connect(address, error) from error
        return connection

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_writable(self) -> bool:
        """Whether the peer takes bytes."""
        return self._writable.is_set()

    @property
    def heard_at(self) -> float:
        """When bytes of the peer came last, of the loop's clock."""
        return max(self._heard_at, self._turn.heard_at)

    @property
    def pending_count(self) -> int:
        return len(self._waiting)

    async def invoke(self, request: Command, *, timeout: float = 3.0) -> Command:
        """Send a request and wait for its answer.

        Raises RequestTimeout, ConnectError when the connection is or gets
        closed, QueueFull at the limit, FrameError when it does not fit.
        """
        deadline = self._loop.time() + timeout
        await self.wait_until_writable(timeout)
        self._check_open()
        if len(self._waiting) >= PENDING_COUNT_MAX:
            raise QueueFull(f"{len(self._waiting)} requests wait for answers of {self.address}")
        if request.opaque in self._waiting:
            raise ValueError(f"opaque {request.opaque}: a request with it waits for its answer")
        frame = encode(request)
        call = Call(self._loop.create_future(), deadline)
        self.out += frame
        self.sent(request.opaque, call)
        try:
            return await call.answer
        finally:
            self._waiting.pop(request.opaque, None)

    async def send_oneway(self, request: Command, *, timeout: float = 3.0) -> None:
        """Write a request that gets no answer; raises like `invoke`, before the write."""
        request.flag |= FLAG_ONEWAY
        frame = encode(request)
        await self.wait_until_writable(timeout)
        self._check_open()
        self.out += frame
        self.plan_flush()

    async def close(self) -> None:
        """Close; calls that wait fail, handlers of the peer's requests are cancelled."""
        if self._transport is not None:
            self.flush()
            self._transport.close()
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- for who writes frames without a task ------------------------------------------------------

    def sent(self, opaque: int, waiter: Waiter) -> None:
        """A frame with this opaque was added to `out`: `waiter` is told the outcome."""
        self._waiting[opaque] = waiter
        self._turn.note_other()
        if self._timer is None or waiter.deadline < self._timer_at:
            self._arm(waiter.deadline)
        self.plan_flush()

    def plan_flush(self) -> None:
        """Frames were added to `out`: write them soon."""
        if len(self.out) >= _CORK_BYTES_MAX:
            self.flush()
        elif not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush_in_turn)

    def cork(self) -> None:
        """Nothing is written before `uncork`, which follows in the same call of the loop."""
        self._flush_planned = True

    def uncork(self) -> None:
        """Write what came since `cork`."""
        self._flush_planned = False
        self.flush()

    def flush(self) -> None:
        """Write what is in `out` now."""
        if self.out and self._transport is not None:
            with self._gate:
                out, self.out = self.out, bytearray()     # the transport may keep it
                self._transport.write(out)

    def write_here(self, opaque: int, waiter: Waiter, frame: bytearray) -> bool:
        """Write a frame in the thread of the caller, as `sent` does in the loop's.

        False: nothing was written, for something else has to be before: frames that wait, the
        connection's end, a timer for `waiter`. TLS is only the loop's.
        """
        with self._gate:
            transport = self._transport
            if (transport is None or self._descriptor < 0 or self.out or self._timer is None
                    or transport.get_write_buffer_size() or waiter.deadline < self._timer_at):
                return False
            self._waiting[opaque] = waiter
            self._turn.note_alone()
            if not write_now(self._descriptor, frame, self.out):
                self._loop.call_soon_threadsafe(self.flush)
            return True

    def read_here(self, opaque: int, waiter: Waiter) -> Stored | None:
        """What `waiter.stored` would be told of the frame that `write_here` wrote, read in the
        thread of the caller; None: the loop tells `waiter`."""
        return self._turn.read(opaque, waiter.deadline)

    def left_here(self, opaque: int) -> bool:
        """The thread that wrote a frame with `opaque`, or began to, is gone before it knew the
        outcome; in the loop. Whether a waiter for the answer is left: the loop tells it."""
        self._turn.left(opaque)
        self.flush()
        return opaque in self._waiting

    def _flush_in_turn(self) -> None:
        self._flush_planned = False
        self.flush()

    # -- what the transport calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_OUTPUT_BYTES_MAX)
        if transport.get_extra_info("sslcontext") is None:
            self._descriptor = transport.get_extra_info("socket").fileno()
            self._turn.open(transport, self._descriptor)
        name = transport.get_extra_info("sockname")
        self.local_host = str(name[0]) if name else ""

    def connection_lost(self, error: Exception | None) -> None:
        with self._gate:                # the socket is closed after this, and its number given away
            self._transport = None
            self._descriptor = -1
            self._turn.close()
            self.out = bytearray()
        self._writable.set()            # waiters learn that the connection is closed
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for waiter in waiting:
            waiter.failed(ConnectError(f"connection to {self.address} closed: {error!r}",
                                       broker=self.address, stored=None))
        if self._on_lost is not None:
            self._on_lost(self.address, error)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._loop.time()
        self._take(nbytes)
        self._turn.maybe_lend()

    def _take(self, nbytes: int = 0) -> None:
        """Go through the frames that are whole, with `nbytes` more that were read."""
        self.cork()                     # what the answers bring about needs no further turn
        try:
            self._reader.received(nbytes)
        except FrameError as error:
            log.warning("connection to %s closed: %s", self.address, error)
            self.abort()
        except Exception:               # an unforeseen answer: its waiter is told
            log.exception("an answer of %s could not be read: the connection is closed",
                          self.address)
            self.abort()
        self.uncork()

    def abort(self) -> None:
        """End the connection at once; what waits is told that its outcome is unknown."""
        if self._transport is not None:
            self._transport.abort()

    # -- inside -----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self.is_open:
            raise ConnectError(f"connection to {self.address} is closed", broker=self.address)

    async def wait_until_writable(self, timeout: float) -> None:
        """Wait until the peer takes bytes; QueueFull when it does not within `timeout` seconds."""
        if self._writable.is_set():
            return
        try:
            async with asyncio.timeout(timeout):
                await self._writable.wait()
        except TimeoutError as error:
            raise QueueFull(
                f"{self.address} did not take our bytes for {timeout} s"
            ) from error

    def _stray(self, command: Command) -> None:
        log.debug("an answer of %s with opaque %d matches no request", self.address,
                  command.opaque)

    def _serve(self, command: Command) -> None:
        if len(self._tasks) >= SERVER_REQUEST_COUNT_MAX:
            if self.is_writable:        # a peer that does not read gets no answer
                self._reply(command, response(command, ResponseCode.SYSTEM_BUSY, "client is busy"))
            return
        task = self._loop.create_task(self._handle(command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, command: Command) -> None:
        answer = None
        if self._on_request is not None:
            try:
                answer = await self._on_request(command, self.address)
            except Exception as error:      # the connection boundary: one request of the peer
                log.exception("request %d of %s failed", command.code, self.address)
                answer = response(command, ResponseCode.SYSTEM_ERROR, repr(error))
        if answer is None:
            answer = response(
                command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {command.code} not supported",
            )
        await self._writable.wait()         # a peer that only asks is not to fill memory
        self._reply(command, answer)

    def _reply(self, command: Command, answer: Command) -> None:
        answer.language = LanguageCode.PYTHON
        if not command.is_oneway and self.is_open:
            self.out += encode(answer)
            self.plan_flush()

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._loop.time()
        with self._gate:
            late, earliest = take_expired(self._waiting, now)
        if self._waiting:
            self._arm(max(earliest, now + _TIMER_STEP_S))
        for waiter in late:
            waiter.failed(RequestTimeout(f"no answer from {self.address} in time",
                                         broker=self.address, stored=None))
