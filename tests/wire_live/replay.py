"""
Recorded exchanges, made fit for a live broker, and how two answers are compared.

Names in a recording contain the id of the run that made them. `renamed` puts another id of the same
length in its place, in request and answer: each exchange gets topics and groups of its own, and the
request stays as its client made it, byte for byte, in everything else.
"""
from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

import pytest

from mqcore.wire.command import Codec, Command, decode
from tests.support import recorded
from tests.support.recorded import Exchange

RUN_ID = re.compile(rb"15aa66c3|6b015b83|6b015ce8|15b5b0ad|15b826f7")
MESSAGE_ID = re.compile(r"[0-9A-F]{32}(,[0-9A-F]{32})*")
HOLD = re.compile(rb'(suspendTimeoutMillis(?:":"?|\x00\x00\x00\x05))(15000|20000)')
_numbers = itertools.count(1)


def parameters(file: str, *codes: int) -> list[Any]:
    """The exchanges of a recording that a client began with these codes, as test parameters."""
    return [
        pytest.param(exchange, id=f"{file}-{number}-{exchange}".replace(" ", "-"))
        for number, exchange in enumerate(recorded.exchanges(file)) if exchange.code in codes
    ]


class Replay:
    """One exchange; its names are its own unless they are kept."""

    def __init__(self, exchange: Exchange, *, rename: bool = True) -> None:
        """rename: False for a body that carries its own checksum."""
        run = f"{next(_numbers):08x}".encode() if rename else rb"\g<0>"
        self.frame = RUN_ID.sub(run, exchange.request.frame)
        self.request = decode(self.frame[4:])
        self.expected: Command | None = None
        if exchange.response is not None:
            self.expected = decode(RUN_ID.sub(run, exchange.response.frame)[4:])

    @property
    def fields(self) -> dict[str, str]:
        return {name: value or "" for name, value in (self.request.ext or {}).items()}

    @property
    def expected_fields(self) -> dict[str, str]:
        assert self.expected is not None
        return {name: value or "" for name, value in (self.expected.ext or {}).items()}

    def shorten_hold(self) -> None:
        """A hold of 15 or 20 s becomes 0.3 s: nobody waits that long for an answer `nothing`."""
        self.frame, count = HOLD.subn(rb"\g<1>00300", self.frame)
        assert count == 1
        self.request = decode(self.frame[4:])


def mismatches(expected: Command, found: Command, free: Iterable[str] = ()) -> dict[str, Any]:
    """
    What of the header differs: name -> (recorded, ours). Body bytes are compared by their tests.

    free: names of extFields whose values depend on the run; message ids are compared by form. The
    binary encoding has one form for no fields and none at all.
    """
    different: dict[str, Any] = {
        name: (getattr(expected, name), getattr(found, name))
        for name in ("code", "remark", "opaque", "flag", "language", "version", "codec")
        if getattr(expected, name) != getattr(found, name)
    }
    theirs, ours = expected.ext, found.ext
    if Codec.ROCKETMQ in (expected.codec, found.codec):
        theirs, ours = theirs or {}, ours or {}
    if theirs is None or ours is None:
        if theirs is not ours:
            different["extFields"] = (theirs, ours)
        return different
    for name in sorted(set(theirs) | set(ours)):
        if not _alike(name, theirs.get(name), ours.get(name), free):
            different[name] = (theirs.get(name), ours.get(name))
    return different


def _alike(name: str, theirs: str | None, ours: str | None, free: Iterable[str]) -> bool:
    if theirs == ours:
        return True
    if theirs is None or ours is None:
        return False
    if name in free:
        return True
    same_form = len(theirs) == len(ours) and MESSAGE_ID.fullmatch(ours) is not None
    return name == "msgId" and same_form
