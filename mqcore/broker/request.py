"""Input and output of the rules: Request, Answer, Redo, PendingOutcome, header fields."""
from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, FrameError, encode, encode_head, response
from mqcore.wire.numbers import I32_MAX, I32_MIN, I64_MAX, I64_MIN, whole_number

# The remark of a fresh 4.9.8 response; some handlers leave it on successes (remoting.md 2.4).
REMARK_LEFT_OVER = "not set any response code"


@dataclass(slots=True)
class Request:
    """One request, with what is known of the connection it came by."""

    connection: int              # id; bits 48 to 55 are the index of the serving process
    remote: str                  # "ip:port"
    command: Command
    now_ms: int
    fast_port: bool = False
    body_size: int = 0           # bytes of the body; sends come without it
    read: object = None          # what was made of a large body: let go when it is done, in turns
    passed: bool = False         # access control in the serving process lets it pass
    account: object = None       # whose it is (mqcore.acl.rules.Account), where that is known


def remote_address(remote: str) -> tuple[str, int]:
    """(ip, port) of Request.remote; an IPv6 address there is in brackets."""
    ip, _, port = remote.rpartition(":")
    return ip.strip("[]"), int(port)


@dataclass(slots=True)
class Answer:
    """
    A response. ext None: no extFields at all, as 4.9.8 answers where a code has no header. parts:
    a long body, which is sent in parts.
    """

    code: int
    remark: str | None = None
    ext: dict[str, str | None] | None = None
    body: bytes = b""
    parts: list[bytes] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Redo:
    """
    The serving process that asked may run the request itself now: the tables have what it missed.

    topic, queue_id: store the message there instead of where the request says (a message that was
    retried too often goes to the dead letter queue). It must not ask about the same request twice.
    """

    topic: str | None = None
    queue_id: int | None = None


@dataclass(slots=True)
class PendingOutcome:
    """
    An outcome that waits for a topic to be in its file; until then no client is told. resolve: from
    now on it is known, the other one if the topic is not there, and `then`, if there is one, is
    called with it, once.
    """

    outcome: Answer | Redo
    otherwise: Answer
    known: bool = False
    then: Callable[[Any], None] | None = None

    def resolve(self, *, there: bool) -> None:
        if self.known:
            return
        self.known = True
        if not there:
            self.outcome = self.otherwise
        if self.then is not None:
            self.then(self.outcome)


RELAXED_BYTES_MAX = 384 << 10        # of a request's body; no client writes a larger one that way
REDO = Redo()
Outcome = Answer | Redo | PendingOutcome | None  # None: no response, or it is sent later
# A function that walks a table pauses (yields) every millisecond or so, and other requests are
# served meanwhile (mqcore.turns). It reads the tables' present rows: a change in the walk may be
# in its answer or not, each row by itself is right.
OutcomeJob = Generator[None, None, Outcome]
Handler = TypeVar("Handler", bound=Callable[..., Outcome | OutcomeJob])
TEXT_A_TURN = 8 << 10                      # characters of an answer's text between two pauses
ROWS_A_TURN = 64                           # of some 10 us each, between two pauses


def answers(*codes: RequestCode) -> Callable[[Handler], Handler]:
    """Say which requests a function of `mqcore/broker/requests` answers (requests/table.py)."""

    def mark(handler: Handler) -> Handler:
        handler.__dict__["codes"] = codes
        return handler

    return mark



class FieldError(ValueError):
    """A request lacks a field or has a wrong one; the text names it and what was expected."""


@dataclass(slots=True)
class Fields:
    """The extFields of a request, read by type (remoting.md 4.0)."""

    ext: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, command: Command) -> Fields:
        return cls(command.ext or {})

    def text(self, name: str) -> str:
        """A field that must be there; it may be empty."""
        value = self.ext.get(name)
        if value is None:
            raise FieldError(f"header field {name} is missing: expected text")
        return value

    def text_or(self, name: str, default: str) -> str:
        value = self.ext.get(name)
        return default if value is None else value

    def i32(self, name: str) -> int:
        return self._number(name, I32_MIN, I32_MAX)

    def i64(self, name: str) -> int:
        return self._number(name, I64_MIN, I64_MAX)

    def i32_or(self, name: str, default: int) -> int:
        if self.ext.get(name) is None:
            return default
        return self.i32(name)

    def boolean(self, name: str) -> bool:
        """True only for the text `true` in any letter case; absent is false."""
        return (self.ext.get(name) or "").lower() == "true"

    def _number(self, name: str, low: int, high: int) -> int:
        value = self.ext.get(name)
        if value is None:
            raise FieldError(f"header field {name} is missing: expected a whole number")
        number = whole_number(value, low, high)
        if number is None:
            raise FieldError(
                f"header field {name} is {value[:40]!r}: expected a whole number"
                f" from {low} to {high}"
            )
        return number


def body_object(request: Request, what: str) -> Generator[None, None, dict[str, object]]:
    """The JSON object of a request's body; raises FieldError when there is none. With pauses."""
    command = request.command
    try:
        value = (yield from fastjson.loads_in_turns(
            command.body, relaxed_size_max=RELAXED_BYTES_MAX)) if command.body else None
    except fastjson.JsonError as error:
        raise FieldError(f"body: {error}; expected {what} as JSON") from error
    if len(command.body) > fastjson.WHOLE_SIZE_MAX:
        request.read = value
    if not isinstance(value, dict):
        raise FieldError(f"body: expected {what} as a JSON object")
    return value


def json_answer(
    value: Any, remark: str | None = None, ext: dict[str, str | None] | None = None, *,
    built: bool = False,
) -> OutcomeJob:
    """Success with a body that may be large; built: see fastjson.parts_in_turns."""
    return long_answer((yield from fastjson.parts_in_turns(value, built=built)), remark, ext)


def long_answer(
    parts: list[bytes], remark: str | None = None, ext: dict[str, str | None] | None = None,
) -> Answer:
    """Success with a body that is one part or more."""
    if len(parts) == 1:
        return Answer(ResponseCode.SUCCESS, remark, ext, parts[0])
    return Answer(ResponseCode.SUCCESS, remark, ext, parts=parts)


def refused(code: ResponseCode, remark: str) -> Answer:
    """An answer without header that says why."""
    return Answer(code, remark)


def answer_parts(request: Request, answer: Answer) -> list[bytes] | None:
    """
    The whole frame of an answer; None for a one-way request, which gets none.

    An answer that no peer would accept, for its size, becomes a refusal that says so.
    """
    if request.command.is_oneway:
        return None
    body = answer.parts or ([answer.body] if answer.body else [])
    try:
        return [encode_head(response(request.command, answer.code, answer.remark, answer.ext),
                            sum(map(len, body))), *body]
    except FrameError as error:
        refusal = f"the answer cannot be sent: {error}"
        return [encode(response(request.command, ResponseCode.SYSTEM_ERROR, refusal))]


def answer_frame(request: Request, answer: Answer) -> bytes | None:
    """The same in one piece."""
    parts = answer_parts(request, answer)
    return None if parts is None else b"".join(parts)
