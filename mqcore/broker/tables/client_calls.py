"""
Requests that the broker sends to clients, and whom their answers are for.

broker.md 7.6, remoting.md 2.5, 4.8 (RocketMQ 4.9.8: Broker2Client, NettyRemotingAbstract). A client
is asked on the connection that it made; its answer carries the opaque of the question. Every
question ends exactly once: with an answer, with its time, or with its connection. What a client has
not taken yet is bounded: later questions to it wait here until it answers earlier ones. Places
belong to all: a connection has a share of them, and when all are taken the newest question to the
connection with most makes room for one to a connection with fewer.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from mqcore.wire.command import Command, encode

if TYPE_CHECKING:
    from mqcore.broker.ports import Connections

CALL_COUNT_MAX = 4_096
CALL_BYTES_MAX = 64 << 20          # frames of calls that wait: what waits with them is no larger
SENT_BYTES_MAX = 16 << 20          # to one connection, without an answer; or one frame
SHARE_COUNT_MAX = CALL_COUNT_MAX // 8      # calls of one connection ...
SHARE_BYTES_MAX = CALL_BYTES_MAX // 4 * 3  # ... and their frames: eleven of the largest
TIMEOUT_MS_MAX = 60_000
_OPAQUE_MASK = 0x7FFF_FFFF


class CallEnd(Enum):
    """Why a call ended without an answer."""

    TIMEOUT = "the client did not answer in time"
    CLOSED = "the connection of the client was closed"
    REFUSED = "too many requests wait for clients"


Done = Callable[[Command | CallEnd], None]


@dataclass(slots=True)
class _Call:
    deadline_ms: int
    size: int
    done: Done
    frame: bytes | None        # None: it was sent


class ClientCalls:
    """
    The calls that wait, by connection and opaque.

    first_opaque: where opaques start; one that differs from run to run keeps a late answer to an
    earlier coordinator from being taken for one to this.
    """

    def __init__(self, connections: Connections, first_opaque: int = 0) -> None:
        self._connections = connections
        self._opaque = first_opaque & _OPAQUE_MASK
        self._waiting: dict[int, dict[int, _Call]] = {}
        self._sent_bytes: dict[int, int] = {}              # by connection: without an answer
        self._call_bytes: dict[int, int] = {}              # by connection: of all its calls
        self._held: dict[int, deque[int]] = {}             # opaques of calls that are not sent yet
        self._count = 0
        self._bytes = 0
        self._next_deadline_ms = 0         # no call ends earlier by time

    def __len__(self) -> int:
        return self._count

    def restart(self, first_opaque: int) -> None:
        """Opaques continue from here."""
        self._opaque = first_opaque & _OPAQUE_MASK

    def call(
        self, connection: int, command: Command, timeout_ms: int, done: Done, now_ms: int
    ) -> None:
        """
        Ask a client.

        connection  of the client (mqcore.broker.tables.clients.Client)
        command     the request; its opaque is replaced
        timeout_ms  at most TIMEOUT_MS_MAX
        done        called exactly once with the answer or with the reason why there is none: never
                    later than the first tick after the time has passed, at once when there is no
                    room for another call. It may call again.
        """
        self._opaque = opaque = (self._opaque + 1) & _OPAQUE_MASK
        frame = encode(replace(command, opaque=opaque))
        if not self._has_room(connection, len(frame)):
            done(CallEnd.REFUSED)
            return
        deadline_ms = now_ms + min(timeout_ms, TIMEOUT_MS_MAX)
        self._waiting.setdefault(connection, {})[opaque] = _Call(
            deadline_ms, len(frame), done, frame)
        if self._count == 0 or deadline_ms < self._next_deadline_ms:
            self._next_deadline_ms = deadline_ms
        self._count += 1
        self._bytes += len(frame)
        self._call_bytes[connection] = self._call_bytes.get(connection, 0) + len(frame)
        self._held.setdefault(connection, deque()).append(opaque)
        self._send_held(connection)

    def answered(self, connection: int, answer: Command) -> bool:
        """A response came; False when nobody waits for it (any more)."""
        call = self._waiting.get(connection, {}).get(answer.opaque)
        if call is None or call.frame is not None:
            return False
        self._take(connection, answer.opaque).done(answer)
        return True

    def connection_closed(self, connection: int) -> None:
        """All calls of a connection end."""
        self._held.pop(connection, None)
        for opaque in list(self._waiting.get(connection, ())):
            self._take(connection, opaque).done(CallEnd.CLOSED)

    def connections(self) -> list[int]:
        """The connections that have been asked something."""
        return list(self._waiting)

    def knows(self, connection: int) -> bool:
        """Whether it is one of `connections`."""
        return connection in self._waiting

    def expire(self, now_ms: int) -> None:
        """End the calls whose time has passed, or lies too far ahead: the clock was set back."""
        if self._count == 0 or 0 < self._next_deadline_ms - now_ms <= TIMEOUT_MS_MAX:
            return
        over, later = [], []
        for connection, calls in self._waiting.items():
            for opaque, call in calls.items():
                if 0 < call.deadline_ms - now_ms <= TIMEOUT_MS_MAX:
                    later.append(call.deadline_ms)
                else:
                    over.append((connection, opaque))
        self._next_deadline_ms = min(later, default=0)
        for connection, opaque in over:
            if opaque in self._waiting.get(connection, ()):      # `done` may have ended others
                self._take(connection, opaque).done(CallEnd.TIMEOUT)

    def _has_room(self, connection: int, size: int) -> bool:
        """Whether a further call to it is within its share; others' calls may end for it."""
        count, held = len(self._waiting.get(connection, ())), self._call_bytes.get(connection, 0)
        if count >= SHARE_COUNT_MAX or (count and held + size > SHARE_BYTES_MAX):
            return False
        while self._count >= CALL_COUNT_MAX:
            most = max(self._waiting, key=lambda one: len(self._waiting[one]))
            if len(self._waiting[most]) <= count + 1:
                return False
            self._refuse_newest(most)
        while self._bytes + size > CALL_BYTES_MAX:
            most = max(self._call_bytes, key=lambda one: self._call_bytes[one])
            if self._call_bytes[most] <= held + size:
                return False
            self._refuse_newest(most)
        return True

    def _refuse_newest(self, connection: int) -> None:
        newest = next(reversed(self._waiting[connection]))
        self._take(connection, newest).done(CallEnd.REFUSED)

    def _take(self, connection: int, opaque: int) -> _Call:
        calls = self._waiting[connection]
        call = calls.pop(opaque)
        self._call_bytes[connection] -= call.size
        if not calls:
            del self._waiting[connection]
            del self._call_bytes[connection]
        self._count -= 1
        self._bytes -= call.size
        if call.frame is None:
            self._count_sent(connection, -call.size)
            self._send_held(connection)
        return call

    def _send_held(self, connection: int) -> None:
        """Send what waits for a connection as far as there is room; ended calls are passed."""
        held = self._held.get(connection)
        while held:
            call = self._waiting.get(connection, {}).get(held[0])
            if call is not None and call.frame is not None:
                sent = self._sent_bytes.get(connection, 0)
                if sent and sent + call.size > SENT_BYTES_MAX:
                    return
                self._count_sent(connection, call.size)
                frame, call.frame = call.frame, None
                self._connections.send(connection, frame)
            held.popleft()
        self._held.pop(connection, None)

    def _count_sent(self, connection: int, size: int) -> None:
        sent = self._sent_bytes.get(connection, 0) + size
        if sent:
            self._sent_bytes[connection] = sent
        else:
            self._sent_bytes.pop(connection, None)
