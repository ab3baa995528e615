"""
The name server's ports: what the first byte of a connection says decides what it speaks.

tls.md 1.1 (RocketMQ 4.9.8: NettyRemotingServer). A connection that says nothing, or does not
finish its handshake, costs a socket until its time is over; for one handshake more than are
allowed the oldest ends. Each round of the loop begins a few handshakes alone: they are expensive,
and others have their turn between them.
"""
from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mqcore.tls.contexts import trouble
from mqcore.tls.settings import TlsServerSettings

HANDSHAKE_BYTE = b"\x16"
ACCEPTS_AT_ONCE = 64
ACCEPT_PAUSE_S = 1.0               # when there is no descriptor
BEGIN_AT_ONCE = 4
SHUTDOWN_S = 5.0
# that a round of the loop takes of a connection by TLS: as many records as are in them, however
# little is in these, are worked off before others have their turn
READ_BYTES = 4 << 10
# of a connection with TLS, beside what waits in its buffers
TLS_BYTES = 64 << 10

log = logging.getLogger("namesrv")


class Place:
    """One connection's place among those that there may be; it is given back once."""

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    def leave(self) -> None:
        """The connection has ended."""
        if self._give_back is not None:
            self._give_back()
            self._give_back = None


@dataclass(eq=False)
class Arrival:
    """A connection that no protocol has yet."""

    socket: socket.socket
    address: str
    place: Place
    since: float
    begun: bool = False                    # a transport has its socket
    shaken: bool = False                   # its handshake is done

    def close(self) -> None:
        self.socket.close()
        self.place.leave()


class Accepting:
    """
    Accepts on listening sockets and hands connections to protocols.

    tls    who is served TLS; idle_ms: how long a connection may say nothing at first
    enter  a place for a connection of a host, None: there is none
    make   a protocol for one connection, which gives its place back when that has ended
    room   whether one more connection with TLS has room
    """

    def __init__(self, tls: TlsServerSettings, *, idle_ms: int,
                 enter: Callable[[str], Place | None],
                 make: Callable[[Place], asyncio.Protocol], room: Callable[[], bool]) -> None:
        self._context: ssl.SSLContext | None = None
        self._tls = tls
        self._idle_s = idle_ms / 1000
        self._enter = enter
        self._make = make
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._listeners: list[socket.socket] = []
        self._silent: dict[Arrival, None] = {}            # the oldest first
        self._line: deque[Arrival] = deque()
        self._shaking: dict[asyncio.Task[None], Arrival] = {}
        self._plain: set[asyncio.Task[None]] = set()
        self._beginning = False
        self.handshakes = 0                # that were done
        self.failures = 0

    def use(self, context: ssl.SSLContext | None) -> None:
        """What connections are served TLS with from now on; None: nobody is."""
        SSLProtocol.max_size = READ_BYTES          # of all in this process
        self._context = context

    def listen(self, listeners: list[socket.socket]) -> None:
        """Accept on these from now on; they belong here."""
        for listener in listeners:
            listener.setblocking(False)
            self._listeners.append(listener)
            self._loop.add_reader(listener, self._accept, listener)

    def look(self) -> None:
        """Close who has said nothing for too long; called now and then."""
        before = self._loop.time() - self._idle_s
        for one in [one for one in self._silent if one.since < before]:
            self._forget(one)
            one.close()

    async def close(self) -> None:
        """Accept nobody any more; connections that are made stay."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        for one in list(self._silent):
            self._forget(one)
            one.close()
        while self._line:
            self._line.popleft().close()
        tasks = [*self._shaking, *self._plain]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                peer, (host, port, *_) = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no connection can be accepted for a while: %s", error.strerror)
                self._loop.remove_reader(listener)
                self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listener)
                return
            place = self._enter(host)
            if place is None:
                peer.close()
                continue
            peer.setblocking(False)
            arrival = Arrival(peer, f"{host}:{port}", place, self._loop.time())
            self._silent[arrival] = None
            self._loop.add_reader(peer, self._look_at_first, arrival)

    def _accept_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    def _forget(self, arrival: Arrival) -> None:
        self._loop.remove_reader(arrival.socket)
        del self._silent[arrival]

    def _look_at_first(self, arrival: Arrival) -> None:
        try:
            first = arrival.socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        self._forget(arrival)
        if not first:
            arrival.close()
        elif first != HANDSHAKE_BYTE:
            self._begin_plain(arrival)
        elif self._tls.mode == "disabled" or self._context is None:
            self._refuse(arrival, "it began with TLS, and tls.mode is "
                         + ("disabled" if self._tls.mode == "disabled"
                            else f"{self._tls.mode} without tls.certificate"))
        elif not self._room():
            self._refuse(arrival, "there is no memory for one more connection with TLS")
        else:
            self._line.append(arrival)
            self._begin_soon()

    def _refuse(self, arrival: Arrival, why: str) -> None:
        log.info("connection %s closed: %s", arrival.address, why)
        arrival.close()

    def _begin_plain(self, arrival: Arrival) -> None:
        if self._tls.mode == "enforcing":
            self._refuse(arrival, "it began in the clear, and tls.mode is enforcing")
            return
        task = self._loop.create_task(self._connect(arrival))
        self._plain.add(task)
        task.add_done_callback(self._plain.discard)

    async def _connect(self, arrival: Arrival) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(arrival.place), arrival.socket)
        except OSError:                    # it has gone meanwhile
            arrival.close()

    def _begin_soon(self) -> None:
        if not self._beginning:
            self._beginning = True
            self._loop.call_soon(self._begin_some)

    def _begin_some(self) -> None:
        self._beginning = False
        for _ in range(min(BEGIN_AT_ONCE, len(self._line))):
            if len(self._shaking) >= self._tls.handshake_count_max:
                oldest = next(iter(self._shaking))
                log.info("connection %s closed: its handshake was the oldest of %d",
                         self._shaking.pop(oldest).address, self._tls.handshake_count_max)
                oldest.cancel()
            arrival = self._line.popleft()
            task = self._loop.create_task(self._shake(arrival))
            self._shaking[task] = arrival
            task.add_done_callback(partial(self._shaken, arrival))
        if self._line:
            self._begin_soon()

    def _shaken(self, arrival: Arrival, task: asyncio.Task[None]) -> None:
        self._shaking.pop(task, None)
        self.failures += not arrival.shaken
        if not arrival.begun:              # it had to go before its first step
            arrival.close()

    async def _shake(self, arrival: Arrival) -> None:
        arrival.begun = True
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(arrival.place), arrival.socket, ssl=self._context,
                ssl_handshake_timeout=self._tls.handshake_ms_max / 1000,
                ssl_shutdown_timeout=SHUTDOWN_S)
            self.handshakes += 1
            arrival.shaken = True
        except (OSError, ValueError) as error:
            log.info("connection %s closed: TLS failed: %s", arrival.address, trouble(error))
            arrival.place.leave()
        except asyncio.CancelledError:
            arrival.place.leave()
            raise
