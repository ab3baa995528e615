"""The name server's connections: frames in, responses out, brokers dropped when they fall silent.

Sockets, TLS, memory and crowds are the business of a native loop (mqcore/net/framed), which
stands in one asyncio loop beside timers and files. What is asked is answered here. Networks share
the time, and in them their connections: who asks for much waits for itself, and what brokers say
of themselves goes before what others ask. A frame that cannot be read closes its own connection,
with one line in the log.
"""
from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

from mqcore.namesrv.access import LOOK_S, READS, AccessControl, Beside
from mqcore.namesrv.handlers import Caller, Handlers
from mqcore.namesrv.kv import KeyValues
from mqcore.namesrv.routes import RouteTables
from mqcore.namesrv.runtime import RuntimeConfig
from mqcore.namesrv.settings import NamesrvSettings, live_part
from mqcore.net.closed import why_closed
from mqcore.net.framed.loop import FramedLoop
from mqcore.net.secured import MODES, native_context
from mqcore.net.transport.tls_context import TlsContext
from mqcore.tls.renewed import Renewed
from mqcore.tls.settings import SERVER_FILES, TlsServerSettings
from mqcore.turns import SLICE_S, Job, Shares
from mqcore.wire.codes import FRAME_LENGTH_MAX, LENGTH_WORD_SIZE, RequestCode, ResponseCode
from mqcore.wire.command import Command, FrameError, decode_in_turns, encode, response

_LISTEN_BACKLOG = 1024
ANY_NUMBER = 1 << 31
ITSELF = 0                      # among the connections that take turns: dropping silent brokers
NO_NETWORK = ""                 # ... and whence it comes
NETWORK_BITS = 64               # of an IPv6 address: who has one has 2^64
_STRETCH_S = SLICE_S            # of work, before the loop looks at its sockets again
_TICK_S = 0.1                   # while a peer's time may be over soon
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


@dataclass(slots=True, eq=False)
class Connection:
    """One peer. number: its id, for good."""

    number: int
    remote: str
    network: str
    known: bool = False          # something was done for it: it is no new one
    express: bool = False        # its last frame was for that lane
    proved: bool = False         # access control let its last such request pass
    refused: bool = False        # it is closed: nothing is done for it


class NameServer:
    """The tables and the connections of one name server."""

    def __init__(self, settings: NamesrvSettings, sockets: list[socket.socket],
                 now_ms: Callable[[], int] = _now_ms, beside: Beside | None = None) -> None:
        """
        Loads the key-value, runtime and access files, and serves on `sockets` in the running loop.
        Raises ValueError or OSError.
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
        self.runtime = RuntimeConfig(settings)
        self.handlers = Handlers(self.routes, key_values, self.runtime)
        self.access = AccessControl(settings.acl, beside)
        self.connections: dict[int, Connection] = {}
        self.frames = FramedLoop(
            sockets, connection_max=settings.connection_count_max,
            memory_bytes=settings.connection_memory_bytes,
            frame_bytes_max=settings.frame_size_max_bytes - LENGTH_WORD_SIZE,
            output_bytes_max=settings.connection_output_bytes_max,
            idle_ms=settings.connection_idle_ms)
        self.request_count = 0
        self._refused_count = 0
        self._shares = Shares()
        self._soon = False
        self._loop = asyncio.get_running_loop()
        self._tick: asyncio.TimerHandle | None = None
        self._loop.add_reader(self.frames, self._round)

    def say(self, settings: NamesrvSettings) -> None:
        """Other settings, of which a running name server takes what is LIVE."""
        self.settings = live_part(self.settings, settings)
        self.runtime.say(self.settings)

    def secure(self, context: TlsContext | None) -> None:
        """The TLS context of new connections; None: no TLS."""
        tls = self.settings.tls
        self.frames.secure(MODES[tls.mode], context, tls.handshake_ms_max, tls.handshake_count_max)

    def close(self) -> None:
        self._loop.remove_reader(self.frames)
        if self._tick is not None:
            self._tick.cancel()
        self.frames.end()

    # -- rounds ------------------------------------------------------------------------------------

    def _round(self) -> None:
        """Take requests, do a stretch of work, send the answers."""
        self._hear()
        self._work()
        self.frames.flush()
        if self._shares.waits() or self.frames.wakeful:
            self._round_soon()
        if self.frames.hurried and self._tick is None:
            self._tick = self._loop.call_later(_TICK_S, self._look)

    def _round_soon(self) -> None:
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self._next_round)

    def _next_round(self) -> None:
        self._soon = False
        self._round()

    def _hear(self) -> None:
        for number, what in self.frames.turn(self._shares.waits()):
            if isinstance(what, tuple):
                self._begin(number, *what)
            elif what is None:
                self._end(number)
            elif not self.connections[number].refused:
                one = self.connections[number]
                self._add(one, self._serve(one, what))

    def _work(self) -> None:
        until_s = time.perf_counter() + _STRETCH_S
        while self._shares.waits() and time.perf_counter() < until_s:
            self._shares.step()

    def _look(self) -> None:
        self._tick = None
        self.frames.tick()
        self._round_soon()

    def add(self, network: str, connection: int, job: Job, *, express: bool, stays: bool) -> None:
        """Work of a connection (Shares.add)."""
        self._shares.add(network, connection, job, express=express, stays=stays)
        self._round_soon()

    def _add(self, one: Connection, job: Job) -> None:
        self.add(one.network, one.number, job, express=one.express, stays=one.known)

    # -- connections -------------------------------------------------------------------------------

    def _begin(self, number: int, host: str, port: int) -> None:
        network = network_of(host)
        one = self.connections[number] = Connection(number, f"{host}:{port}", network)
        self._shares.enter(network)
        most = self.settings.address_connection_count
        if most and self._shares.count(network) > most:
            self._refused_count += 1
            one.refused = True
            self.frames.close(number)

    def _end(self, number: int) -> None:
        one = self.connections.pop(number)
        self._shares.leave(one.network)
        if self.routes.has_registered(number):
            self.add(one.network, number, self._drop_brokers(number), express=True, stays=True)

    def _drop_brokers(self, number: int) -> Job:
        for address in (yield from self.routes.connection_closed(number)):
            log.warning("broker %s is dropped: its connection ended", address)

    def _close(self, one: Connection, reason: str) -> None:
        """End it; what it sent and was not handled is dropped."""
        if one.number in self.connections:
            log.info("connection %s closed: %s", one.remote, reason)
            self.frames.close(one.number)

    def _serve(self, one: Connection, frame: bytes | None) -> Job:
        """Its frames, one after the other, up to one that belongs in the other lane."""
        while frame is not None:
            request = yield from self._request(one, frame)
            if request is not None and self._hurries(one, request.code) is not one.express:
                one.express = not one.express
                self._add(one, self._serve_read(one, request))
                return
            frame = yield from self._finish(one, request)

    def _hurries(self, one: Connection, code: int) -> bool:
        """Where accounts are asked for, a code by itself does not open the lane of brokers."""
        return code in _EXPRESS and (one.proved or not self.access.on)

    def _serve_read(self, one: Connection, request: Command) -> Job:
        yield from self._serve(one, (yield from self._finish(one, request)))

    def _finish(self, one: Connection, request: Command | None,
                ) -> Generator[None, None, bytes | None]:
        """Answers it; the next frame."""
        answer = None if request is None else (yield from self._answer(one, request))
        if answer is not None:
            self.frames.answer(one.number, answer)
        one.known = True
        if one.number not in self.connections and self.routes.has_registered(one.number):
            yield from self._drop_brokers(one.number)        # it was closed meanwhile
        following = self.frames.done(one.number)
        yield                            # also after what needs no answer
        return following

    def _request(self, one: Connection, frame: bytes) -> Generator[None, None, Command | None]:
        """None: it asks for nothing, or ends its connection."""
        try:
            request = yield from decode_in_turns(frame, FRAME_LENGTH_MAX)
        except FrameError as error:
            self._close(one, f"bad frame: {error}")
            return None
        if request.is_response:
            return None
        self.request_count += 1
        return request

    def _answer(self, one: Connection, request: Command) -> Generator[None, None, bytes | None]:
        """None: it wants no answer, or only looks something up for a peer that is gone."""
        if request.code in READS and self.frames.is_gone(one.number):
            return None
        answer = yield from self.answer(request, one)
        if request.is_oneway:
            return None
        try:
            return encode(answer)
        except FrameError as error:
            return encode(response(request, ResponseCode.SYSTEM_ERROR, f"the answer: {error}"))

    # -- now and then ------------------------------------------------------------------------------

    def scan(self) -> None:
        """Drop silent brokers and idle connections; the server calls it every scan interval."""
        if not self._shares.waits_for(NO_NETWORK, ITSELF):
            self.add(NO_NETWORK, ITSELF, self._drop_silent(self.now_ms()), express=True, stays=True)
        self._look()
        self.tell_closed()

    def tell_closed(self) -> None:
        """Log the connections that were closed or refused."""
        events, lost = self.frames.events()
        for remote, reason, detail in events:
            log.info("connection %s closed: %s", remote, why_closed(
                reason, detail, memory="namesrv.connection_memory_bytes",
                count="namesrv.connection_count_max",
                frame_max=self.settings.frame_size_max_bytes - LENGTH_WORD_SIZE))
        refused, self._refused_count = self._refused_count, 0
        if lost or refused:
            log.warning("%d connections refused: more than %d, or more than %d of one address",
                        lost + refused, self.settings.connection_count_max,
                        self.settings.address_connection_count or ANY_NUMBER)

    def _drop_silent(self, now_ms: int) -> Job:
        gone = yield from self.routes.expire(now_ms, self.settings.broker_timeout_ms)
        for address, number in gone:
            log.warning("broker %s was silent too long and is dropped", address)
            connection = self.connections.get(number)
            if connection is not None:
                self._close(connection, "its broker was silent too long")
                self._round_soon()

    def answer(self, request: Command, one: Connection) -> Generator[None, None, Command]:
        """The response to a request; our own mistakes are logged and answered with code 1."""
        try:
            account, before = "", None
            caller = Caller(one.number, NO_NETWORK if self.access.on else one.network)
            if self.access.on:
                refusal, account = yield from self.access.judge(request, one.remote)
                if request.code in _EXPRESS:
                    one.proved = refusal is None
                if refusal is not None:
                    return refusal
                before = self.handlers.values(request)
            outcome = self.handlers.begin(request, caller, self.now_ms())
            answer = (yield from outcome) if isinstance(outcome, Generator) else outcome
            if before is not None and answer.code == ResponseCode.SUCCESS:
                self.access.changed(request, one.remote, account, before,
                                    self.handlers.values(request, answer) or {})
            return answer
        except Exception as error:      # the connection boundary: one peer's request, one answer
            log.exception("request %d failed", request.code)
            return response(request, ResponseCode.SYSTEM_ERROR, f"internal error: {error!r}")


async def serve(
    settings: NamesrvSettings, sockets: list[socket.socket], *, on_ready: Callable[[], None],
    stopping: asyncio.Event, now_ms: Callable[[], int] = _now_ms, beside: Beside | None = None,
    on_made: Callable[[NameServer], None] = lambda _: None,
) -> None:
    """Serve on listening `sockets` until `stopping` is set; then close every connection.

    `on_made` is called with the server, `on_ready` once connections are accepted. The sockets
    belong to the server from here on. Raises ValueError or OSError when the files of the name
    server cannot be read.
    """
    server = NameServer(settings, sockets, now_ms, beside)
    on_made(server)
    kept = beside.kept_tls if beside is not None else None
    renewed = Renewed(
        settings.tls, SERVER_FILES, native_context, server.secure,
        kept=None if kept is None else partial(native_context, kept, any_time=True))
    looking = [asyncio.create_task(_keep_looking(renewed, settings.tls.poll_ms / 1000)),
               asyncio.create_task(_keep_following(server, beside))]
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
                await asyncio.wait_for(stopping.wait(),
                                       server.settings.scan_interval_ms / 1000)
            except TimeoutError:
                server.scan()
    finally:
        for task in looking:
            task.cancel()
        server.close()
    if failures:
        raise failures[0]


async def _keep_following(server: NameServer, beside: Beside | None) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        await server.access.follow(_now_ms())
        server.tell_closed()
        if beside is not None:
            beside.tell("namesrv_tls_connections", server.frames.tls_connections)
            beside.tell("namesrv_tls_handshakes", server.frames.tls_handshakes)
            beside.tell("namesrv_tls_failures", server.frames.tls_failures)
            beside.tell("namesrv_access_refused", server.access.refused)
            beside.tell("namesrv_unserved_requests", server.handlers.unserved.count)
            beside.tell("namesrv_connections", len(server.connections))
            beside.tell("namesrv_brokers", server.routes.broker_count)
            beside.tell("namesrv_topics", server.routes.topic_count)
            beside.tell("namesrv_requests", server.request_count)


async def _keep_looking(
    renewed: Renewed[TlsServerSettings, TlsContext | None], interval_s: float
) -> None:
    while True:
        await asyncio.sleep(interval_s)
        renewed.look(_now_ms())
