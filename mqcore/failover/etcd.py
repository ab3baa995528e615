"""
Questions to etcd by the JSON gateway of its v3 API, which every member of 3.4 and later has.

One question at a time, each with a timeout. An answer that does not come, or is no plain yes or no,
is one that is lost: whether etcd has done what was asked is not known then, and it may still do it.
"""
from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mqcore.failover.link import AnswerError, Link

UNAUTHENTICATED = 401
FORBIDDEN = 403
HEALTH_PATH = "/health"
OLD_TOKEN = "auth store is old"          # of a user or role that was changed since
WRONG_PASSWORD = "invalid user ID or password"
NO_USER = "user name is empty"
NAMED_CERTIFICATE = "CommonName of client"       # the gateway's, where etcd has users
TEXT_LENGTH_MAX = 200
DIGITS_MAX = 20                   # of a number of 64 bits

Refusal = Literal["certificate", "own certificate", "password", "user", "right"]


class EtcdError(RuntimeError):
    """The answer is lost, or says nothing about what became of the question; the text says why."""


class EtcdRefusedError(EtcdError):
    """
    Who asks is not let in, or etcd is not who was expected. what: the certificate that etcd shows,
    the one that it was shown, the password, that no user was named, or what the user may do.
    """

    def __init__(self, text: str, what: Refusal) -> None:
        super().__init__(text)
        self.what = what


class _TokenError(EtcdError):
    """Nothing was done: the token is not known there, or an old one."""


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
    A client of one etcd, at one of the addresses of its members (http://host:port).

    timeout_s: of one question; context: for https; account: user and password, None: nobody asks.

    It stays at the member that answers. When that one fails, the next of the list is asked from the
    next question on, and so around. A new link has its share of the time: what is left by as many
    addresses as were not tried; in it its member has to say that it is well (/health: it knows who
    leads etcd, and etcd answers), but for the last one, which is asked in any case.
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
        self._link: Link | None = None

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
        deadline = time.monotonic() + self._timeout_s
        if self._account is None:
            return self._post(path, body, deadline)
        known = bool(self._token)
        if not known:
            self._authenticate(deadline)
        try:
            return self._post(path, body, deadline)
        except _TokenError:
            if not known:
                raise
        self._authenticate(deadline)     # a member that began anew has forgotten its tokens
        return self._post(path, body, deadline)

    def _authenticate(self, deadline: float) -> None:
        assert self._account is not None
        self._token = ""
        user, password = self._account
        answer = self._post("/v3/auth/authenticate", {"name": user, "password": password}, deadline)
        token = answer.get("token")
        if not isinstance(token, str) or not token or not token.isprintable():
            raise EtcdError(f"{self.address}: no token for user {user}")
        self._token = token

    def _post(self, path: str, body: dict[str, Any], deadline: float) -> dict[str, Any]:
        """What fails before the question has left continues at the next address, once around."""
        link = self._linked(deadline)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = self._token
        try:
            answer = link.ask("POST", path, json.dumps(body), headers, deadline)
            return self._object(answer.status, answer.text)
        except _TokenError:
            self._token = ""
            raise
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            failed = self._failure(error)
            self._next()
            raise failed from None
        except EtcdError:
            self._next()
            raise

    def _linked(self, deadline: float) -> Link:
        """A link to a member; who cannot be reached in a share of the time is passed over."""
        if self._link is not None and self._link.is_open:
            return self._link
        self.close()
        failure = EtcdError(f"{self.address}: timed out")
        for untried in range(len(self._addresses), 0, -1):
            now = time.monotonic()
            if now >= deadline:
                break
            share = now + (deadline - now) / untried
            try:
                self._link = Link(self.address, self._context, share)
                if untried > 1:
                    self._look_whether_well(self._link, share)
                    if not self._link.is_open:       # one of one question
                        self._link = Link(self.address, self._context, share)
                return self._link
            except (OSError, http.client.HTTPException, ValueError) as error:
                failure = self._failure(error)
                self._next()
        raise failure

    @staticmethod
    def _look_whether_well(link: Link, deadline: float) -> None:
        answer = link.ask("GET", HEALTH_PATH, None, {}, deadline)
        if answer.status >= http.client.INTERNAL_SERVER_ERROR:
            raise AnswerError(f"this member is not well: {_visible(answer.text)}")

    def _failure(self, error: Exception) -> EtcdError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return EtcdRefusedError(f"{self.address}: certificate verify failed: "
                                    f"{error.verify_message}", "certificate")
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return EtcdRefusedError(f"{self.address}: {error.reason}", "own certificate")
        return EtcdError(f"{self.address}: {error or type(error).__name__}")

    def _object(self, status: int, text: bytes) -> dict[str, Any]:
        """The answer of status 200. Raises EtcdError, ValueError."""
        if status != http.client.OK:
            raise self._refusal(status, text)
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise EtcdError(f"{self.address}: expected an object, {text[:80]!r}")
        return answer

    def _refusal(self, status: int, text: bytes) -> EtcdError:
        said = _message(text)
        words = f"{self.address}: {status} {said}"
        if self._token and (status == UNAUTHENTICATED or OLD_TOKEN in said):
            return _TokenError(words)
        if WRONG_PASSWORD in said:
            return EtcdRefusedError(words, "password")
        if NAMED_CERTIFICATE in said:
            return EtcdRefusedError(words, "own certificate")
        if NO_USER in said:
            return EtcdRefusedError(words, "user")
        return EtcdRefusedError(words, "right") if status == FORBIDDEN else EtcdError(words)

    def _next(self) -> None:
        self.close()
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


def _message(text: bytes) -> str:
    """What an answer says that is none: the gateway's word for it, or the text."""
    try:
        said = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        said = None
    return _visible(said.encode() if isinstance(said, str) else text)


def _visible(text: bytes) -> str:
    return repr(text[:TEXT_LENGTH_MAX].decode(errors="replace").strip())[1:-1]


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
