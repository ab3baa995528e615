"""
As much HTTP as a probe and a scraper need: GET and HEAD over HTTP/1.0 and 1.1, without a body.

A connection has a limit for its head, its idle time and the time that its answer takes. With all
connections in use a new one replaces the one that has been idle longest; without an idle one, the
one whose answer takes longest. So neither idle clients nor those that read slowly keep a probe out.
A listener for programs of this machine answers only a request that names it by an
address or as localhost: a web page whose host name resolves to this machine gets no answer (DNS
rebinding).

A request for another path than PATHS is for the page, where there is one: the whole connection goes
to a protocol of its own, with the bytes that were read.
"""
from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import string
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain

HEAD_BYTES_MAX = 8_192
CONNECTIONS_MAX = 16                   # each may hold a whole scrape while it is sent
IDLE_S = 120.0                         # between two scrapes, which are a minute apart at most
SEND_S = 30.0                          # for a piece of an answer
SENDING_S = 0.5                        # for a whole one, where no connection is free or idle
# A proxy before this server may read a field twice, or a bare line end, in another way.
ONCE = frozenset({"host", "content-length", "transfer-encoding"})
NAME_SIGNS = frozenset(string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~")
LINE_ENDS = frozenset("\r\n\0")
TEXT = "text/plain; charset=utf-8"
PATHS = ("/metrics", "/metrics/queues", "/healthz", "/readyz")


@dataclass(frozen=True)
class Asked:
    """
    A request: its path without the query, what it accepts, whether an answer in chunks is
    understood, and whether the connection stays.
    """

    path: str
    accept: str
    chunks: bool
    stays: bool


NOTHING = Asked("", "", False, False)


@dataclass(frozen=True)
class Answer:
    """pieces: of the body; they are sent one by one, so that a long one needs no memory."""

    status: HTTPStatus
    content_type: str
    pieces: Iterable[str]


class BadRequestError(ValueError):
    """A request that is not answered; the text says what was expected."""


class PageProtocol(asyncio.Protocol):
    """The protocol of a connection that asks for a page."""

    before: object = None                  # the first owner of the connection: its end closes it


class HttpServer:
    """Answers connections of one listening socket, from the running event loop."""

    def __init__(self, answer: Callable[[Asked], Answer], *, own_machine: bool,
                 page: Callable[[], Awaitable[PageProtocol]] | None = None) -> None:
        """
        own_machine: only programs of this machine reach it; page: makes the protocol of a
        connection that asks for a page.
        """
        self._answer = answer
        self._own_machine = own_machine
        self._page = page
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: dict[asyncio.Task[None], None] = {}      # without a request, oldest first
        self._sending: dict[asyncio.Task[None], float] = {}  # since then, oldest first

    async def start(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._meet, sock=listener, limit=HEAD_BYTES_MAX)

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= CONNECTIONS_MAX:
            replaced = self._replaceable()
            if replaced is None:
                writer.transport.abort()
                return
            self._forget(replaced)
            replaced.cancel()
        self._tasks.add(task)
        stays = True
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError,
                                     asyncio.CancelledError):
                while stays:
                    stays = await self._one(task, reader, writer)
        finally:
            self._forget(task)
            if not self._is_handed_over(writer):
                writer.transport.abort() if writer.transport.get_write_buffer_size() \
                    else writer.close()

    def _replaceable(self) -> asyncio.Task[None] | None:
        """The connection that a new one may replace."""
        if self._idle:
            return next(iter(self._idle))
        task, since = next(iter(self._sending.items()), (None, 0.0))
        return task if asyncio.get_running_loop().time() - since >= SENDING_S else None

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._idle.pop(task, None)
        self._sending.pop(task, None)
        self._tasks.discard(task)

    async def _one(self, task: asyncio.Task[None], reader: asyncio.StreamReader,
                   writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection stays."""
        asked, with_body = NOTHING, True
        self._idle[task] = None
        try:
            async with asyncio.timeout(IDLE_S):
                head = await reader.readuntil(b"\r\n\r\n")
            self._idle.pop(task, None)
            if self._page is not None and _path(head) not in ("", *PATHS):
                await self._hand_over(await self._page(), head, reader, writer)
                return False
            method, asked = self._understood(head)
            with_body = method == "GET"
            answer = self._answer(asked)
        except asyncio.LimitOverrunError:
            answer = _refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                              f"expected a head of at most {HEAD_BYTES_MAX} bytes")
        except BadRequestError as error:
            answer = _refused(HTTPStatus.BAD_REQUEST, str(error))
        self._sending[task] = asyncio.get_running_loop().time()
        try:
            return await self._send(writer, answer, asked, with_body=with_body)
        finally:
            self._sending.pop(task, None)

    async def _hand_over(self, page: PageProtocol, head: bytes, reader: asyncio.StreamReader,
                         writer: asyncio.StreamWriter) -> None:
        """Let `page` have the connection, with all bytes that were read."""
        transport = writer.transport
        assert isinstance(transport, asyncio.Transport)
        if transport.is_reading():
            transport.pause_reading()               # bytes that come now are the page's
        read = [head]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):          # what is there already comes without waiting
                while piece := await reader.read(HEAD_BYTES_MAX):
                    read.append(piece)
        before = transport.get_protocol()
        has_ended = reader.at_eof()                 # before the reader is told that it ended
        transport.set_protocol(page)
        page.before = writer
        before.connection_lost(None)                # it no longer belongs to the reader
        page.connection_made(transport)
        page.data_received(b"".join(read))
        if has_ended:
            page.eof_received()
        if not transport.is_closing() and not transport.is_reading():
            transport.resume_reading()

    def _is_handed_over(self, writer: asyncio.StreamWriter) -> bool:
        return not isinstance(writer.transport.get_protocol(), asyncio.StreamReaderProtocol)

    def _understood(self, head: bytes) -> tuple[str, Asked]:
        """Method and request. Raises BadRequestError."""
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        words = first.split(" ")
        if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
            raise BadRequestError("expected GET PATH HTTP/1.1 in the first line")
        method, target, version = words
        if method not in ("GET", "HEAD"):
            raise BadRequestError("expected GET or HEAD")
        fields: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or not set(name) <= NAME_SIGNS or not LINE_ENDS.isdisjoint(
                    value):
                raise BadRequestError("expected NAME: VALUE in each line of the head")
            if name.lower() in ONCE and name.lower() in fields:
                raise BadRequestError(f"expected {name.lower()} once")
            fields[name.lower()] = value.strip(" \t")
        if fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
            raise BadRequestError("expected a request without a body")
        if self._own_machine and not is_own_name(fields.get("host", "")):
            raise BadRequestError("expected an address, or localhost, as Host")
        wish, newer = fields.get("connection", "").lower(), version == "HTTP/1.1"
        return method, Asked(target.partition("?")[0], fields.get("accept", ""), newer,
                             wish != "close" if newer else wish == "keep-alive")

    async def _send(self, writer: asyncio.StreamWriter, answer: Answer, asked: Asked, *,
                    with_body: bool) -> bool:
        """
        A body of one piece has its length, others come in chunks, or end with the connection.
        Whether that stays.
        """
        pieces = iter(answer.pieces)
        first, second = _bytes(next(pieces, "")), next(pieces, None)
        chunks = second is not None and asked.chunks
        stays = asked.stays and (second is None or chunks)
        size = "Transfer-Encoding: chunked\r\n" if chunks else (
            f"Content-Length: {len(first)}\r\n" if second is None else "")
        writer.write((f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
                      f"Content-Type: {answer.content_type}\r\nCache-Control: no-store\r\n"
                      f"X-Content-Type-Options: nosniff\r\n{size}"
                      f"Connection: {'keep-alive' if stays else 'close'}\r\n\r\n").encode())
        if with_body:
            for piece in chain((first, _bytes(second or "")), map(_bytes, pieces)):
                if piece:                        # an empty chunk would be the end
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunks else piece)
                await self._drained(writer)
            if chunks:
                writer.write(b"0\r\n\r\n")
        await self._drained(writer)
        return stays

    async def _drained(self, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(SEND_S):
            await writer.drain()


def _path(head: bytes) -> str:
    """Of a request's first line, without the query; "" of a line that is none."""
    words = head.partition(b"\r\n")[0].split(b" ")
    is_request = len(words) == 3 and words[2] in (b"HTTP/1.0", b"HTTP/1.1")
    return words[1].partition(b"?")[0].decode("latin-1") if is_request else ""


def _bytes(text: str) -> bytes:
    """UTF-8. A name may hold half of a surrogate pair: a "?" stands for it."""
    return text.encode(errors="replace")


def _refused(status: HTTPStatus, why: str) -> Answer:
    return Answer(status, TEXT, [why + "\n"])


def is_own_name(host: str) -> bool:
    """Whether a Host field is missing, an address, or localhost; with a port or without."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.strip("[]")
    if name.lower() in ("", "localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
