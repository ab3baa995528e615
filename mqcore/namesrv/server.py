"""The name server's sockets: frames in, responses out, brokers dropped when they fall silent.

One asyncio loop, whose time networks and in them connections share (shares.py): who asks for much
waits for itself, and what brokers say of themselves goes before what others ask. Every connection
has bounds: the frame it may send, the answers that may wait for it (reading stops until they are
gone), the time it may be idle; all of them together have one (memory.py). A frame that cannot be
read closes that connection alone, with one line in the log.
"""
from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import socket
import ssl
import sys
import time
from collections.abc import Callable, Generator
from functools import partial

from mqcore.namesrv.accepting import TLS_BYTES, Accepting, Place
from mqcore.namesrv.access import LOOK_S, READS, AccessControl, Beside
from mqcore.namesrv.handlers import Handlers
from mqcore.namesrv.kv import KeyValues
from mqcore.namesrv.memory import Memory
from mqcore.namesrv.routes import RouteTables
from mqcore.namesrv.runtime import RuntimeConfig
from mqcore.namesrv.settings import NamesrvSettings
from mqcore.namesrv.shares import Shares
from mqcore.tls.bounded import EmptyRecords
from mqcore.tls.contexts import server_context
from mqcore.tls.renewed import Renewed
from mqcore.tls.settings import SERVER_FILES, TlsServerSettings
from mqcore.turns import SLICE_S, Job
from mqcore.wire.codes import FRAME_LENGTH_MAX, LENGTH_WORD_SIZE, RequestCode, ResponseCode
from mqcore.wire.command import Command, FrameError, decode_in_turns, encode, response

_BATCH_BYTES = 65_536           # answers are joined up to this size before they are written
_LISTEN_BACKLOG = 1024
ANY_NUMBER = 1 << 31
ITSELF = 0                      # among the connections that take turns: dropping silent brokers
NO_NETWORK = ""                 # ... and whence it comes
SETTLED_MS = 500                # until a connection is one that stays
NETWORK_BITS = 64               # of an IPv6 address: who has one has 2^64
_STRETCH_S = SLICE_S            # of work, before the loop looks at its sockets again
_EXPRESS = frozenset({          # of brokers: whose routes live by them
    RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.QUERY_DATA_VERSION})

log = logging.getLogger("namesrv")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000              # how long brokers and clients are silent


def network_of(host: str) -> str:
    """What of a peer's address its connections are counted by."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address.packed, NETWORK_BITS), strict=False))


def open_sockets(settings: NamesrvSettings) -> list[socket.socket]:
    """Listening sockets for the address in `settings`; raises OSError when it is taken."""
    family = socket.AF_INET6 if ":" in settings.listen_host else socket.AF_INET
    listener = socket.create_server(
        (settings.listen_host, settings.listen_port), family=family, backlog=_LISTEN_BACKLOG
    )
    return [listener]


class NameServer:
    """The tables and the open connections of one name server."""

    def __init__(self, settings: NamesrvSettings, now_ms: Callable[[], int] = _now_ms,
                 beside: Beside | None = None) -> None:
        """
        Loads the key-value, runtime and access files; raises ValueError or OSError when it cannot.
        """
        self.settings = settings
        self.now_ms = now_ms
        self.routes = RouteTables(
            topic_count_max=settings.topic_count_max, broker_count_max=settings.broker_count_max,
            route_count_max=settings.route_count_max,
        )
        key_values = KeyValues(
            settings.kv_file, entry_count_max=settings.kv_entry_count_max,
            value_bytes_max=settings.kv_value_bytes_max, bytes_max=settings.kv_bytes_max,
        )
        self.handlers = Handlers(self.routes, key_values, RuntimeConfig(settings))
        self.access = AccessControl(settings.acl, beside)
        self.connections: dict[int, Connection] = {}
        self.leaving: dict[int, Connection] = {}      # gone; what they sent before is not done yet
        self.memory = Memory(settings.connection_memory_bytes)
        self.secure_count = 0            # connections with TLS
        self.numbers = itertools.count(1)
        self._refused_count = 0
        self._places = 0
        self._shares = Shares()
        self._working = False

    def enter(self, host: str) -> Place | None:
        """A place for one more connection of a peer's address, if there is one."""
        network = network_of(host)
        most = self.settings.address_connection_count or ANY_NUMBER
        if (self._places >= self.settings.connection_count_max
                or self._shares.count(network) >= most):
            self._refused_count += 1
            return None
        self._shares.enter(network)
        self._places += 1
        return Place(network, partial(self._leave, network))

    def _leave(self, network: str) -> None:
        self._places -= 1
        self._shares.leave(network)

    def has_secure_room(self, more: int) -> bool:
        """Whether so many more with TLS have room: together they take half of the memory."""
        return 2 * (self.secure_count + more) * TLS_BYTES <= self.settings.connection_memory_bytes

    def add(self, network: str, connection: int, job: Job, *, express: bool, stays: bool) -> None:
        """Work of a connection (Shares.add)."""
        self._shares.add(network, connection, job, express=express, stays=stays)
        self._work_soon()

    def _work_soon(self) -> None:
        if not self._working:
            self._working = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._working = False
        until_s = time.perf_counter() + _STRETCH_S
        while self._shares.waits() and time.perf_counter() < until_s:
            self._shares.step()
        if self._shares.waits():
            self._work_soon()

    def scan(self) -> None:
        """Drop silent brokers and idle connections; the server calls it every scan interval."""
        now_ms = self.now_ms()
        if not self._shares.waits_for(NO_NETWORK, ITSELF):
            self.add(NO_NETWORK, ITSELF, self._drop_silent(now_ms), express=True, stays=True)
        for connection in list(self.connections.values()):
            if connection.active_ms + self.settings.connection_idle_ms < now_ms:
                connection.close("idle")
        if self._refused_count:
            log.warning("%d connections refused: more than %d, or more than %d of one address",
                        self._refused_count, self.settings.connection_count_max,
                        self.settings.address_connection_count or ANY_NUMBER)
            self._refused_count = 0

    def _drop_silent(self, now_ms: int) -> Job:
        gone = yield from self.routes.expire(now_ms, self.settings.broker_timeout_ms)
        for address, number in gone:
            log.warning("broker %s was silent too long and is dropped", address)
            connection = self.connections.get(number)
            if connection is not None:
                connection.close("its broker was silent too long")

    def answer(
        self, request: Command, connection: int, remote: str
    ) -> Generator[None, None, Command]:
        """
        The response to a request of `remote` (host:port); our own mistakes are logged and answered
        with code 1.
        """
        try:
            account, before = "", None
            if self.access.on:
                refusal, account = yield from self.access.judge(request, remote)
                if refusal is not None:
                    return refusal
                before = self.handlers.values(request)
            outcome = self.handlers.begin(request, connection, self.now_ms())
            answer = (yield from outcome) if isinstance(outcome, Generator) else outcome
            if before is not None and answer.code == ResponseCode.SUCCESS:
                self.access.changed(request, remote, account, before,
                                    self.handlers.values(request, answer) or {})
            return answer
        except Exception as error:      # the connection boundary: one peer's request, one answer
            log.exception("request %d failed", request.code)
            return response(request, ResponseCode.SYSTEM_ERROR, f"internal error: {error!r}")


class Connection(asyncio.Protocol):
    """One peer: splits its bytes into frames and answers them in order."""

    def __init__(self, server: NameServer, place: Place) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._input = bytearray()
        self._paused = False
        self._working = False        # its frames wait for their turn ...
        self._express = False        # ... in the lane of the last one
        self._peer = "?"
        self._place = place
        self._secure = False
        self.number = next(server.numbers)
        self._since_ms = self.active_ms = self.held_since_ms = server.now_ms()
        self.held_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._server.secure_count += self._secure
        transport.set_write_buffer_limits(high=self._server.settings.connection_output_bytes_max)
        self._server.connections[self.number] = self

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, EmptyRecords):
            log.info("connection %s closed: %s", self._peer, error)
        self._transport = None
        self._server.secure_count -= self._secure
        self._server.connections.pop(self.number, None)
        self._place.leave()
        if not self._working and self._frame_end(0) is not None:
            self._work_soon()            # what waited until it reads its answers
        if self._working:                # what it sent before it went is handled first
            self._server.leaving[self.number] = self
            self._tell_memory()
            return
        self._input = bytearray()
        self._tell_memory()
        if self._server.routes.has_registered(self.number):
            self._add(self._drop_brokers(), express=True, stays=True)

    def _drop_brokers(self) -> Job:
        for address in (yield from self._server.routes.connection_closed(self.number)):
            log.warning("broker %s is dropped: its connection ended", address)

    def pause_writing(self) -> None:
        """The peer does not read its answers: no more of its requests until it does."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self.held_since_ms = self._server.now_ms()
        if not self._working:
            self._work_soon()

    def data_received(self, data: bytes) -> None:
        self.active_ms = self._server.now_ms()
        self._input += data
        if self._working:            # what it has sent is enough for now
            if self._transport is not None:
                self._transport.pause_reading()
        elif self._frame_end(0) is not None:
            self._work_soon()
        self._tell_memory()

    def _work_soon(self) -> None:
        self._working = True
        self._add(self._work(), express=self._express, stays=self._stays())

    def _add(self, job: Job, *, express: bool, stays: bool) -> None:
        self._server.add(self._place.network, self.number, job, express=express, stays=stays)

    def _stays(self) -> bool:
        return self._server.now_ms() - self._since_ms >= SETTLED_MS

    def close(self, reason: str) -> None:
        """End this connection alone; what it sent and was not handled is dropped."""
        if self._transport is None and self._input:
            log.info("what %s left behind is dropped: %s", self._peer, reason)
        self._input = bytearray()
        if self._transport is not None:
            if not self._transport.is_closing():
                log.info("connection %s closed: %s", self._peer, reason)
            self._transport.abort()          # also one that waits until its answers are read

    def _is_gone(self) -> bool:
        """Whether its end was heard: nobody reads answers any more."""
        return self._transport is None or self._transport.is_closing()

    def measure(self) -> int:
        """
        The bytes that it holds: of an unfinished request, or of those that it left behind, and of
        answers that are not read.
        """
        if self._transport is None:
            return len(self._input)
        return sys.getsizeof(self._input) + self._transport.get_write_buffer_size()

    def _tell_memory(self) -> None:
        if self.held_bytes == 0:
            self.held_since_ms = self._server.now_ms()
        server = self._server
        everybody = itertools.chain(server.connections.values(), server.leaving.values())
        server.memory.changed(self, everybody, server.now_ms())

    def _work(self) -> Job:
        """
        Answer the whole frames in the input, as far as the peer takes the answers, and up to one
        that belongs in the other lane.
        """
        answers: list[bytes] = []
        answers_size = 0
        start = 0
        other_lane = False
        while not self._paused or self._is_gone():
            end = self._frame_end(start)
            if end is None:
                break
            request = yield from self._request(bytes(self._input[start + LENGTH_WORD_SIZE:end]))
            if request is not None and (request.code in _EXPRESS) is not self._express:
                other_lane = True
                break
            start = end
            answer = None if request is None else (yield from self._answer(request))
            if answer is not None:
                answers.append(answer)
                answers_size += len(answer)
            if answers_size >= _BATCH_BYTES:
                self._write(answers)
                answers, answers_size = [], 0
            yield                        # also after what needs no answer
        if answers:
            self._write(answers)
        if start and not self._paused:
            self.held_since_ms = self._server.now_ms()
        del self._input[:start]
        self._tell_memory()
        if other_lane:
            self._express = not self._express
            self._work_soon()
            return
        self._working = False
        if self._transport is None:
            self._input = bytearray()
            self._server.leaving.pop(self.number, None)
            self._tell_memory()
            yield from self._drop_brokers()
        elif not self._paused:
            self._transport.resume_reading()

    def _frame_end(self, start: int) -> int | None:
        """Where the frame at `start` ends; None when it is not all there or not acceptable."""
        available = len(self._input) - start
        if available < LENGTH_WORD_SIZE:
            return None
        length = int.from_bytes(self._input[start:start + LENGTH_WORD_SIZE], "big", signed=True)
        length_max = self._server.settings.frame_size_max_bytes - LENGTH_WORD_SIZE
        if not 0 <= length <= length_max:
            self.close(f"frame length {length}: expected at most {length_max}")
            return None
        end = start + LENGTH_WORD_SIZE + length
        return end if end <= len(self._input) else None

    def _request(self, frame: bytes) -> Generator[None, None, Command | None]:
        """None: it asks for nothing, or ends its connection."""
        try:
            request = yield from decode_in_turns(frame, FRAME_LENGTH_MAX)
        except FrameError as error:
            self.close(f"bad frame: {error}")
            return None
        return None if request.is_response else request

    def _answer(self, request: Command) -> Generator[None, None, bytes | None]:
        """None: it wants no answer, or only looks something up for somebody who is gone."""
        if self._is_gone() and request.code in READS:
            return None
        answer = yield from self._server.answer(request, self.number, self._peer)
        if request.is_oneway:
            return None
        try:
            return encode(answer)
        except FrameError as error:
            return encode(response(request, ResponseCode.SYSTEM_ERROR, f"the answer: {error}"))

    def _write(self, answers: list[bytes]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(answers))


async def serve(
    settings: NamesrvSettings, sockets: list[socket.socket], *, on_ready: Callable[[], None],
    stopping: asyncio.Event, now_ms: Callable[[], int] = _now_ms, beside: Beside | None = None,
    context: Callable[[TlsServerSettings], ssl.SSLContext | None] = server_context,
) -> None:
    """Serve on listening `sockets` until `stopping` is set; then close every connection.

    `on_ready` is called once connections are accepted; `context` makes what TLS is served with. The
    sockets belong to the server from here on. Raises ValueError or OSError when the files of the
    name server cannot be read.
    """
    server = NameServer(settings, now_ms, beside)
    accepting = Accepting(
        settings.tls, idle_ms=settings.connection_idle_ms, enter=server.enter,
        make=partial(Connection, server), room=server.has_secure_room)
    kept = beside.kept_tls if beside is not None else None
    renewed = Renewed(settings.tls, SERVER_FILES, context, accepting.use,
                      kept=None if kept is None else partial(server_context, kept))
    accepting.listen(sockets)
    looking = [asyncio.create_task(_keep_looking(renewed, settings.tls.poll_ms / 1000)),
               asyncio.create_task(_keep_following(server, accepting, beside))]
    failures: list[BaseException] = []

    def ended(task: asyncio.Task[None]) -> None:
        """Our own mistake: nobody would hear of changed files any more."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            failures.append(error)
            stopping.set()

    for task in looking:
        task.add_done_callback(ended)
    try:
        on_ready()
        while not stopping.is_set():
            try:
                await asyncio.wait_for(stopping.wait(), settings.scan_interval_ms / 1000)
            except TimeoutError:
                server.scan()
                accepting.look()
    finally:
        for task in looking:
            task.cancel()
        await accepting.close()
        for connection in list(server.connections.values()):
            connection.close("the name server stops")
    if failures:
        raise failures[0]


async def _keep_following(
    server: NameServer, accepting: Accepting, beside: Beside | None
) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        await server.access.follow(_now_ms())
        if beside is not None:
            beside.tell("namesrv_tls_connections", server.secure_count)
            beside.tell("namesrv_tls_handshakes", accepting.handshakes)
            beside.tell("namesrv_tls_failures", accepting.failures)
            beside.tell("namesrv_access_refused", server.access.refused)
            beside.tell("namesrv_unserved_requests", server.handlers.unserved.count)


async def _keep_looking(
    renewed: Renewed[TlsServerSettings, ssl.SSLContext | None], interval_s: float
) -> None:
    while True:
        await asyncio.sleep(interval_s)
        renewed.look(_now_ms())
