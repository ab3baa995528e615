"""Frames that nobody should send: recorded ones with something wrong, and plain noise."""
from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence

from mqcore.wire.command import Codec, Command, FrameError, decode, encode
from tests.support import recorded

FRAME_BYTES_MAX = 60_000            # of what we start from: many frames, not long ones
HEAD = 8                            # length word and header word
NUMBERS = (0, 1, -1, 2**15, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**63, 10**30)
TEXTS = ("", "null", "true", "0x10", "1e9", " 1", "+1", "-", "\x00", "\x01\x02", "%RETRY%", "||",
         "*", "\U0001f600", "\ud800", "a" * 128, "a" * 256, "a" * 4000, "../../../etc", "T\n",
         "TBW102", "broker-a", "SQL92", "DELAY\x013\x02", "TRAN_MSG\x01true\x02", "\x01",
         "\x02\x02")
LENGTHS = (0, 1, 3, 4, 5, 20, 21, 0xFFFF, 1 << 20, (1 << 24) - 4, (1 << 24) - 3, 1 << 24,
           0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
JSON_NOISE = (b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u", b"\\ud800", b":", b",", b"null", b"NaN",
              b"1e999", b"-", b"[" * 200, b'{"a":' * 200, b"\xff\xfe", b"\x00", b"/*", b"'")


class Mutator:
    """An endless supply of bad bytes for one kind of server; the same seed gives the same bytes."""

    def __init__(self, seed: int, peer: str, frames: Sequence[bytes] = ()) -> None:
        """peer: "broker" or "namesrv", whose requests are taken; frames: these instead."""
        self._random = random.Random(seed)
        self._frames = list(frames) or sorted(_recorded_requests(peer))
        self._kinds: tuple[Callable[[bytes], bytes], ...] = (
            self._flip, self._flip, self._cut, self._grow, self._lie_about_length,
            self._lie_about_header, self._change_field, self._change_field, self._change_field,
            self._change_field, self._drop_field, self._change_code, self._change_body,
            self._change_body, self._join, self._json_noise, self._splice, self._whole,
        )

    def bytes(self) -> bytes:
        """The next piece: usually one frame, sometimes half of one, several, or noise."""
        pick = self._random.random()
        if pick < 0.03:
            return self._random.randbytes(self._random.randrange(1, 400))
        frame = self._random.choice(self._frames)
        for _ in range(1 if pick < 0.8 else 3):
            frame = self._random.choice(self._kinds)(frame)
        return frame

    def _position(self, data: bytes) -> int:
        return self._random.randrange(max(len(data), 1))

    def _flip(self, frame: bytes) -> bytes:
        changed = bytearray(frame)
        for _ in range(self._random.choice((1, 1, 2, 8)) if changed else 0):
            changed[self._position(frame)] ^= 1 << self._random.randrange(8)
        return bytes(changed)

    def _cut(self, frame: bytes) -> bytes:
        return frame[:self._position(frame)]

    def _grow(self, frame: bytes) -> bytes:
        at = self._position(frame)
        return frame[:at] + self._random.randbytes(self._random.choice((1, 4, 100))) + frame[at:]

    def _lie_about_length(self, frame: bytes) -> bytes:
        return struct.pack(">I", self._random.choice(LENGTHS)) + frame[4:]

    def _lie_about_header(self, frame: bytes) -> bytes:
        word = self._random.choice(LENGTHS) ^ self._random.choice((0, 1 << 24, 2 << 24))
        return frame[:4] + struct.pack(">I", word & 0xFFFFFFFF) + frame[HEAD:]

    def _value(self) -> str:
        if self._random.random() < 0.5:
            return str(self._random.choice(NUMBERS))
        return self._random.choice(TEXTS)

    def _changed(self, frame: bytes, change: Callable[[Command], None]) -> bytes:
        """The frame with its decoded form changed; itself when it has none any more."""
        try:
            command = decode(frame[4:])
            command.codec = self._random.choice(list(Codec))
            change(command)
            return encode(command)
        except (FrameError, UnicodeError, ValueError):
            return frame

    def _change_field(self, frame: bytes) -> bytes:
        def change(command: Command) -> None:
            ext = dict(command.ext or {})
            for _ in range(self._random.choice((1, 1, 2))):
                ext[self._random.choice([*ext, "topic", "unknown"])] = self._value()
            command.ext = ext
        return self._changed(frame, change)

    def _drop_field(self, frame: bytes) -> bytes:
        def change(command: Command) -> None:
            ext = dict(command.ext or {})
            if ext:
                del ext[self._random.choice(list(ext))]
            command.ext = ext
        return self._changed(frame, change)

    def _change_code(self, frame: bytes) -> bytes:
        def change(command: Command) -> None:
            command.code = self._random.choice((
                self._random.randrange(0, 400), -1, 32767, -32768, 10, 11, 310, 320, 34))
            command.flag = self._random.choice((0, 0, 1, 2, 3, -1))
        return self._changed(frame, change)

    def _change_body(self, frame: bytes) -> bytes:
        def change(command: Command) -> None:
            how = self._random.randrange(5)
            if how == 0:
                command.body = b""
            elif how == 1:
                command.body = self._random.randbytes(self._random.randrange(1, 300))
            elif how == 2:
                command.body = self._flip(command.body)
            elif how == 3:
                command.body = self._cut(command.body)
            else:
                command.body = self._grow(command.body)
        return self._changed(frame, change)

    def _json_noise(self, frame: bytes) -> bytes:
        """Something that JSON has a use for, at any place, with the lengths put right."""
        at = self._random.randrange(HEAD, max(len(frame), HEAD) + 1)
        noise = self._random.choice(JSON_NOISE)
        header_length = int.from_bytes(frame[5:HEAD], "big") + (
            len(noise) if at <= HEAD + int.from_bytes(frame[5:HEAD], "big") else 0)
        rest = frame[HEAD:at] + noise + frame[at:]
        word = (frame[4] if len(frame) > 4 else 0) << 24 | header_length & 0xFFFFFF
        return struct.pack(">II", 4 + len(rest), word) + rest

    def _join(self, frame: bytes) -> bytes:
        return frame + self._random.choice(self._frames)

    def _splice(self, frame: bytes) -> bytes:
        other = self._random.choice(self._frames)
        return frame[:self._position(frame)] + other[self._position(other):]

    def _whole(self, frame: bytes) -> bytes:
        return frame


def _recorded_requests(peer: str) -> Iterator[bytes]:
    names = {"namesrv": ("route", "registration", "namesrv-admin")}.get(
        peer, tuple(name for name in recorded.NAMES if name != "registration"))
    for name in names:
        for exchange in recorded.exchanges(name):
            if len(exchange.request.frame) <= FRAME_BYTES_MAX:
                yield exchange.request.frame
