"""
One connection to a member of etcd: HTTP/1.1, by TLS or in the clear. All that is done with it ends
at a deadline, whatever crumbs the other side sends, and whoever resolves its name.
"""
from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from mqcore.failover.look_up import look_up

ANSWER_BYTES_MAX = 4 << 20
ANSWER_PIECE_BYTES = 64 << 10


class AnswerError(ValueError):
    """What came is no answer that can be used; the text says why."""


@dataclass(frozen=True)
class Answer:
    """status: of HTTP; text: the whole body."""

    status: int
    text: bytes


class Link:
    """
    address: http://host:port, or https:// with a context. Raises OSError, and TimeoutError at the
    deadline (time.monotonic).
    """

    def __init__(self, address: str, context: ssl.SSLContext | None, deadline: float) -> None:
        place = urlsplit(address)
        self._socket = _connected(place.hostname or "", place.port or 0, deadline)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if place.scheme == "https":
                assert context is not None
                self._socket.settimeout(left_s(deadline))
                self._socket = context.wrap_socket(self._socket, server_hostname=place.hostname)
        except BaseException:
            self._socket.close()
            raise
        self._timely = _Timely(self._socket, deadline)
        self._http = http.client.HTTPConnection(place.hostname or "", place.port)
        self._http.auto_open = 0
        self._http.sock = self._timely

    @property
    def is_open(self) -> bool:
        """Whether it can be asked once more: nothing has come that was not asked for."""
        return self._http.sock is not None and not self._timely.has_more

    def ask(self, method: str, path: str, body: str | None, headers: dict[str, str],
            deadline: float) -> Answer:
        """Raises OSError, http.client.HTTPException, AnswerError."""
        self._timely.deadline = deadline
        self._http.request(method, path, body, headers)
        response = self._http.getresponse()
        text = b""
        while piece := response.read1(ANSWER_PIECE_BYTES):
            text += piece
            if len(text) > ANSWER_BYTES_MAX:
                raise AnswerError(f"more than {ANSWER_BYTES_MAX} bytes of an answer")
        response.close()                 # the link is free for the next question
        return Answer(response.status, text)

    def close(self) -> None:
        self._http.close()
        self._socket.close()


def left_s(deadline: float) -> float:
    """Seconds to the deadline (time.monotonic). Raises TimeoutError when it is over."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """
    To the first address of a host that takes it, each in its share of the time. Raises OSError,
    TimeoutError, UnicodeError.
    """
    failure = OSError(f"{host} has no address")
    found = look_up(host, port, left_s(deadline))
    for untried, (family, address) in zip(range(len(found), 0, -1), found, strict=True):
        try:
            link = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:                 # a kernel without IPv6
            failure = error
            continue
        try:
            link.settimeout(left_s(deadline) / untried)
            link.connect(address)
            return link
        except OSError as error:
            link.close()
            failure = error
    raise failure


class _Timely:
    """A socket as http.client uses it; each use has the time that is left."""

    def __init__(self, link: socket.socket, deadline: float) -> None:
        self._link = link
        self.deadline = deadline

    @property
    def has_more(self) -> bool:
        """Whether it has ended, or has what nobody asked for: a second answer to a question."""
        if isinstance(self._link, ssl.SSLSocket) and self._link.pending():
            return True
        waiting = select.poll()
        waiting.register(self._link, select.POLLIN)
        return bool(waiting.poll(0))

    def sendall(self, data: bytes) -> None:
        self._link.settimeout(left_s(self.deadline))
        try:
            self._link.sendall(data)
        except ssl.SSLError:
            self._link.recv(1)           # raises what the other side has said before it closed
            raise

    def receive(self, buffer: memoryview) -> int:
        self._link.settimeout(left_s(self.deadline))
        return self._link.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Not here: what is left of an answer is still to be read."""


class _Reader(io.RawIOBase):
    """What comes on a socket."""

    def __init__(self, link: _Timely) -> None:
        self._link = link

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._link.receive(buffer)
