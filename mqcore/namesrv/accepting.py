"""
The name server's ports: what the first byte of a connection says decides what it speaks.

tls.md 1.1 (RocketMQ 4.9.8: NettyRemotingServer). Who has no protocol yet is a newcomer: accepted,
silent, or in its handshake. Newcomers have an epoll of their own, which is one reader of the loop:
a turn of it takes STRETCH_S at most, however many they are, and connections that are made have
theirs between two of them. Steps of handshakes are taken by a thread (shaking.py). Who waits for it
stands in the line of its network; the lines take turns. A handshake has its time, and for one more
than are allowed the oldest ends of the network that has most of them.
"""
from __future__ import annotations

import asyncio
import logging
import select
import socket
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from mqcore.namesrv.memory import malloc_trim
from mqcore.namesrv.shaking import Shake, Steps
from mqcore.tls.contexts import trouble
from mqcore.tls.settings import TlsServerSettings

HANDSHAKE_BYTE = b"\x16"
STRETCH_S = 0.0005                 # of newcomers, in a round of the loop
EVENTS_AT_ONCE = 16
ACCEPTS_AT_ONCE = 8
ACCEPT_PAUSE_S = 1.0               # when there is no descriptor
STEPS_AT_ONCE = 4                  # that the thread has; the others wait in their lines
SHUTDOWN_S = 5.0
FREED_SHAKES = 256                 # handshakes whose memory is worth giving back
LINES_A_S = 20                     # of the log, about newcomers
# that a round of the loop takes of a connection by TLS: as many records as are in them, however
# little is in these, are worked off before others have their turn
FIRST_READ_BYTES = 4 << 10
# of a connection with TLS, beside what waits in its buffers
TLS_BYTES = 64 << 10

log = logging.getLogger("namesrv")


class Place:
    """
    One connection's place among those that there may be; it is given back once. network: what of
    its address it is counted by.
    """

    def __init__(self, network: str, give_back: Callable[[], None]) -> None:
        self.network = network
        self._give_back: Callable[[], None] | None = give_back

    def leave(self) -> None:
        """The connection has ended."""
        if self._give_back is not None:
            self._give_back()
            self._give_back = None


@dataclass(eq=False)
class NewConnection:
    """A connection that no protocol has yet."""

    socket: socket.socket
    address: str
    place: Place
    since: float
    shake: Shake | None = None
    away: bool = False                     # the thread has it
    ended: bool = False
    watched: int = 0                       # what epoll looks for


@dataclass
class Crowd:
    """Newcomers of one network, in their handshakes; the oldest first."""

    shaking: dict[NewConnection, None] = field(default_factory=dict)
    line: OrderedDict[NewConnection, None] = field(default_factory=OrderedDict)


class Accepting:
    """
    Accepts on listening sockets and hands connections to protocols.

    tls    who is served TLS; idle_ms: how long a connection may say nothing at first
    enter  a place for a connection of a host, None: there is none
    make   a protocol for one connection, which gives its place back when that has ended
    room   whether so many more connections with TLS have room
    """

    def __init__(self, tls: TlsServerSettings, *, idle_ms: int,
                 enter: Callable[[str], Place | None],
                 make: Callable[[Place], asyncio.Protocol], room: Callable[[int], bool]) -> None:
        self._context: ssl.SSLContext | None = None
        self._tls = tls
        self._idle_s = idle_ms / 1000
        self._enter = enter
        self._make = make
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._loop.add_reader(self._epoll, self._turn)
        self._listeners: dict[int, socket.socket] = {}
        self._newcomers: dict[int, NewConnection] = {}          # by descriptor
        self._silent: dict[NewConnection, None] = {}            # the oldest first
        self._shaking: dict[NewConnection, None] = {}           # the oldest first
        self._crowds: dict[str, Crowd] = {}
        self._lines: deque[Crowd] = deque()               # that somebody stands in, by turns
        self._steps: Steps | None = None
        self._slow: asyncio.Handle | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self._said, self._said_s, self._unsaid = 0, 0.0, 0
        self.handshakes = 0                # that were done
        self.failures = 0
        self._freed = 0                    # handshakes that ended since memory was given back

    def use(self, context: ssl.SSLContext | None) -> None:
        """What connections are served TLS with from now on; None: nobody is."""
        SSLProtocol.max_size = FIRST_READ_BYTES          # of all in this process
        self._context = context
        if context is not None and self._steps is None:
            self._steps = Steps()
            self._epoll.register(self._steps.bell, select.EPOLLIN)

    def listen(self, listeners: list[socket.socket]) -> None:
        """Accept on these from now on; they belong here."""
        for listener in listeners:
            listener.setblocking(False)
            self._listeners[listener.fileno()] = listener
            self._epoll.register(listener, select.EPOLLIN)

    def look(self) -> None:
        """
        Close who has said nothing for too long, and give back what a crowd's handshakes took;
        called now and then.
        """
        self._end_silent()
        if self._freed >= FREED_SHAKES and len(self._shaking) < FREED_SHAKES:
            self._freed = 0
            malloc_trim(0)                 # else the C library keeps it

    def _end_silent(self) -> None:
        """A stretch of them, the oldest first; then others have their turn."""
        before = self._loop.time() - self._idle_s
        until = time.perf_counter() + STRETCH_S
        while self._silent:
            oldest = next(iter(self._silent))
            if oldest.since >= before:
                return
            self._end(oldest)
            if time.perf_counter() > until:
                self._loop.call_soon(self._end_silent)
                return

    async def close(self) -> None:
        """Accept nobody any more; connections that are made stay."""
        self._loop.remove_reader(self._epoll)
        if self._slow is not None:
            self._slow.cancel()
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        for one in [*self._silent, *self._shaking]:
            self._end(one)
        if self._steps is not None:
            self._steps.close()
        self._epoll.close()
        tasks = [*self._connecting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the turn of newcomers ---------------------------------------------------------------------

    def _turn(self) -> None:
        """What they have, one after the other; epoll tells of the others again."""
        until = time.perf_counter() + STRETCH_S
        for descriptor, _ in self._epoll.poll(0, EVENTS_AT_ONCE):
            listener, one = self._listeners.get(descriptor), self._newcomers.get(descriptor)
            if listener is not None:
                self._accept(listener, until)
            elif one is not None:
                self._hear(one)
            elif self._steps is not None and descriptor == self._steps.bell:
                self._take_back(self._steps)
            if time.perf_counter() > until:
                return

    def _accept(self, listener: socket.socket, until: float) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                peer, (host, port, *_) = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no connection can be accepted for a while: %s", error.strerror)
                self._epoll.unregister(listener)
                self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listener)
                return
            place = self._enter(host)
            if place is None:
                peer.close()
            else:
                peer.setblocking(False)
                arrival = NewConnection(peer, f"{host}:{port}", place, self._loop.time())
                self._newcomers[peer.fileno()] = arrival
                self._silent[arrival] = None
                self._watch(arrival, select.EPOLLIN)
            if time.perf_counter() > until:
                return

    def _accept_again(self, listener: socket.socket) -> None:
        if listener.fileno() in self._listeners:
            self._epoll.register(listener, select.EPOLLIN)

    def _hear(self, arrival: NewConnection) -> None:
        if arrival in self._silent:
            self._look_at_first(arrival)
        elif arrival.watched & select.EPOLLOUT:
            self._say_on(arrival)
        else:
            self._read(arrival)

    def _look_at_first(self, arrival: NewConnection) -> None:
        try:
            first = arrival.socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._end(arrival)
        elif first != HANDSHAKE_BYTE:
            if self._tls.mode == "enforcing":
                self._end(arrival, "it began in the clear, and tls.mode is enforcing")
            else:
                self._connect(arrival, None)
        elif self._tls.mode == "disabled" or self._context is None:
            self._end(arrival, "it began with TLS, and tls.mode is "
                      + ("disabled" if self._tls.mode == "disabled"
                         else f"{self._tls.mode} without tls.certificate"))
        else:
            self._begin(arrival, self._context)

    # -- handshakes --------------------------------------------------------------------------------

    def _begin(self, arrival: NewConnection, context: ssl.SSLContext) -> None:
        if len(self._shaking) >= self._tls.handshake_count_max:
            most = max(self._crowds.values(), key=lambda crowd: len(crowd.shaking))
            self._end(next(iter(most.shaking)),
                      f"its handshake was the oldest of {self._tls.handshake_count_max}")
        if not self._room(len(self._shaking) + 1):
            self._end(arrival, "there is no memory for one more connection with TLS")
            return
        del self._silent[arrival]
        arrival.since = self._loop.time()
        arrival.shake = Shake(context)
        self._shaking[arrival] = None
        crowd = self._crowds.setdefault(arrival.place.network, Crowd())
        crowd.shaking[arrival] = None
        if self._slow is None:
            self._end_slow()
        self._read(arrival)

    def _end_slow(self) -> None:
        """Whose time is over, a stretch of them; then when that of the next one is."""
        now, time_s = self._loop.time(), self._tls.handshake_ms_max / 1000
        until = time.perf_counter() + STRETCH_S
        self._slow = None
        while self._shaking:
            oldest = next(iter(self._shaking))
            if oldest.since + time_s > now:
                self._slow = self._loop.call_at(oldest.since + time_s, self._end_slow)
                return
            self._end(oldest, f"its TLS handshake is not done after {1000 * time_s:.0f} ms")
            if time.perf_counter() > until:
                self._slow = self._loop.call_soon(self._end_slow)
                return

    def _read(self, arrival: NewConnection) -> None:
        assert arrival.shake is not None
        try:
            data = arrival.socket.recv(FIRST_READ_BYTES)
            if not data:
                self._end(arrival)
                return
            arrival.shake.take(data)
        except (BlockingIOError, InterruptedError):
            self._watch(arrival, select.EPOLLIN)
            return
        except OSError as error:
            self._end(arrival, f"TLS failed: {trouble(error)}")
            return
        self._watch(arrival, 0)            # until the step is back
        crowd = self._crowds[arrival.place.network]
        if not crowd.line:
            self._lines.append(crowd)
        crowd.line[arrival] = None
        self._hand_over()

    def _hand_over(self) -> None:
        """Those whose turn it is, one of each line after the other."""
        assert self._steps is not None
        while self._lines and self._steps.count < STEPS_AT_ONCE:
            crowd = self._lines.popleft()
            arrival, _ = crowd.line.popitem(last=False)
            if crowd.line:
                self._lines.append(crowd)
            assert arrival.shake is not None
            arrival.away = True
            self._steps.ask(arrival.shake, arrival)

    def _take_back(self, steps: Steps) -> None:
        """One of them; the bell tells of the others again."""
        arrival = steps.take()
        if arrival is None:
            return
        assert isinstance(arrival, NewConnection)
        arrival.away = False
        if not arrival.ended:
            self._go_on(arrival)
        self._hand_over()

    def _go_on(self, arrival: NewConnection) -> None:
        shake = arrival.shake
        assert shake is not None
        if shake.done:
            self.handshakes += 1
            self._leave_crowd(arrival)
            self._connect(arrival, shake.shaken())
        elif shake.error is not None:
            self._send(arrival, shake)     # why, if it can be sent now
            self._end(arrival, f"TLS failed: {trouble(shake.error)}")
        else:
            self._say_on(arrival)

    def _say_on(self, arrival: NewConnection) -> None:
        assert arrival.shake is not None
        if not self._send(arrival, arrival.shake):
            self._end(arrival)
        else:
            self._watch(arrival, select.EPOLLOUT if arrival.shake.output() else select.EPOLLIN)

    def _send(self, arrival: NewConnection, shake: Shake) -> bool:
        """As much as goes; False: it has gone."""
        try:
            output = shake.output()
            if output:
                shake.sent(arrival.socket.send(output))
        except (BlockingIOError, InterruptedError):
            pass                           # epoll tells when
        except OSError:
            return False
        return True

    # -- ways out ----------------------------------------------------------------------------------

    def _watch(self, arrival: NewConnection, wanted: int) -> None:
        if wanted == arrival.watched:
            return
        if not arrival.watched:
            self._epoll.register(arrival.socket, wanted)
        elif wanted:
            self._epoll.modify(arrival.socket, wanted)
        else:                              # else epoll would tell of its end without end
            self._epoll.unregister(arrival.socket)
        arrival.watched = wanted

    def _forget(self, arrival: NewConnection) -> None:
        self._watch(arrival, 0)
        del self._newcomers[arrival.socket.fileno()]

    def _leave_crowd(self, arrival: NewConnection) -> None:
        del self._shaking[arrival]
        self._freed += 1
        crowd = self._crowds[arrival.place.network]
        del crowd.shaking[arrival]
        if arrival in crowd.line:
            del crowd.line[arrival]
            if not crowd.line:
                self._lines.remove(crowd)
        if not crowd.shaking:
            del self._crowds[arrival.place.network]

    def _end(self, arrival: NewConnection, why: str = "") -> None:
        """Of one that gets no protocol; why: "" when it went itself, or said nothing."""
        arrival.ended = True
        if arrival in self._shaking:
            self.failures += 1
            self._leave_crowd(arrival)
        else:
            del self._silent[arrival]
        self._forget(arrival)
        arrival.socket.close()
        arrival.place.leave()
        if why:
            self._tell(f"connection {arrival.address} closed: {why}")

    def _tell(self, line: str) -> None:
        """In the log, LINES_A_S of them: peers can make many."""
        now = self._loop.time()
        if now - self._said_s >= 1:
            if self._unsaid:
                log.info("%d more connections were closed before they were made", self._unsaid)
            self._said, self._said_s, self._unsaid = 0, now, 0
        if self._said < LINES_A_S:
            self._said += 1
            log.info("%s", line)
        else:
            self._unsaid += 1

    def _connect(self, arrival: NewConnection, shaken: ssl.SSLContext | None) -> None:
        """asyncio goes on with it."""
        self._silent.pop(arrival, None)
        self._forget(arrival)
        task = self._loop.create_task(self._hand_to_asyncio(arrival, shaken))
        self._connecting.add(task)
        task.add_done_callback(partial(self._connected, arrival))

    async def _hand_to_asyncio(self, arrival: NewConnection, shaken: ssl.SSLContext | None) -> None:
        await self._loop.connect_accepted_socket(
            lambda: self._make(arrival.place), arrival.socket, ssl=shaken,
            ssl_shutdown_timeout=SHUTDOWN_S if shaken else None)

    def _connected(self, arrival: NewConnection, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        arrival.socket.close()             # it has gone meanwhile, or the name server stops
        arrival.place.leave()
        if error is not None and not isinstance(error, OSError):
            log.error("connection %s closed", arrival.address, exc_info=error)
