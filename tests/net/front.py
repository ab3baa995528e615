"""The words of the binary front (mqcore/net/probes/binary_front.pyx), as its clients have them."""
from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from mqcore.wire.records import Record, decode_records
from tests.wire_live.peer import Peer

TOPIC, GROUP = "T", "G"
SAID, SEND, PULL, QUESTION, WORD = range(5)


class Told(NamedTuple):
    """What the coordinator says."""

    remark: str
    fields: dict[str, str]
    body: bytes


class Answer:
    """An answer of the binary front."""

    def __init__(self, frame: bytes) -> None:
        self.kind, self.opaque, self.code = struct.unpack_from(">Bii", frame, 4)
        self.rest = frame[13:]

    @property
    def remark(self) -> str:
        return self.rest.decode() if self.kind == SAID else self.told.remark

    @property
    def stored(self) -> tuple[int, int, int]:
        """(queue, queue offset, log position)"""
        assert self.kind == SEND, (self.kind, self.code, self.rest)
        queue, offset, position = struct.unpack(">iqq", self.rest)
        return queue, offset, position

    @property
    def range(self) -> tuple[int, int, int]:
        """(next offset, smallest, largest)"""
        assert self.kind == PULL, (self.kind, self.code, self.rest)
        following, least, most = struct.unpack_from(">qqq", self.rest)
        return following, least, most

    @property
    def records(self) -> list[Record]:
        return decode_records(self.rest[24:])

    @property
    def told(self) -> Told:
        assert self.kind in (QUESTION, WORD), (self.kind, self.code, self.rest)
        remark, at = text(self.rest, 0)
        (count,) = struct.unpack_from(">i", self.rest, at)
        at += 4
        fields = {}
        for _ in range(count):
            end = at + 1 + self.rest[at]
            fields[self.rest[at + 1:end].decode()], at = text(self.rest, end)
        return Told(remark, fields, self.rest[at:])


def text(data: bytes, at: int) -> tuple[str, int]:
    """The text behind its length, and the place behind it."""
    (length,) = struct.unpack_from(">i", data, at)
    return data[at + 4:at + 4 + length].decode(), at + 4 + length


def framed(kind: int, opaque: int, content: bytes) -> bytes:
    return struct.pack(">iBi", 5 + len(content), kind, opaque) + content


def named(name: str) -> bytes:
    raw = name.encode()
    return bytes([len(raw)]) + raw


def send_frame(opaque: int, body: bytes, *, topic: str = TOPIC, queue: int = 0,
               properties: bytes = b"") -> bytes:
    return framed(SEND, opaque, named(topic) + struct.pack(
        ">iqH", queue, 1_700_000_000_000, len(properties)) + properties + body)


def pull_frame(opaque: int, offset: int, *, topic: str = TOPIC, group: str = GROUP, count: int = 32,
               wait_ms: int = 0) -> bytes:
    return framed(PULL, opaque, named(group) + named(topic) + struct.pack(
        ">iqii", 0, offset, count, wait_ms))


def ask_frame(opaque: int, code: int, fields: Mapping[str, str], body: bytes = b"") -> bytes:
    return framed(QUESTION, opaque, struct.pack(">ii", code, len(fields)) + b"".join(
        named(name) + struct.pack(">i", len(value.encode())) + value.encode()
        for name, value in fields.items()) + body)


class Front(Peer):
    """A client of the binary front; words: what the coordinator has said by itself."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.words: list[Answer] = []

    def answer(self) -> Answer:
        """The next answer; words that come before it are kept."""
        while True:
            found = Answer(self.receive_frame())
            if found.kind != WORD:
                return found
            self.words.append(found)

    def asks(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Answer:
        self.send(ask_frame(int(code), code, fields, body))
        found = self.answer()
        assert found.opaque == code
        return found
