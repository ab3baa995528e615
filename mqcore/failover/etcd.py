"""
Questions to etcd by the JSON gateway of its v3 API, which every member of 3.4 and later has.

One question at a time, each with a timeout. An answer that does not come, or is no plain yes or no,
is one that is lost: whether etcd has done what was asked is not known then, and it may still do it.
"""
from __future__ import annotations

import base64
import http.client
import io
import json
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ANSWER_BYTES_MAX = 4 << 20
PIECE_BYTES = 64 << 10
UNAUTHENTICATED = 401
DIGITS_MAX = 20                   # of a number of 64 bits


class EtcdError(RuntimeError):
    """The answer is lost, or says nothing about what became of the question; the text says why."""


@dataclass(frozen=True)
class Key:
    """One key: its value, the revision of its last change, and its lease, 0: none."""

    name: str
    value: bytes
    revision: int
    lease: int


@dataclass(frozen=True)
class Put:
    """A change in a transaction; value: None: the key is taken away; lease: 0: it has none."""

    name: str
    value: bytes | None
    lease: int = 0


class Etcd:
    """
    A client of one etcd, at one of several addresses (http://host:port): when one fails, the next.

    timeout_s: of one question; context: for https; account: user and password, None: nobody asks.
    """

    def __init__(self, addresses: Sequence[str], timeout_s: float,
                 context: ssl.SSLContext | None = None,
                 account: tuple[str, str] | None = None) -> None:
        self._addresses = tuple(addresses)
        self._timeout_s = timeout_s
        self._context = context
        self._account = account
        self._token = ""
        self._place = 0
        self._link: HTTPConnection | None = None
        self._until = 0.0                # the present question may take; time.monotonic

    @property
    def address(self) -> str:
        """That the next question goes to."""
        return self._addresses[self._place]

    def grant(self, seconds: int) -> int:
        """A new lease, which runs out so many seconds later, or later still. Raises EtcdError."""
        answer = self._ask("/v3/lease/grant", {"TTL": str(seconds)})
        if _number(answer, "TTL") < seconds:
            raise EtcdError(f"{self.address}: no lease of {seconds} s: {answer!r:.80}")
        return _number(answer, "ID", least=1)

    def below(self, prefix: str) -> list[Key]:
        """All keys that begin so, as they are now for all of etcd. Raises EtcdError."""
        start = prefix.encode()
        answer = self._ask("/v3/kv/range", {
            "key": _text(start), "range_end": _text(start[:-1] + bytes((start[-1] + 1,)))})
        keys = answer.get("kvs", [])
        if not isinstance(keys, list) or "header" not in answer or (
                len(keys) != _number(answer, "count")):
            raise EtcdError(f"{self.address}: no answer about keys: {answer!r:.80}")
        return [self._key(one) for one in keys]

    def transact(self, compared: Sequence[tuple[str, int]], changes: Sequence[Put]) -> bool:
        """
        Make all changes, if each key has the revision that stands with it (0: there is none);
        False: one has not, and nothing is changed. Raises EtcdError.
        """
        answer = self._ask("/v3/kv/txn", {
            "compare": [{"key": _text(name.encode()), "target": "MOD", "result": "EQUAL",
                         "mod_revision": str(revision)} for name, revision in compared],
            "success": [_operation(change) for change in changes]})
        succeeded = answer.get("succeeded", False)
        if not isinstance(succeeded, bool) or "header" not in answer:
            raise EtcdError(f"{self.address}: no answer to a transaction: {answer!r:.80}")
        return succeeded

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    # -- one question ------------------------------------------------------------------------------

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._until = time.monotonic() + self._timeout_s
        if self._account is not None and not self._token:
            user, password = self._account
            answer = self._post("/v3/auth/authenticate", {"name": user, "password": password})
            token = answer.get("token")
            if not isinstance(token, str) or not token or not token.isprintable():
                raise EtcdError(f"{self.address}: no token for user {user}")
            self._token = token
        return self._post(path, body)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What fails before the question has left goes on at the next address, once around."""
        for _ in self._addresses:
            try:
                link = self._connected()
                break
            except OSError as error:
                failure = EtcdError(f"{self.address}: {error or type(error).__name__}")
                self._next()
        else:
            raise failure
        try:
            return self._answer(link, path, body)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            failed = EtcdError(f"{self.address}: {error or type(error).__name__}")
            self._next()
            raise failed from None
        except EtcdError:
            self._next()
            raise

    def _left_s(self) -> float:
        """Of the present question. Raises TimeoutError."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def _connected(self) -> HTTPConnection:
        """A link on which nothing has come that was not asked for."""
        link = self._link
        if link is not None and link.sock is not None and not _has_more(link.sock):
            link.sock.settimeout(self._left_s())
            return link
        self.close()
        place, left_s = urlsplit(self.address), self._left_s()
        if place.scheme == "https":
            link = http.client.HTTPSConnection(place.hostname or "", place.port, timeout=left_s,
                                               context=self._context)
        else:
            link = HTTPConnection(place.hostname or "", place.port, timeout=left_s)
        link.response_class = _answers(self._left_s)
        link.connect()
        self._link = link
        return link

    def _answer(self, link: HTTPConnection, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = self._token
        link.request("POST", path, json.dumps(body), headers)
        response = link.getresponse()
        text = bytearray()
        while piece := response.read1(PIECE_BYTES):
            text += piece
            if len(text) > ANSWER_BYTES_MAX:
                raise EtcdError(f"{self.address}: more than {ANSWER_BYTES_MAX} bytes of an answer")
        response.close()                 # the link is free for the next question
        if response.status == UNAUTHENTICATED:
            self._token = ""
        if response.status != http.client.OK:
            raise EtcdError(f"{self.address}: {response.status} "
                            f"{text[:200].decode(errors='replace')!r}")
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise EtcdError(f"{self.address}: expected an object, {text[:80]!r}")
        return answer

    def _next(self) -> None:
        self.close()
        self._token = ""
        self._place = (self._place + 1) % len(self._addresses)

    def _key(self, one: object) -> Key:
        if not isinstance(one, dict):
            raise EtcdError(f"{self.address}: a key {one!r:.60}")
        try:
            name = base64.b64decode(one["key"], validate=True).decode()
            value = base64.b64decode(one.get("value", ""), validate=True)
        except (ValueError, KeyError, TypeError) as error:
            raise EtcdError(f"{self.address}: a key {one!r:.60}: {error}") from None
        return Key(name, value, _number(one, "mod_revision", least=1), _number(one, "lease"))


class _Timely(io.RawIOBase):
    """
    The bytes of a socket; each read has the time that is left of the question. file: of the socket,
    which stays open with it, also when the link is one for this answer alone.
    """

    def __init__(self, link: socket.socket, file: io.BufferedIOBase,
                 left_s: Callable[[], float]) -> None:
        super().__init__()
        self._link = link
        self._file = file
        self._left_s = left_s

    def close(self) -> None:
        self._file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._link.settimeout(self._left_s())
        return self._link.recv_into(buffer)


def _answers(left_s: Callable[[], float]) -> type[HTTPResponse]:
    """Answers of which every part, also a line of the head, comes within the time that is left."""
    class Answer(HTTPResponse):
        def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
            super().__init__(sock, *arguments, **named)
            self.fp = io.BufferedReader(_Timely(sock, self.fp, left_s))

    return Answer


def _has_more(link: socket.socket) -> bool:
    """Whether it has ended, or has what nobody asked for: a second answer to the last question."""
    waiting = select.poll()
    waiting.register(link, select.POLLIN)
    return bool(waiting.poll(0))


def _operation(change: Put) -> dict[str, Any]:
    key = _text(change.name.encode())
    if change.value is None:
        return {"request_delete_range": {"key": key}}
    return {"request_put": {"key": key, "value": _text(change.value), "lease": str(change.lease)}}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _number(answer: dict[str, Any], name: str, *, least: int = 0) -> int:
    """Of 64 bits: the gateway writes them as texts, and leaves out 0."""
    value = answer.get(name, "0")
    if not isinstance(value, str) or not value.isdecimal() or len(value) > DIGITS_MAX or (
            int(value) < least):
        raise EtcdError(f"{name} {value!r:.60}: expected a number from {least} on")
    return int(value)
